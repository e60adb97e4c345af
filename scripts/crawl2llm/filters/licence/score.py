"""Read the licence that each document is under, as far as its page, its metadata or its source say.

Signals: `id, source, curated, licence` (a name such as cc-by-sa-4.0; null: none is known), `said` (how: `rel`, `meta`, `json_ld` or
`link` of a page, `metadata` of a row, `source`), `beside` (other licences that it names as well). Texts are not read.
"""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa

from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.licence import names
from crawl2llm.filters.licence.settings import ScoreSettings

SIGNAL = score.signal_schema(licence=pa.string(), said=pa.string(), beside=pa.int64())


class Licences(score.Measuring[ScoreSettings]):
    """Reads the licences of a shard's documents. settings: `licence.score`."""

    columns = ("metadata",)
    reads_texts = False

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.counts = Counter[str]()

    def measure(self, document: Row) -> Row:
        """The licence of a document, of its source if the document names none."""
        licence, evidence, others_named = names.licence_of(json.loads(document["metadata"] or "{}"))
        if licence is None and (of_source := self.settings.sources.get(document["source"])):
            licence, evidence = names.normal_name(of_source), "source"
        self.counts[licence or ""] += 1
        return {"licence": licence, "said": evidence, "beside": others_named}

    def summary(self) -> Row:
        """Documents by licence."""
        return {
            "licences": {name: self.counts[name] for name in sorted(self.counts) if name},
            "unknown": self.counts[""],
        }


main = score.program("licence.score", __doc__, Licences, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
