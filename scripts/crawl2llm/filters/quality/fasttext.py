"""Score every document of a shard with ready fastText classifiers, such as DCLM's or n-gram classifiers of educational value.

Signals: `id, source, curated` and a column for each model of `quality.fasttext.models`: the probability of its `label`, or the
expected value of its labels where `values` gives each a number. Null where fastText knows no word of a document.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.settings import FasttextSettings, ScorerModel
from crawl2llm.formats import fasttext_models, surviving_texts
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.fasttext_models import PREFIX


def one_line(text: str) -> str:
    """Text as DCLM gives it to its classifier: on one line, its case as it is (mlfoundations/dclm, classify_fasttext_hq_prob)."""
    return " ".join(text.strip().splitlines())


class Model:
    """A fastText classifier: text on one line → score, or None for one without a known word.

    entry: of `quality.fasttext.models`. Raises InputError if the file is no such model, and where it has no such label.
    """

    def __init__(self, entry: ScorerModel) -> None:
        setting = f"quality.fasttext.models: {entry.name}"
        self.model = fasttext_models.load(entry.path, setting)
        model_labels = self.model.labels
        # A label may be named with its prefix or without.
        numbers = entry.values or {entry.label or "": 1.0}
        self.value_by_label = {
            name if name in model_labels else PREFIX + name: float(number) for name, number in numbers.items()
        }
        unknown_labels = sorted(set(self.value_by_label) - set(model_labels))
        missing_labels = sorted(set(model_labels) - set(self.value_by_label)) if entry.values else []
        if unknown_labels or missing_labels or not model_labels:
            key = "values" if entry.values else "label"
            names = unknown_labels or missing_labels
            raise command_line.InputError(
                f"{setting}: {key} {'names' if unknown_labels else 'lacks'} {', '.join(names)}; the model's labels are "
                f"{', '.join(model_labels) or 'none'}"
            )

    def __call__(self, line: str) -> float | None:
        """The probability of the label, or the sum of probability times value over all labels."""
        predictions = self.model.f.predict(line.replace("\n", " ") + "\n", -1, 0.0, "strict")
        if not predictions:
            return None
        return float(sum(min(float(share), 1.0) * self.value_by_label.get(label, 0.0) for share, label in predictions))


def body(args: argparse.Namespace, settings: FasttextSettings, manifest: Manifest) -> list[Path]:
    entries, limit = settings.models, settings.max_characters
    models = {entry.name: Model(entry) for entry in entries}
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    with Writer(out, sidecars.sidecar_schema(list(models))) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"]):
            line = one_line(row["text"][:limit])
            scores = {name: model(line) for name, model in models.items()}
            writer.add({**{key: row[key] for key in ("id", "source", "curated")}, **scores})
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"scorers": sidecars.describe_scorers(sidecars.better_scores(entries), "fasttext")}
    return [out]


main = Program("quality.fasttext", __doc__, FasttextSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
