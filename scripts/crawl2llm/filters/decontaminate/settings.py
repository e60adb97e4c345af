"""The settings of the filter decontaminate."""

from typing import Literal

from crawl2llm.core.setting_types import PublicTask, Share
from crawl2llm.core.settings import NonEmpty, Settings, optional, section, setting


class IndexFile(Settings):
    """A file of items that no text may hold."""

    path: NonEmpty = setting()
    name: str | None = optional(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$", form="letters, digits, _, . and -")
    question: list[NonEmpty] | None = optional(min_length=1)
    answer: NonEmpty | None = optional()


class IndexSettings(Settings):
    """Collects the items to search for."""

    tasks: list[PublicTask] | None = setting(
        None,
        "Public tasks to search for; null: `evaluate.public.presets`. With a list, adding tasks to evaluate later "
        "trains nothing again. []: no tasks.",
        unique=True,
    )
    data: list[NonEmpty] | None = setting(
        None,
        "Data of the tasks; null: `evaluate.public.data`. A list fixes them, as `tasks` does.",
        unique=True,
        file=True,
    )
    files: list[IndexFile] = setting(
        [],
        "Local evaluation sets: JSON Lines, of which `question` lists the columns of a question ([text]) and "
        "`answer` names that of its answer, or .txt with an item a line; bare, .gz or .zst. `name` of the set: "
        "by default that of the file.",
        file=True,
    )
    method: Literal["ngram", "idf"] = setting(
        "ngram",
        "`ngram`: the share of a question's words in stretches of words that the document has too (GPT-3, "
        "arXiv:2005.14165, appendix C). `idf`: stretches weighted by how rare they are, and the answer near "
        "them (Dolma 3's decon: github.com/allenai/decon, doc/simple-details.md), which finds edited items too.",
    )
    words: int | None = setting(
        None,
        "Words of a stretch; null: 13 for `ngram` (GPT-3), 5 for `idf`.",
        source="ngram_size of decon's config/default.yaml, tokens there",
        ge=3,
        le=50,
    )
    short_words: int = setting(
        8,
        "A question with fewer words is searched for with its answer; if both together have fewer, it is skipped.",
        source="8 is GPT-3's smallest n",
        ge=3,
        le=50,
    )


class ScoreSettings(Settings):
    """Searches every document for the items."""


class SelectSettings(Settings):
    """Drops documents with an item in them, or cuts the item out."""

    action: Literal["drop", "cut"] = setting(
        "drop", "`drop` removes the document; `cut` removes the item, with its answer if that follows."
    )
    overlap_max: Share | None = setting(
        None,
        "An item with a higher overlap is a match; null: 0.5 for `ngram`, 0.8 for `idf` (decon's "
        "config/default.yaml). 0 with `ngram`: any stretch, as GPT-3.",
    )
    cut_max: Share = setting(
        0.5,
        "With `cut`, the largest share of a document's characters to cut; a document with more is dropped.",
    )


class DecontaminateSettings(Settings):
    """Removes text of evaluation sets from documents. Has no steps if neither public tasks nor files are named."""

    index: IndexSettings = section()
    score: ScoreSettings = section()
    select: SelectSettings = section()
