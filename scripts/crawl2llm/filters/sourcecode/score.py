"""Measure the documents that are code: line lengths, letters, encoded data, what their head says.

Signals: `id, source, curated, extension` (null: the document is no code, and all that follows is null), `data` (a language of long
lines) and the measures of filters/sourcecode/measures.py. A document is code where its source is one of `sources`, or its path ends in one
of `extensions`.
"""

from __future__ import annotations

import json

import pyarrow as pa

from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.sourcecode.measures import COUNTS, DATA_EXTENSIONS, SHARES, TEXTS, file_extension, measure_file
from crawl2llm.filters.sourcecode.settings import ScoreSettings

PATHS = ("path", "max_stars_repo_path", "file_path", "filename")  # of what a row says beside its text
SIGNAL = score.signal_schema(
    extension=pa.string(),
    data=pa.bool_(),
    **dict.fromkeys(COUNTS, pa.int64()),
    **dict.fromkeys(SHARES, pa.float64()),
    **dict.fromkeys(TEXTS, pa.string()),
)


def path_of(row: Row) -> str:
    """Where a document's file lies, as its metadata or its URL says."""
    metadata = json.loads(row["metadata"] or "{}")
    fields = {name.rpartition(".")[2]: value for name, value in metadata.get("fields", {}).items()}
    path = next((fields[name] for name in PATHS if isinstance(fields.get(name), str)), "")
    return str(path or row["url"] or "")


class Files(score.Measuring[ScoreSettings]):
    """Measures the source files among a shard's documents. settings: `sourcecode.score`."""

    columns = ("url", "metadata")

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.sources, self.extensions = frozenset(settings.sources), frozenset(settings.extensions)
        self.by_extension: dict[str, dict[str, int]] = {}

    def measure(self, document: Row) -> Row:
        """The measures of a source file; of another document none."""
        ending = file_extension(path_of(document)) if self.sources or self.extensions else ""
        if document["source"] not in self.sources and ending not in self.extensions:
            return {}
        counts = self.by_extension.setdefault(ending, {"documents": 0, "bytes": 0})
        counts["documents"] += 1
        counts["bytes"] += len(document["text"].encode())
        return {"extension": ending, "data": ending in DATA_EXTENSIONS, **measure_file(document["text"])}

    def summary(self) -> Row:
        """Source files and their bytes by extension."""
        notes = []
        if not self.sources and not self.extensions:
            notes.append("sourcecode.score names neither sources nor extensions: no document counts as code.")
        return {"by_extension": dict(sorted(self.by_extension.items())), "notes": notes}


main = score.program("sourcecode.score", __doc__, Files, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
