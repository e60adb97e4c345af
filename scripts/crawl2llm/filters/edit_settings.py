"""The settings of `select` of every filter that only takes passages out of texts."""

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import Settings, setting


class SelectSettings(Settings):
    """Drops documents of which too little is left; documents of curated sources, and those that nothing was taken out of,
    stay.
    """

    words_min: int = setting(
        50,
        "Fewest words that are left, 50 as in datatrove.",
        source="min_doc_words in pipeline/dedup/exact_substrings.py and sentence_dedup.py",
        ge=0,
    )
    removed_max: Share | None = setting(
        None,
        "Largest share of characters that may be removed; null: no limit. RefinedWeb drops a document if its line "
        "rules flag over 0.05 of its words.",
        source="arXiv:2306.01116, appendix G.2",
    )
