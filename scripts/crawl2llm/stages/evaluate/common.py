"""Score one model on what the variants of a run are compared on: documents that main holds out, and main's items, the same for all.

Writes `<model>.heldout.jsonl` (`document, source, bytes, nats`, in the order of a hash) and `<model>.items.jsonl` (`task, id, document,
right`); of `base`, where evaluate.curve draws a learning curve, `base.curve.jsonl` (`step, tokens, bits_per_byte, by_source`) of its
checkpoints on the same documents. The choice of documents depends on no tokenizer; `set` in the summary is a digest of them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, canonical, digest, json_lines, task_of, write_atomically
from crawl2llm.stages.evaluate import harness, multiple_choice
from crawl2llm.stages.evaluate.curve import at_steps
from crawl2llm.stages.evaluate.heldout_loss import heldout
from crawl2llm.stages.evaluate.shared_text import Text, choose, encoded, mark
from crawl2llm.training import quantized_weights
from crawl2llm.training.model_loading import context_of, load, weights

Row = dict[str, Any]


class Scorer:
    """Scores models on the same texts. settings: of evaluate.common."""

    def __init__(self, texts: list[Text], settings: Row, batch_size: int) -> None:
        self.texts, self.settings, self.batch_size = texts, settings, batch_size

    def loaded(self, folder: Path) -> tuple[Any, Any, int]:
        """(model, tokenizer, window in tokens) of a model's folder. Raises InputError for a window that is longer than its context."""
        model, tokenizer = load(folder, self.settings["precision"])
        model = quantized_weights.place(model)
        limit = context_of(model.config)
        context = self.settings["context"] or limit
        if context > limit:
            raise command_line.InputError(
                f"evaluate.common.context is {context}; the context of the model in {folder} is {limit}"
            )
        return model, tokenizer, context

    def score(self, model: Any, tokenizer: Any, context: int) -> tuple[Row, list[Row]]:
        """(loss and bits per byte, nats of each document) of a model; see heldout_loss.heldout."""
        with tempfile.TemporaryDirectory() as scratch:
            documents = encoded(self.texts, tokenizer, Path(scratch))
            found, lines = heldout(
                model, tokenizer.eos_token_id, documents, context, self.settings["carry"], self.batch_size
            )
        source = {text.id: text.source for text in self.texts}
        return found, [{"source": source[line["document"]], **line} for line in lines]

    def by_source(self, found: Row) -> dict[str, float]:
        """Bits per byte of each source. found: of `score`, which leaves them out where there is one."""
        one = {self.texts[0].source: found} if self.texts else {}
        return {name: part["bits_per_byte"] for name, part in found.get("by_source", one).items()}


def curve(args: argparse.Namespace, every: int, scorer: Scorer) -> list[Row]:
    """Bits per byte of the checkpoints of `base`, and of the model that it ended with."""
    points: list[Row] = []

    def measure(step: int, tokens: int, folder: Path) -> None:
        found, _ = scorer.score(*scorer.loaded(folder))
        said = {"bits_per_byte": found["bits_per_byte"], "by_source": scorer.by_source(found)}
        points.append({"step": step, "tokens": tokens, **said})
        log.info("step %s: %.4f bits/byte", f"{step:,}", found["bits_per_byte"])

    at_steps(args.model, args.kept, every, measure)
    return points


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    harness.offline()
    import torch

    torch.set_num_threads(settings["threads"])
    name = task_of(args.manifest)
    _, folder = weights(args.model)
    texts, available = choose(args.corpus, settings["max_bytes"], settings["seed"])
    rows = multiple_choice.read_items(args.items)
    scorer = Scorer(texts, settings, args.batch_size)
    model, tokenizer, context = scorer.loaded(folder)
    notes: list[str] = []
    found: Row = {}
    lines: list[Row] = []
    if texts:
        found, lines = scorer.score(model, tokenizer, context)
        log.info("%s documents that main holds out: %.4f bits/byte", f"{len(texts):,}", found["bits_per_byte"])
    else:
        notes.append("No loss was measured: main holds out no text.")
    tasks = multiple_choice.of_items(rows, tokenizer, context)
    how = {"context": context, "batch_size": args.batch_size, "seed": settings["seed"]}
    answers, _ = harness.run(model, tokenizer, tasks, [], how)
    numbers, answered = multiple_choice.results(tasks, answers.get("samples", {}), settings["seed"])
    for task in tasks:
        if number := task.left_out[multiple_choice.TOO_LONG]:
            notes.append(f"{task.name}: {number} items have a choice longer than the context of {context} tokens.")
        if number := task.left_out[multiple_choice.NO_TOKEN]:
            notes.append(f"{task.name}: {number} items have a choice without a token.")
    for note in notes:
        log.warning("%s", note)

    columns = {
        "heldout": (lines, ("document", "source", "bytes", "nats")),
        "items": (answered, ("task", "id", "document", "right")),
    }
    if settings["curve"] and texts:
        columns["curve"] = (curve(args, settings["curve"], scorer), ("step", "tokens", "bits_per_byte", "by_source"))
    files = []
    for kind, (written, keys) in columns.items():
        files.append(args.manifest.with_name(f"{name}.{kind}.jsonl"))
        write_atomically(files[-1], json_lines({key: row[key] for key in keys} for row in written))
    left = available - len(texts)
    manifest.counts = {"in": available, "kept": len(texts), "dropped": {"over_max_bytes": left} if left else {}}
    manifest.summary = {
        "bits_per_byte": found.get("bits_per_byte"),
        "loss": found.get("loss"),
        "tokens": found.get("tokens"),
        "by_source": scorer.by_source(found),
        "tasks": numbers,
        "documents": len(texts),
        "bytes": sum(text.bytes for text in texts),
        "set": mark(texts),
        "items": {"number": len(rows), "set": digest(canonical([row["id"] for row in rows]))},
        "context": context,
        "notes": notes,
    }
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "evaluate.common",
        __doc__,
        "--config config.yaml --model results/main/pretrain/train/manifest.json "
        "--corpus results/main/corpus/write/*.manifest.json --items results/main/evaluate/items/manifest.json "
        "--manifest /tmp/common/base.manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of the step that made the model")
    parser.add_argument("--corpus", required=True, type=Path, nargs="+", help="manifests of main's corpus.write")
    parser.add_argument("--items", required=True, type=Path, help="manifest of main's evaluate.items")
    parser.add_argument("--kept", type=Path, default=Path("checkpoints"), help="folder of all runs' checkpoints")
    command_line.placement(parser, "evaluate.common")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
