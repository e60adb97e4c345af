"""Count the listed words of every document, and ask classifiers for its probability of being toxic or adult.

Signals: `id, source, curated`, `words`, `hits` (of listed words and phrases), `terms` (different ones), `classifiers` (names) and
`probabilities` (of each one's label, in their order). A document of a language without a list is compared with those of `always` alone.
"""

from __future__ import annotations

import pyarrow as pa

from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.toxicity.classifiers import Classifier
from crawl2llm.filters.toxicity.settings import ScoreSettings
from crawl2llm.filters.toxicity.terms import Lists

SIGNAL = score.signal_schema(
    words=pa.int64(),
    hits=pa.int64(),
    terms=pa.int64(),
    classifiers=pa.list_(pa.string()),
    probabilities=pa.list_(pa.float64()),
)


class Toxicity(score.Measuring[ScoreSettings]):
    """Compares a shard's documents with lists, and asks classifiers. settings: `toxicity.score`."""

    reads_languages = True

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.lists = Lists(settings.lists, settings.always, settings.ignored)
        self.classifiers = [Classifier(number, entry) for number, entry in enumerate(settings.classifiers)]

    def measure(self, document: Row) -> Row:
        """Hits of listed words, and the probability of each classifier's label."""
        words, hits = self.lists(document["text"], document["language"])
        return {
            "words": words,
            "hits": hits.total(),
            "terms": len(hits),
            "classifiers": [classifier.name for classifier in self.classifiers],
            "probabilities": [classifier(document["text"]) for classifier in self.classifiers],
        }

    def summary(self) -> Row:
        """Documents of languages without a list."""
        notes = []
        if not self.settings.lists and not self.classifiers:
            notes.append("toxicity.score names neither lists nor classifiers: nothing was compared.")
        without_list = sorted((+self.lists.documents_without_list).items()) if self.settings.lists else []
        return {"without_list": dict(without_list), "notes": notes}


main = score.program("toxicity.score", __doc__, Toxicity, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
