"""The rules of every filter that only takes parts out: whether what is left of a document is too little."""

from __future__ import annotations

from crawl2llm.filters.edit_settings import SelectSettings
from crawl2llm.filters.framework.columns import Columns, Truths
from crawl2llm.filters.framework.rules import Rule, Rules


def is_edited(columns: Columns) -> Truths:
    """From which documents something was taken."""
    return columns.values("taken") > 0


def rules(settings: SelectSettings) -> Rules:
    """`characters_min` (nothing is left), `words_min` and `removed_max`.

    A document that nothing was taken out of stays, however short it is: others judge that.
    """
    return [
        Rule("characters_min", "characters", "<", 1, when=is_edited),
        Rule("words_min", "words", "<", "words_min", when=is_edited),
        Rule("removed_max", "removed", ">", "removed_max"),
    ]
