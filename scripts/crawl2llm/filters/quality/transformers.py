"""Score every document of a shard with ready sequence classifiers of transformers, such as FineWeb-Edu's, on a GPU or a CPU.

Signals: `id, source, curated` and a column for each model of `quality.transformers.models`: the output of a head with one output (a
regression), the probability of its `label`, or the expected value of its labels where `values` gives each a number; null of a text without
a token. Weights are read from
safetensors alone, no code of a model's own is run, and nothing is fetched.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import command_line
from crawl2llm.core import pinned_names
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import sidecars
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of

WINDOW = 2048  # documents that are put in the order of their lengths together; and of whose texts at most
CHARACTERS = 1 << 25  # are held
DIGITS = 6  # after the point: the last ones depend on the device


def grouped(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Batches of places, the longest texts first, so that little is padded: places times the longest length is at most `most`.

    A text that is longer than that is alone. Every place is in one batch.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda one: (-lengths[one], one)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def weights_of(entry: dict[str, Any], names: dict[int, str], outputs: int) -> list[float] | None:
    """The number that each label's probability counts with; None for a head with one output, whose value is the score.

    names: label by place. Raises InputError where labels or values do not fit the head.
    """
    who = f"quality.transformers.models: {entry['name']}"
    labels = [names.get(place, f"LABEL_{place}") for place in range(outputs)]
    given = entry.get("values") or ({entry["label"]: 1.0} if "label" in entry else None)
    if outputs == 1:
        if given:
            raise command_line.InputError(
                f"{who} has one output, which is the score: leave {'values' if 'values' in entry else 'label'} out"
            )
        return None
    if given is None:
        raise command_line.InputError(
            f"{who} has {outputs} outputs: name one as label, or a number for each as values; they are {', '.join(labels)}"
        )
    if wrong := sorted(set(given) - set(labels)):
        raise command_line.InputError(
            f"{who}: there is no label {', '.join(wrong)}; the model's are {', '.join(labels)}"
        )
    if "values" in entry and (lacking := sorted(set(labels) - set(given))):
        raise command_line.InputError(f"{who}: values has no number for {', '.join(lacking)}")
    return [float(given.get(label, 0.0)) for label in labels]


class Model:
    """A sequence classifier: texts → scores (float64).

    entry: of `quality.transformers.models`; settings: of the step. Raises InputError if the folder holds no such model, or has
    another digest than the one that its path names.
    """

    def __init__(self, entry: dict[str, Any], settings: dict[str, Any], device: str) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        who = f"quality.transformers.models: {entry['name']}"
        path = pinned_names.path_with_its_digest(entry["path"], who)
        local = {"local_files_only": True, "trust_remote_code": False}
        dtype = torch.bfloat16 if settings["precision"] == "bf16" else torch.float32
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, **local)
            model, told = AutoModelForSequenceClassification.from_pretrained(
                path, use_safetensors=True, dtype=dtype, output_loading_info=True, **local
            )
        except (OSError, ValueError, KeyError) as error:
            raise command_line.InputError(f"{who}: {path} cannot be loaded: {str(error).splitlines()[0]}") from error
        if lacking := sorted(told["missing_keys"]):
            raise command_line.InputError(
                f"{who}: {path} has no weights for {', '.join(lacking[:3])}: it is no trained classifier"
            )
        self.model = model.eval().to(device)
        self.most = min(settings["max_tokens"], self._context())
        self.weights = weights_of(entry, dict(model.config.id2label), model.config.num_labels)
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if self.model.config.pad_token_id is None:
            self.model.config.pad_token_id = self.tokenizer.pad_token_id

    def _context(self) -> int:
        """Tokens that the model takes: as its tokenizer says, else as its positions do."""
        said = int(min(self.tokenizer.model_max_length, 1 << 30))
        positions = getattr(self.model.config, "max_position_embeddings", None)
        return min(said, int(positions)) if positions else said

    def __call__(self, texts: Sequence[str], batch_tokens: int) -> np.ndarray:
        """The scores of texts in their order; NaN of a text without a token."""
        import torch

        ids = self.tokenizer(list(texts), truncation=True, max_length=self.most)["input_ids"]
        found = np.full(len(texts), np.nan)
        some = [place for place, one in enumerate(ids) if one]
        for batch in grouped([len(ids[place]) for place in some], batch_tokens):
            places = [some[number] for number in batch]
            given = self.tokenizer.pad({"input_ids": [ids[place] for place in places]}, return_tensors="pt")
            with torch.inference_mode():
                logits = self.model(**given.to(self.model.device)).logits.float()
            scores = logits[:, 0]
            if self.weights is not None:
                scores = logits.softmax(-1) @ torch.tensor(self.weights, device=logits.device)
            found[places] = scores.cpu().numpy()
        return found.round(DIGITS)


def score(value: float) -> float | None:
    """A score as a column has it: None where there is none."""
    return None if np.isnan(value) else float(value)


def windows(rows: Iterator[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    """Documents, WINDOW at a time or as many as CHARACTERS allow, each cut to `limit` characters."""
    held, characters = [], 0
    for row in rows:
        row["text"] = row["text"][:limit]
        held.append(row)
        characters += len(row["text"])
        if len(held) == WINDOW or characters > CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    import torch

    torch.set_num_threads(settings["threads"])
    device = "cuda" if args.device == "auto" and torch.cuda.is_available() else args.device.replace("auto", "cpu")
    models = {entry["name"]: Model(entry, settings, device) for entry in settings["models"]}
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    log.info("%s on %s", ", ".join(models), device)
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    documents = surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"])
    with Writer(out, sidecars.schema(list(models))) as writer:
        for rows in windows(documents, settings["max_characters"]):
            scores = {
                name: model([row["text"] for row in rows], settings["batch_tokens"]) for name, model in models.items()
            }
            for number, row in enumerate(rows):
                own = {name: score(values[number]) for name, values in scores.items()}
                writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **own})
            progress.add(len(rows))
    manifest.counts = {"in": progress.done, "kept": progress.done, "dropped": {}}
    manifest.summary = {"scorers": sidecars.described(settings["models"], "transformers")}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "quality.transformers",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.options(parser)
    command_line.placement(parser, "quality.transformers")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
