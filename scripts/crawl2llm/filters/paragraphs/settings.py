"""The settings of the filter paragraphs."""

from typing import Literal

from crawl2llm.core.setting_types import Seed
from crawl2llm.core.settings import Number, Settings, section, setting
from crawl2llm.filters.edit_settings import SelectSettings


class HashSettings(Settings):
    """Hashes the paragraphs of every document, compared in lower case, digits as 0, without punctuation."""

    by: Literal["line", "paragraph"] = setting(
        "line", "A paragraph is a line, as in CCNet and Dolma, or the lines between two blank lines."
    )
    bytes_min: int = setting(
        50,
        "Fewest bytes of a paragraph that is compared, in UTF-8 and as it is compared: about the 10 words of "
        "FineWeb's experiment (arXiv:2406.17557, section 3.4). 1 compares all, as CCNet does.",
        ge=1,
    )


class RepeatedSettings(Settings):
    """Finds the paragraphs that are repeated, over all shards."""

    method: Literal["exact", "bloom"] = setting(
        "exact",
        "exact: sorts hashes of 64 bits. bloom: a Bloom filter for each part, as in Dolma: less memory and disk, but "
        "it removes unique paragraphs at false_positive_rate.",
    )
    keep: Literal["first", "none"] = setting(
        "first",
        "Keep the first of equal paragraphs, or drop all, as in CCNet's paper. Method bloom needs first.",
    )
    false_positive_rate: Number = setting(
        1e-05,
        "Method bloom: largest share of unique paragraphs removed by mistake; the default takes 24 bits per distinct "
        "paragraph.",
        gt=0,
        lt=1,
    )
    seed: Seed = setting(0, "Of method bloom: seed of the filter's hashes.")


class ScoreSettings(Settings):
    """Takes the repeated paragraphs out, and measures what is left."""


class ParagraphsSettings(Settings):
    """Removes paragraphs that are repeated in the whole corpus, except their first occurrence (CCNet,
    arXiv:1911.00359, section 3.1). Off unless `filters` lists it.
    """

    hash: HashSettings = section()
    repeated: RepeatedSettings = section()
    score: ScoreSettings = section()
    select: SelectSettings = section()
