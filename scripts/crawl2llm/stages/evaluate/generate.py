"""What a model writes, measured: its greedy answers to held-out questions beside their references, and texts that it samples freely.

Writes `<model>.generated.json`, the numbers, `<model>.answers.jsonl` and `<model>.texts.jsonl`, a line for each text.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xxhash

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, json_lines, pretty, task_of, write_atomically
from crawl2llm.formats.documents import uniform
from crawl2llm.formats.public_tasks.measures import DIGITS
from crawl2llm.stages.evaluate import harness, overlap
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.model_loading import load, weights
from crawl2llm.training.question_cuts import cut_prompts
from crawl2llm.training.template import enough, read_pairs

Row = dict[str, Any]


def chosen(rows: Sequence[Row], number: int, seed: int) -> list[Row]:
    """At most `number` questions, by a hash of (seed, id), as many of each file or pattern as of another.

    What a small file lacks the others give, so that it is asked whole and is not lost beside a large one. Not those of a classification,
    whose answer is one of few labels.
    """
    groups: dict[str, list[Row]] = {}
    ordered = sorted(rows, key=lambda row: (uniform(seed, row["id"], "evaluate.generate"), row["id"]))
    asked = [row for row in ordered if "labels" not in row]
    for row in asked:
        groups.setdefault(row["of"], []).append(row)
    taken: dict[str, int] = {}
    for place, of in enumerate(sorted(groups, key=lambda of: (len(groups[of]), of))):  # the smallest first
        taken[of] = min(len(groups[of]), (number - sum(taken.values())) // (len(groups) - place))
    kept = {row["id"] for of, some in groups.items() for row in some[: taken[of]]}
    return [row for row in asked if row["id"] in kept]


def by_itself(rows: Sequence[Row]) -> Row:
    """Of texts: `self_perplexity`, e to the mean loss a token that the model has on its own text, and the shares of `ended` and `cut`."""
    tokens = sum(row["tokens"] for row in rows)
    return {
        "self_perplexity": round(math.exp(min(sum(row["nats"] for row in rows) / tokens, 700.0)), 4),
        "ended": round(sum(row["ended"] for row in rows) / len(rows), DIGITS),
        "cut": sum(row["cut"] for row in rows),
    }


def numbers(answers: Sequence[Row], seed: int) -> dict[str, Row]:
    """The numbers of all answers, and of those of each file or pattern of the pairs where there are several."""
    kinds = sorted({row["of"] for row in answers})
    groups = {"all": answers}
    if len(kinds) > 1:
        groups |= {kind: [row for row in answers if row["of"] == kind] for kind in kinds}
    return {kind: {**overlap.answers(of, seed), **by_itself(of)} for kind, of in groups.items() if of}


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    harness.offline()
    import torch

    from crawl2llm.stages.evaluate.writer import Writer

    torch.set_num_threads(settings["threads"])
    name, seed = task_of(args.manifest), settings["seed"]
    rows, template = read_pairs(args.pairs, "heldout")
    asked = chosen(rows, settings["questions"], seed) if enough(args.pairs, "heldout") else []
    notes = []
    if settings["questions"] and not asked:
        notes.append("No held-out question was answered: finetune.pairs found too few.")
        log.warning(notes[-1])
    has = memory.available()
    model, tokenizer = load(weights(args.model)[1], settings["precision"])
    quantized_weights.place(model)
    writer = Writer(model, tokenizer, settings)
    if not torch.cuda.is_available():
        memory.check_loaded("generation", model, (1, writer.context), has, [], precision=settings["precision"])
    progress = Progress(len(asked) + settings["samples"], "texts")
    answers, texts = [dict[str, Any]()] * len(asked), [dict[str, Any]()] * settings["samples"]
    prompts = cut_prompts([row["question"] for row in asked], template, tokenizer, writer.context - writer.most)
    for place, made in writer.write([prompt for prompt, _ in prompts]):
        row = asked[place]
        made["cut"] |= prompts[place][1]
        known = {
            **{key: row[key] for key in ("id", "document", "question")},
            "of": row["of"],
            "reference": row["answer"],
        }
        answers[place] = {**known, **made, **overlap.common(made["text"], row["answer"])}
        progress.add()
    drawn = [xxhash.xxh3_64_intdigest(f"{seed} {number}".encode()) >> 1 for number in range(len(texts))]
    for number, made in writer.write([""] * len(texts), drawn):
        texts[number] = {"number": number, **made}
        progress.add()
    samples: Row | None = None
    if texts:
        samples = {"items": len(texts), **overlap.own([row["text"] for row in texts]), **by_itself(texts)}
        samples = {key: round(value, DIGITS) if isinstance(value, float) else value for key, value in samples.items()}
    result: Row = {
        "model": name,
        "answers": numbers(answers, seed) if answers else None,
        "samples": samples,
        "notes": notes,
        "software": {package: version(package) for package in ("rouge_score", "sacrebleu")},
    }
    if answers:
        found = result["answers"]["all"]
        log.info("answers: ROUGE-L %.3f, BLEU %.2f, chrF %.2f", found["rougeL"], found["bleu"], found["chrf"])
    files = [args.manifest.with_name(f"{name}.generated.json")]
    write_atomically(files[0], pretty(result))
    for kind, written in (("answers", answers), ("texts", texts)):
        files.append(args.manifest.with_name(f"{name}.{kind}.jsonl"))
        write_atomically(files[-1], json_lines(written))
    over = len(rows) - len(asked)
    manifest.counts = {"in": len(rows), "kept": len(asked), "dropped": {"not_asked": over} if over else {}}
    manifest.summary = {**{key: result[key] for key in ("answers", "samples", "notes")}, "examples": answers[:3]}
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "evaluate.generate",
        __doc__,
        "--config config.yaml --model results/main/finetune/train/sft.manifest.json "
        "--pairs results/main/finetune/pairs/manifest.json --manifest /tmp/generate/sft.manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of the step that made the model")
    parser.add_argument("--pairs", required=True, type=Path, help="manifest of finetune.pairs")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
