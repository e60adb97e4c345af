"""Measure every document that got here under four families of heuristics.

Families: Gopher quality, Gopher repetition, C4, FineWeb (filters/heuristics/measures.py). All are measured on every document, so
that heuristics.select can tell what only one rule drops. Signals: `id`, `source`, `curated` and one column a measure, named
`<family>_<measure>`; null if a measure does not apply. The text itself is never edited.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pyarrow as pa

from crawl2llm.core import language_codes
from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.heuristics.measures import MEASURES, Limits, measure_document
from crawl2llm.filters.heuristics.settings import ScoreSettings
from crawl2llm.text.stop_words import stop_words_by_language

SIGNAL = score.signal_schema(
    **{name: pa.int64() if kind == "count" else pa.float64() for name, kind in MEASURES.items()}
)


class Heuristics(score.Measuring[ScoreSettings]):
    """Measures a shard's documents. settings: `heuristics.score`."""

    reads_languages = True

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.stop_words = stop_words_by_language(settings.stop_words)
        self.limits = Limits(**{field.name: getattr(settings, field.name) for field in fields(Limits)})
        self.characters, self.without_list = 0, Counter[str]()

    def measure(self, document: Row) -> Row:
        """The measures of all families."""
        words = language_codes.lookup_label(self.stop_words, document["language"])
        if words is None:
            self.without_list[document["language"]] += 1
        self.characters += len(document["text"])
        return measure_document(document["text"], words, self.limits)

    def summary(self) -> Row:
        """Characters of all documents, and documents of languages without stop words."""
        return {"characters": self.characters, "without_stop_words": dict(self.without_list)}


main = score.program("heuristics.score", __doc__, Heuristics, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
