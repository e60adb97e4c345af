"""The settings of the filter lines."""

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import Settings, section, setting


class ScoreSettings(Settings):
    """Finds the lines to remove, and measures the remaining text. The rules are C4's (Raffel et al. 2020, section 2.2), with the
    numbers of datatrove's C4QualityFilter; terminal punctuation is off.
    """

    terminal_punctuation: bool = setting(
        False,
        "Remove lines that do not end in a full stop, a question or exclamation mark, or a closing quotation mark.",
    )
    words_min: int = setting(
        3, "Fewest words of a line, 3 as in datatrove (C4's code: 5); 0 keeps short lines.", ge=0, le=1000
    )
    word_length_max: int = setting(1000, "Longest word of a line in characters.", ge=1)
    javascript: bool = setting(True, "Take out lines with the word Javascript.")
    policy: bool = setting(True, "Take out lines on terms of use, privacy and cookies.")
    citations: bool = setting(True, "Take out marks of citations, such as [1] and [citation needed].")
    uppercase_max: Share | None = setting(
        None,
        "Take out lines of whose letters a larger share is upper case; null keeps them. RefinedWeb's lines that "
        "are mainly upper case (arXiv:2306.01116, appendix G.2) are 0.5.",
        unless_default=True,
    )
    numerals: bool = setting(
        False,
        "Take out lines of numbers only, as RefinedWeb.",
        source="arXiv:2306.01116, appendix G.2",
        unless_default=True,
    )
    counters: bool = setting(
        False,
        "Take out lines that are counters, such as 3 likes, as RefinedWeb.",
        source="arXiv:2306.01116, appendix G.2",
        unless_default=True,
    )
    navigation: bool = setting(
        False,
        "Cut words for navigation from lines of at most 10 words: at their beginning (sign-in), at their end "
        "(Read more...) or anywhere (items in cart), as RefinedWeb.",
        source="arXiv:2306.01116, appendix G.2",
        unless_default=True,
    )


class SelectSettings(Settings):
    """Drops documents of which too little is left; documents of curated sources stay."""

    sentences_min: int = setting(
        3,
        "Fewest sentences that remain, 3 as in C4's code (tensorflow_datasets, text/c4_utils.py); "
        "datatrove's 5 drops a tenth of good Chinese pages.",
        ge=0,
        le=1000,
    )
    flagged_max: Share | None = setting(
        None,
        "Largest share of a document's words on removed or cut lines; null: no limit. RefinedWeb: 0.05.",
        source="arXiv:2306.01116, appendix G.2",
        unless_default=True,
    )


class LinesSettings(Settings):
    """Lines that are no text, taken out of documents as C4 does. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
