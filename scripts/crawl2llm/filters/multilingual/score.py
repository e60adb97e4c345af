"""Find the language of every line of a document, and cut the lines that are in none of the wanted ones.

Writes `spans/<shard>.parquet` (formats/spans.py), which later filters read through and corpus.write applies; nothing is cut where
`cut` is false. Signals: `id, source, curated, languages` (of lines, the most characters first), `foreign` (the share of characters on
lines in languages that are not wanted) and `characters` (left).
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from crawl2llm.core import language_codes
from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import SPANS, Row
from crawl2llm.filters.multilingual.passages import classify_lines, foreign_characters, foreign_spans
from crawl2llm.filters.multilingual.settings import ScoreSettings
from crawl2llm.formats.language_identifier import Identifier, model_path
from crawl2llm.formats.spans import EditedText

SIGNAL = score.signal_schema(languages=pa.list_(pa.string()), foreign=pa.float64(), characters=pa.int64())


def languages_to_keep(languages: list[str], wanted_languages: list[str]) -> list[str]:
    """Of a document's languages, those that are wanted; its own, the first, if none is named."""
    return (
        [name for name in languages if language_codes.is_listed(name, wanted_languages)]
        if wanted_languages
        else languages[:1]
    )


class Passages(score.Measuring[ScoreSettings]):
    """Finds the languages of the lines of a shard's documents. settings: `multilingual.score`."""

    reads_languages = True
    edits = True

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        key = "multilingual.score.model"
        self.identify = Identifier(model_path(settings.model, key), key)
        self.mixed_documents, self.spans_by_language = 0, Counter[str]()

    def measure(self, document: Row) -> Row:
        """The languages of the lines, and what is left without those that are not wanted."""
        settings, text = self.settings, document["text"]
        passages = classify_lines(
            text, self.identify, document["language"], settings.characters_min, settings.threshold
        )
        counts: Counter[str] = Counter()
        for line in passages:
            counts[line.language] += len(text[line.start : line.end].strip())
        languages = sorted(filter(counts.get, counts), key=lambda name: (-counts[name], name))
        kept_languages = languages_to_keep(languages, settings.languages)
        is_cut = settings.cut and not document["untouched"]
        spans = list(foreign_spans(text, passages, kept_languages)) if is_cut else []
        self.spans_by_language.update(span.rule for span in spans)
        self.mixed_documents += len(languages) > 1
        return {
            SPANS: spans,
            "languages": languages,
            "foreign": foreign_characters(text, passages, kept_languages) / max(counts.total(), 1),
            "characters": len(EditedText(text, spans).text.strip()),
        }

    def summary(self) -> Row:
        """Documents in several languages, and places by the language that is cut."""
        return {"mixed": self.mixed_documents, "taken": dict(sorted(self.spans_by_language.items()))}


main = score.program("multilingual.score", __doc__, Passages, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
