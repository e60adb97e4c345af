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
from crawl2llm.chain.step_program import Program
from crawl2llm.core import pinned_names
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.settings import ScorerModel, TransformersSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of

WINDOW = 2048  # documents that are put in the order of their lengths together; and of whose texts at most
CHARACTERS = 1 << 25  # are held
DIGITS = 6  # after the point: the last ones depend on the device


def length_batches(lengths: Sequence[int], token_limit: int) -> Iterator[list[int]]:
    """Batches of places, the longest texts first, so that little is padded: places times the longest length is at most `token_limit`.

    A text that is longer than that is alone. Every place is in one batch.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > token_limit:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def label_weights(entry: ScorerModel, names: dict[int, str], outputs: int) -> list[float] | None:
    """The number that each label's probability counts with; None for a head with one output, whose value is the score.

    names: label by place. Raises InputError if labels or values do not fit the head.
    """
    setting = f"quality.transformers.models: {entry.name}"
    labels = [names.get(place, f"LABEL_{place}") for place in range(outputs)]
    label_values = entry.values or ({entry.label: 1.0} if entry.label else None)
    if outputs == 1:
        if label_values:
            raise command_line.InputError(
                f"{setting} has one output, which is the score: omit {'values' if entry.values else 'label'}"
            )
        return None
    if label_values is None:
        raise command_line.InputError(
            f"{setting} has {outputs} outputs: name one as label, or a number for each as values; they are {', '.join(labels)}"
        )
    if unknown_labels := sorted(set(label_values) - set(labels)):
        raise command_line.InputError(
            f"{setting}: there is no label {', '.join(unknown_labels)}; the model's are {', '.join(labels)}"
        )
    if entry.values and (missing_labels := sorted(set(labels) - set(label_values))):
        raise command_line.InputError(f"{setting}: values has no number for {', '.join(missing_labels)}")
    return [float(label_values.get(label, 0.0)) for label in labels]


class Model:
    """A sequence classifier: texts → scores (float64).

    entry: of `quality.transformers.models`; settings: of the step. Raises InputError if the folder holds no such model, or has
    another digest than the one that its path names.
    """

    def __init__(self, entry: ScorerModel, settings: TransformersSettings, device: str) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        setting = f"quality.transformers.models: {entry.name}"
        path = pinned_names.verified_path(entry.path, setting)
        local = {"local_files_only": True, "trust_remote_code": False}
        dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, **local)
            model, loading_info = AutoModelForSequenceClassification.from_pretrained(
                path, use_safetensors=True, dtype=dtype, output_loading_info=True, **local
            )
        except (OSError, ValueError, KeyError) as error:
            raise command_line.InputError(
                f"{setting}: {path} cannot be loaded: {str(error).splitlines()[0]}"
            ) from error
        if missing_weights := sorted(loading_info["missing_keys"]):
            raise command_line.InputError(
                f"{setting}: {path} has no weights for {', '.join(missing_weights[:3])}: it is no trained classifier"
            )
        self.model = model.eval().to(device)
        self.max_tokens = min(settings.max_tokens, self._context_length())
        self.weights = label_weights(entry, dict(model.config.id2label), model.config.num_labels)
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if self.model.config.pad_token_id is None:
            self.model.config.pad_token_id = self.tokenizer.pad_token_id

    def _context_length(self) -> int:
        """Tokens that the model takes: as its tokenizer says, else as its positions do."""
        tokenizer_limit = int(min(self.tokenizer.model_max_length, 1 << 30))
        positions = getattr(self.model.config, "max_position_embeddings", None)
        return min(tokenizer_limit, int(positions)) if positions else tokenizer_limit

    def __call__(self, texts: Sequence[str], batch_tokens: int) -> np.ndarray:
        """The scores of texts in their order; NaN of a text without a token."""
        import torch

        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)["input_ids"]
        text_scores = np.full(len(texts), np.nan)
        nonempty = [place for place, token_ids in enumerate(ids) if token_ids]
        for batch in length_batches([len(ids[place]) for place in nonempty], batch_tokens):
            places = [nonempty[number] for number in batch]
            inputs = self.tokenizer.pad({"input_ids": [ids[place] for place in places]}, return_tensors="pt")
            with torch.inference_mode():
                logits = self.model(**inputs.to(self.model.device)).logits.float()
            scores = logits[:, 0]
            if self.weights is not None:
                scores = logits.softmax(-1) @ torch.tensor(self.weights, device=logits.device)
            text_scores[places] = scores.cpu().numpy()
        return text_scores.round(DIGITS)


def score_or_none(value: float) -> float | None:
    """A score as a column has it: None if there is none."""
    return None if np.isnan(value) else float(value)


def document_windows(rows: Iterator[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    """Documents, WINDOW at a time or as many as CHARACTERS allow, each cut to `limit` characters."""
    window, characters = [], 0
    for row in rows:
        row["text"] = row["text"][:limit]
        window.append(row)
        characters += len(row["text"])
        if len(window) == WINDOW or characters > CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def body(args: argparse.Namespace, settings: TransformersSettings, manifest: Manifest) -> list[Path]:
    import torch

    torch.set_num_threads(settings.threads)
    device = (
        "cuda" if settings.device == "auto" and torch.cuda.is_available() else settings.device.replace("auto", "cpu")
    )
    models = {entry.name: Model(entry, settings, device) for entry in settings.models}
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    log.info("%s on %s", ", ".join(models), device)
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    documents = surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"])
    with Writer(out, sidecars.sidecar_schema(list(models))) as writer:
        for rows in document_windows(documents, settings.max_characters):
            scores = {
                name: model([row["text"] for row in rows], settings.batch_tokens) for name, model in models.items()
            }
            for number, row in enumerate(rows):
                row_scores = {name: score_or_none(values[number]) for name, values in scores.items()}
                writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **row_scores})
            progress.add(len(rows))
    manifest.count_all_kept(progress.done)
    manifest.summary = {"scorers": sidecars.describe_scorers(sidecars.better_scores(settings.models), "transformers")}
    return [out]


main = Program("quality.transformers", __doc__, TransformersSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
