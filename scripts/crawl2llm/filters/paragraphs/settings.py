"""The settings of the filter paragraphs."""

from typing import Literal

from crawl2llm.core.setting_types import Seed
from crawl2llm.core.settings import Number, Settings, section, setting
from crawl2llm.filters.edit_settings import SelectSettings


class HashSettings(Settings):
    """Hashes the paragraphs of every document, compared in lower case, digits as 0, without punctuation."""

    by: Literal["line", "paragraph"] = setting(
        "line", "What a paragraph is: a line, as in CCNet and Dolma, or the lines between two blank ones."
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
        "exact: sorts hashes of 64 bits. bloom: a Bloom filter for each part, as in Dolma: less memory and "
        "disk; paragraphs that were never seen go at false_positive_rate.",
    )
    keep: Literal["first", "none"] = setting(
        "first",
        "Whether the first of equal paragraphs stays, or none of them, as in CCNet's paper. Method bloom needs first.",
    )
    false_positive_rate: Number = setting(
        1e-05,
        "Of method bloom: most of the paragraphs that are not repeated and go all the same, as a share; ours, "
        "24 bits for each different paragraph.",
        gt=0,
        lt=1,
    )
    seed: Seed = setting(0, "Of method bloom: seed of the filter's hashes.")


class ScoreSettings(Settings):
    """Takes the repeated paragraphs out, and measures what is left."""


class ParagraphsSettings(Settings):
    """Paragraphs that are there twice or more in the whole corpus, taken out but where the first of each stands (CCNet,
    arXiv:1911.00359, section 3.1). Off unless `filters` lists it.
    """

    hash: HashSettings = section()
    repeated: RepeatedSettings = section()
    score: ScoreSettings = section()
    select: SelectSettings = section()
