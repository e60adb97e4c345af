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

from crawl2llm.chain.step_program import Program
from crawl2llm.core import free_memory
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, json_lines, pretty_json, task_of, write_atomically
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.formats.public_tasks.measures import DIGITS
from crawl2llm.stages.evaluate import harness, multiple_choice, overlap
from crawl2llm.stages.evaluate.settings import GenerateSettings
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.model_loading import load_model, verify_weights
from crawl2llm.training.question_cuts import cut_prompts
from crawl2llm.training.template import has_enough_pairs, read_pairs

Row = dict[str, Any]


def choose_questions(rows: Sequence[Row], number: int, seed: int) -> list[Row]:
    """At most `number` questions, by a hash of (seed, id), as many of each file or pattern as of another.

    What a small file lacks the others give, so that it is asked whole and is not lost beside a large one. Not those of a classification,
    whose answer is one of few labels.
    """
    groups: dict[str, list[Row]] = {}
    ordered = sorted(rows, key=lambda row: (uniform_hash(seed, row["id"], "evaluate.generate"), row["id"]))
    candidates = [row for row in ordered if "labels" not in row]
    for row in candidates:
        groups.setdefault(row["of"], []).append(row)
    quotas: dict[str, int] = {}
    for place, group in enumerate(sorted(groups, key=lambda of: (len(groups[of]), of))):  # the smallest first
        quotas[group] = min(len(groups[group]), (number - sum(quotas.values())) // (len(groups) - place))
    chosen_ids = {row["id"] for of, group_rows in groups.items() for row in group_rows[: quotas[of]]}
    return [row for row in candidates if row["id"] in chosen_ids]


def generation_measures(rows: Sequence[Row]) -> Row:
    """Of texts: `self_perplexity`, e to the mean loss a token that the model has on its own text, and the shares of `ended` and `cut`."""
    tokens = sum(row["tokens"] for row in rows)
    return {
        "self_perplexity": round(math.exp(min(sum(row["nats"] for row in rows) / tokens, 700.0)), 4),
        "ended": round(sum(row["ended"] for row in rows) / len(rows), DIGITS),
        "cut": sum(row["cut"] for row in rows),
    }


def answer_numbers(answers: Sequence[Row], seed: int) -> dict[str, Row]:
    """The numbers of all answers, and of those of each file or pattern of the pairs if there are several."""
    kinds = sorted({row["of"] for row in answers})
    groups = {"all": answers}
    if len(kinds) > 1:
        groups |= {kind: [row for row in answers if row["of"] == kind] for kind in kinds}
    return {
        kind: {**overlap.answer_measures(rows, seed), **generation_measures(rows)}
        for kind, rows in groups.items()
        if rows
    }


def body(args: argparse.Namespace, settings: GenerateSettings, manifest: Manifest) -> list[Path]:
    harness.go_offline()
    import torch

    from crawl2llm.stages.evaluate.writer import Writer

    torch.set_num_threads(settings.threads)
    name, seed = task_of(args.manifest), settings.seed
    rows, template = read_pairs(args.pairs, "heldout")
    questions = choose_questions(rows, settings.questions, seed) if has_enough_pairs(args.pairs, "heldout") else []
    notes = []
    if settings.questions and not questions:
        notes.append("No held-out question was answered: finetune.pairs found too few.")
        log.warning(notes[-1])
    memory_before = free_memory.available_bytes()
    model, tokenizer = load_model(verify_weights(args.model)[1], settings.precision)
    quantized_weights.place_model(model)
    template = layout_for(template, tokenizer)
    question_count = len(questions)
    questions = [row for row in questions if not multiple_choice.spells_special_token(tokenizer, row["question"])]
    special = question_count - len(questions)
    if special:
        notes.append(
            f"{special} of {question_count} held-out questions were not answered: they spell a special token of the model's."
        )
        log.warning(notes[-1])
    writer = Writer(model, tokenizer, settings)
    if not torch.cuda.is_available():
        memory.check_loaded("generation", model, (1, writer.context), memory_before, [], precision=settings.precision)
    progress = Progress(len(questions) + settings.samples, "texts")
    answers, texts = [dict[str, Any]()] * len(questions), [dict[str, Any]()] * settings.samples
    prompts = cut_prompts(
        [row["question"] for row in questions], template, tokenizer, writer.context - writer.max_new_tokens
    )
    for place, output in writer.write_texts([prompt for prompt, _ in prompts]):
        row = questions[place]
        output["cut"] |= prompts[place][1]
        question_fields = {
            **{key: row[key] for key in ("id", "document", "question")},
            "of": row["of"],
            "reference": row["answer"],
        }
        answers[place] = {**question_fields, **output, **overlap.compare_with_reference(output["text"], row["answer"])}
        progress.add()
    seeds = [xxhash.xxh3_64_intdigest(f"{seed} {number}".encode()) >> 1 for number in range(len(texts))]
    for number, output in writer.write_texts([""] * len(texts), seeds):
        texts[number] = {"number": number, **output}
        progress.add()
    samples: Row | None = None
    if texts:
        samples = {
            "items": len(texts),
            **overlap.text_measures([row["text"] for row in texts]),
            **generation_measures(texts),
        }
        samples = {key: round(value, DIGITS) if isinstance(value, float) else value for key, value in samples.items()}
    result: Row = {
        "model": name,
        "answers": answer_numbers(answers, seed) if answers else None,
        "samples": samples,
        "notes": notes,
        "software": {package: version(package) for package in ("rouge_score", "sacrebleu")},
    }
    if answers:
        overall = result["answers"]["all"]
        log.info("answers: ROUGE-L %.3f, BLEU %.2f, chrF %.2f", overall["rougeL"], overall["bleu"], overall["chrf"])
    files = [args.manifest.with_name(f"{name}.generated.json")]
    write_atomically(files[0], pretty_json(result))
    for kind, file_rows in (("answers", answers), ("texts", texts)):
        files.append(args.manifest.with_name(f"{name}.{kind}.jsonl"))
        write_atomically(files[-1], json_lines(file_rows))
    dropped = {"not_asked": len(rows) - question_count, "special_token": special}
    manifest.counts = {
        "in": len(rows),
        "kept": len(questions),
        "dropped": {reason: number for reason, number in dropped.items() if number},
    }
    manifest.summary = {**{key: result[key] for key in ("answers", "samples", "notes")}, "examples": answers[:3]}
    return files


main = Program("evaluate.generate", __doc__, GenerateSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
