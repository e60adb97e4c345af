"""Score one model on what the variants of a run are compared on: documents that main holds out, and main's items, the same for all.

Writes `<model>.heldout.jsonl` (`document, source, bytes, nats`, in the order of a hash) and `<model>.items.jsonl` (`task, id, document,
right`, and `bits_per_byte` of the right choice); of `base`, where evaluate.curve draws a learning curve, `base.curve.jsonl` (`step,
tokens, bits_per_byte, by_source`) of its checkpoints on the same documents. The choice of documents depends on no tokenizer; `set` in the
summary is a digest of them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json, digest, json_lines, task_of, write_atomically
from crawl2llm.core.settings import setting
from crawl2llm.formats.public_tasks.measures import DIGITS
from crawl2llm.stages.evaluate import harness, multiple_choice
from crawl2llm.stages.evaluate.curve import add_options, visit_checkpoints
from crawl2llm.stages.evaluate.heldout_loss import first_token, measure_heldout
from crawl2llm.stages.evaluate.scores import BITS_PER_BYTE
from crawl2llm.stages.evaluate.settings import CommonSettings
from crawl2llm.stages.evaluate.shared_text import Text, choose_texts, encode_texts, texts_digest
from crawl2llm.training import quantized_weights
from crawl2llm.training.measures import bits_per_byte
from crawl2llm.training.model_loading import context_of, load_model, verify_weights

Row = dict[str, Any]


class Task(CommonSettings):
    """What the program is given."""

    curve: int = setting(..., "Steps between the points of the learning curve, which `base` alone has; 0 draws none.")


class Scorer:
    """Scores models on the same texts."""

    def __init__(self, texts: list[Text], settings: CommonSettings) -> None:
        self.texts, self.settings = texts, settings

    def load_model(self, folder: Path) -> tuple[Any, Any, int]:
        """(model, tokenizer, window in tokens) of a model's folder. Raises InputError for a window that is longer than its context."""
        model, tokenizer = load_model(folder, self.settings.precision)
        model = quantized_weights.place_model(model)
        limit = context_of(model.config)
        context = self.settings.context or limit
        if context > limit:
            raise InputError(f"evaluate.common.context is {context}; the context of the model in {folder} is {limit}")
        return model, tokenizer, context

    def score_texts(self, model: Any, tokenizer: Any, context: int) -> tuple[Row, list[Row]]:
        """(loss and bits per byte, nats of each document) of a model; see heldout_loss.measure_heldout."""
        with tempfile.TemporaryDirectory() as scratch:
            documents = encode_texts(self.texts, tokenizer, Path(scratch))
            measures, lines = measure_heldout(
                model, first_token(tokenizer), documents, context, self.settings.carry, self.settings.batch_size
            )
        source = {text.id: text.source for text in self.texts}
        return measures, [{"source": source[line["document"]], **line} for line in lines]

    def bits_by_source(self, measures: Row) -> dict[str, float]:
        """Bits per byte of each source. measures: of `score_texts`, which leaves them out if there is one."""
        only_source = {self.texts[0].source: measures} if self.texts else {}
        return {name: part["bits_per_byte"] for name, part in measures.get("by_source", only_source).items()}


def curve_points(args: argparse.Namespace, step_interval: int, scorer: Scorer) -> list[Row]:
    """Bits per byte of the checkpoints of `base`, and of the model that it ended with."""
    points: list[Row] = []

    def measure_checkpoint(step: int, tokens: int, folder: Path) -> None:
        measures, _ = scorer.score_texts(*scorer.load_model(folder))
        bits = {"bits_per_byte": measures["bits_per_byte"], "by_source": scorer.bits_by_source(measures)}
        points.append({"step": step, "tokens": tokens, **bits})
        log.info("step %s: %.4f bits/byte", f"{step:,}", measures["bits_per_byte"])

    visit_checkpoints(args.model, args.kept, step_interval, measure_checkpoint)
    return points


def right_choice_bits(row: Row, nats: list[float]) -> float:
    """Bits for each byte of an item's right choice, with six decimals. nats: the log-likelihood of each choice."""
    return round(bits_per_byte(-nats[row["gold"]], len(row["choices"][row["gold"]].encode())), DIGITS)


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    harness.go_offline()
    import torch

    torch.set_num_threads(settings.threads)
    name = task_of(args.manifest)
    _, folder = verify_weights(args.model)
    texts, available = choose_texts(args.corpus, settings.max_bytes, settings.seed)
    rows = multiple_choice.read_items(args.tasks)
    scorer = Scorer(texts, settings)
    model, tokenizer, context = scorer.load_model(folder)
    notes: list[str] = []
    measures: Row = {}
    lines: list[Row] = []
    if texts:
        measures, lines = scorer.score_texts(model, tokenizer, context)
        log.info("%s documents that main holds out: %.4f bits/byte", f"{len(texts):,}", measures["bits_per_byte"])
    else:
        notes.append("No loss was measured: main holds out no text.")
    tasks = multiple_choice.item_tasks(rows, tokenizer, context)
    answers, _ = harness.run_tasks(model, tokenizer, tasks, [], context, settings.seed)
    numbers, item_lines = multiple_choice.task_results(tasks, answers.get("samples", {}), settings.seed)
    for task in tasks:
        if number := task.left_out[multiple_choice.TOO_LONG]:
            notes.append(f"{task.name}: {number} items have a choice longer than the context of {context} tokens.")
        if number := task.left_out[multiple_choice.NO_TOKEN]:
            notes.append(f"{task.name}: {number} items have a choice without a token.")
    for note in notes:
        log.warning("%s", note)

    rows_by_id = {row["id"]: row for row in rows}
    for line in item_lines:
        line[BITS_PER_BYTE] = right_choice_bits(rows_by_id[line["id"]], line["log_likelihoods"])
    columns = {
        "heldout": (lines, ("document", "source", "bytes", "nats")),
        "items": (item_lines, ("task", "id", "document", "right", BITS_PER_BYTE)),
    }
    if settings.curve and texts:
        columns["curve"] = (
            curve_points(args, settings.curve, scorer),
            ("step", "tokens", "bits_per_byte", "by_source"),
        )
    files = []
    for kind, (file_rows, keys) in columns.items():
        files.append(args.manifest.with_name(f"{name}.{kind}.jsonl"))
        write_atomically(files[-1], json_lines({key: row[key] for key in keys} for row in file_rows))
    over_limit = available - len(texts)
    manifest.counts = {
        "in": available,
        "kept": len(texts),
        "dropped": {"over_max_bytes": over_limit} if over_limit else {},
    }
    manifest.summary = {
        "bits_per_byte": measures.get("bits_per_byte"),
        "loss": measures.get("loss"),
        "tokens": measures.get("tokens"),
        "by_source": scorer.bits_by_source(measures),
        "tasks": numbers,
        "documents": len(texts),
        "bytes": sum(text.bytes for text in texts),
        "set": texts_digest(texts),
        "items": {"number": len(rows), "set": digest(canonical_json([row["id"] for row in rows]))},
        "context": context,
        "notes": notes,
    }
    return files


main = Program("evaluate.common", __doc__, Task, body, add_options)


if __name__ == "__main__":
    raise SystemExit(main())
