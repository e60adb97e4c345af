"""What other models say of every document's language, whether they agree, and whether its script fits.

Signals: `id`, `labels` and `scores` (of each model of `models`, in their order), `agreement` (the share of all models, that of
language.score among them, that find its language; languages are compared under one code), `script` (of most characters, ISO 15924)
and `script_share` (of characters in a script of the language). Null: there is nothing to compare. A model takes as long as
language.score.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from crawl2llm.core import language_codes
from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.language.settings import CompareSettings
from crawl2llm.formats.language_identifier import Identifier, model_path
from crawl2llm.text import unicode_scripts

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("agreement", pa.float64()),
        ("script", pa.string()),
        ("script_share", pa.float64()),
    ]
)


def agreement_share(first: str, other_labels: list[str]) -> float | None:
    """The share of models that find the language of the first; None if there is no other, or the first found none."""
    code = language_codes.language_code(first)
    if not other_labels or code == "und":
        return None
    return (1 + sum(language_codes.language_code(label) == code for label in other_labels)) / (1 + len(other_labels))


def language_signals(text: str, first: str, models: list[Identifier], script: bool) -> Row:
    """The signals of a text, which language.score found to be `first`."""
    label_scores = [model(text) for model in models]
    labels = [label for label, _ in label_scores]
    counts = unicode_scripts.letters_by_script(text) if script else {}
    return {
        "labels": labels,
        "scores": [score for _, score in label_scores],
        "agreement": agreement_share(first, labels),
        "script": unicode_scripts.majority_script(counts),
        "script_share": unicode_scripts.script_share(counts, unicode_scripts.scripts_of_language(first))
        if script
        else None,
    }


class Comparison(score.Measuring[CompareSettings]):
    """Compares what models say of a shard's documents. settings: `language.compare`."""

    reads_languages = True

    def __init__(self, settings: CompareSettings) -> None:
        super().__init__(settings)
        key = "language.compare.models"
        self.models = [Identifier(model_path(name, key), key) for name in settings.models]
        self.agreement_counts, self.script_counts = Counter[str](), Counter[str]()

    def measure(self, document: Row) -> Row:
        """The labels of all models, and whether they and the script agree."""
        signals = language_signals(document["text"], document["language"], self.models, self.settings.script)
        self.agreement_counts["none" if signals["agreement"] is None else f"{signals['agreement']:.2f}"] += 1
        self.script_counts[signals["script"] or "none"] += 1
        return signals

    def summary(self) -> Row:
        """Documents by agreement, and by script."""
        return {"agreement": dict(self.agreement_counts), "scripts": dict(self.script_counts)}


main = score.program("language.compare", __doc__, Comparison, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
