"""What a model writes, measured: its greedy answers to held-out questions beside their references, and texts that it samples freely.

Writes `<model>.generated.json`, the numbers, `<model>.answers.jsonl` and `<model>.texts.jsonl`, a line for each text.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from crawl2llm.chain.step_program import Program
from crawl2llm.core import free_memory
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.formats.public_tasks.measures import DIGITS
from crawl2llm.stages.evaluate import harness, multiple_choice, overlap
from crawl2llm.stages.evaluate.result_files import write_model_files
from crawl2llm.stages.evaluate.settings import GenerateSettings
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.model_loading import load_model, verify_weights
from crawl2llm.training.question_cuts import cut_prompts
from crawl2llm.training.template import Template, has_enough_pairs, read_pairs

if TYPE_CHECKING:
    from crawl2llm.stages.evaluate.writer import Writer

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


def sample_numbers(texts: Sequence[Row]) -> Row | None:
    """The numbers of texts that are sampled freely; None without any."""
    if not texts:
        return None
    measures = {**overlap.text_measures([row["text"] for row in texts]), **generation_measures(texts)}
    return {
        "items": len(texts),
        **{key: round(value, DIGITS) if isinstance(value, float) else value for key, value in measures.items()},
    }


def write_answers(writer: Writer, questions: Sequence[Row], template: Template, progress: Progress) -> list[Row]:
    """What the model answers to each question, beside its reference."""
    room = writer.context - writer.max_new_tokens
    prompts = cut_prompts([row["question"] for row in questions], template, writer.tokenizer, room)
    answers = [Row()] * len(questions)
    for place, output in writer.write_texts([prompt for prompt, _ in prompts]):
        row = questions[place]
        output["cut"] |= prompts[place][1]
        answers[place] = {
            **{key: row[key] for key in ("id", "document", "question", "of")},
            "reference": row["answer"],
            **output,
            **overlap.compare_with_reference(output["text"], row["answer"]),
        }
        progress.add()
    return answers


def write_samples(writer: Writer, number: int, seed: int, progress: Progress) -> list[Row]:
    """So many texts from nothing, each sampled by a seed of its own."""
    seeds = [xxhash.xxh3_64_intdigest(f"{seed} {place}".encode()) >> 1 for place in range(number)]
    texts = [Row()] * number
    for place, output in writer.write_texts([""] * number, seeds):
        texts[place] = {"number": place, **output}
        progress.add()
    return texts


def body(args: argparse.Namespace, settings: GenerateSettings, manifest: Manifest) -> list[Path]:
    harness.go_offline()
    import torch

    from crawl2llm.stages.evaluate.writer import Writer

    torch.set_num_threads(settings.threads)
    rows, template = read_pairs(args.pairs, "heldout")
    chosen_rows = []
    if has_enough_pairs(args.pairs, "heldout"):
        chosen_rows = choose_questions(rows, settings.questions, settings.seed)
    notes = []
    if settings.questions and not chosen_rows:
        notes.append("No held-out question was answered: finetune.pairs found too few.")
        log.warning(notes[-1])
    memory_before = free_memory.available_bytes()
    model, tokenizer = load_model(verify_weights(args.model)[1], settings.precision)
    quantized_weights.place_model(model)
    template = layout_for(template, tokenizer)
    questions = [row for row in chosen_rows if not multiple_choice.spells_special_token(tokenizer, row["question"])]
    special = len(chosen_rows) - len(questions)
    if special:
        notes.append(
            f"{special} of {len(chosen_rows)} held-out questions were not answered: they spell a special token of the model's."
        )
        log.warning(notes[-1])
    writer = Writer(model, tokenizer, settings)
    if not torch.cuda.is_available():
        memory.check_loaded("generation", model, (1, writer.context), memory_before, [], precision=settings.precision)
    progress = Progress(len(questions) + settings.samples, "texts")
    answers = write_answers(writer, questions, template, progress)
    texts = write_samples(writer, settings.samples, settings.seed, progress)
    numbers = answer_numbers(answers, settings.seed) if answers else None
    if numbers:
        overall = numbers["all"]
        log.info("answers: ROUGE-L %.3f, BLEU %.2f, chrF %.2f", overall["rougeL"], overall["bleu"], overall["chrf"])
    result: Row = {
        "model": task_of(args.manifest),
        "answers": numbers,
        "samples": sample_numbers(texts),
        "notes": notes,
        "software": {package: version(package) for package in ("rouge_score", "sacrebleu")},
    }
    dropped = {"not_asked": len(rows) - len(chosen_rows), "special_token": special}
    manifest.counts = {
        "in": len(rows),
        "kept": len(questions),
        "dropped": {reason: number for reason, number in dropped.items() if number},
    }
    manifest.summary = {**{key: result[key] for key in ("answers", "samples", "notes")}, "examples": answers[:3]}
    return write_model_files(args.manifest, "generated", result, {"answers": answers, "texts": texts})


main = Program("evaluate.generate", __doc__, GenerateSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
