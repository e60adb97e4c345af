"""The settings of the filter multilingual."""

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import NonEmpty, Settings, section, setting


class ScoreSettings(Settings):
    """Finds the language of every line, and cuts lines in other languages."""

    model: NonEmpty = setting(
        "bundled:lid.176.ftz",
        "Path of a fastText language model, or `bundled:lid.176.ftz`; its labels have to be those of "
        "language.score.model.",
        file=True,
        pinned=True,
    )
    languages: list[NonEmpty] = setting(
        [], "Languages whose lines stay; if empty, the language of most of a document's characters.", unique=True
    )
    cut: bool = setting(True, "Whether lines in other languages are cut; with false they are measured.")
    characters_min: int = setting(
        60,
        "Fewest characters for a line to have its language identified; a shorter line joins the line before. Measured "
        "in docs/filters/multilingual.md.",
        ge=1,
    )
    threshold: Share = setting(
        0.8,
        "Least probability of a line's language; a line below it joins the line before. Higher than "
        "language.select.threshold, since lines are short.",
    )


class SelectSettings(Settings):
    """Drops mixed documents; documents of curated sources stay."""

    foreign_max: Share | None = setting(
        None, "Largest share of characters on lines in other languages, cut or not; null: any."
    )
    characters_min: int = setting(1, "Fewest characters that are left.", ge=0)


class MultilingualSettings(Settings):
    """Pages in several languages, line by line. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
