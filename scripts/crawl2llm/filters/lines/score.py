"""Find the lines of every document that the rules of C4 and RefinedWeb take out, and count what is left.

Writes `spans/<shard>.parquet` (formats/spans.py), which later filters read through and corpus.write applies. Signals: `id,
source, curated, lines` (taken out), `sentences` and `characters` (left), `flagged` (share of the words that are on lines that were taken
out or cut).
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import SPANS, Row
from crawl2llm.filters.lines import rules
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.formats.spans import EditedText

SIGNAL = score.signal_schema(lines=pa.int64(), sentences=pa.int64(), characters=pa.int64(), flagged=pa.float64())


class Lines(score.Measuring[ScoreSettings]):
    """Takes lines out of a shard's documents. settings: `lines.score`."""

    edits = True

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.spans_by_rule = Counter[str]()

    def measure(self, document: Row) -> Row:
        """The removed spans, and measures of the remaining text."""
        text = document["text"]
        spans = [] if document["untouched"] else list(rules.removed_spans(text, self.settings))
        self.spans_by_rule.update(span.rule for span in spans)
        left = EditedText(text, spans).text
        return {
            SPANS: spans,
            "lines": sum(span.rule not in rules.RULES_INSIDE_LINES for span in spans),
            "sentences": rules.count_sentences(left),
            "characters": len(left.strip()),
            "flagged": rules.flagged_share(text, spans),
        }

    def summary(self) -> Row:
        """Places by the rule that takes them out."""
        return {"taken": dict(self.spans_by_rule)}


main = score.program("lines.score", __doc__, Lines, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
