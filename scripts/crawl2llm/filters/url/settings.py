"""The settings of the filter url."""

from crawl2llm.core.settings import NonEmpty, Settings, section, setting


class ScoreSettings(Settings):
    """Compares every document's URL with block lists. Every list is text, one entry a line; `#` begins a comment."""

    folders: list[NonEmpty] = setting(
        [],
        "Folders in the layout of the UT1 block lists (Université Toulouse Capitole): one category each, or a "
        "folder of categories, with the files `domains`, `urls` (host and path) and `expressions`.",
        unique=True,
        file=True,
    )
    domains: list[NonEmpty] = setting(
        [],
        "Files of domains, each of which includes its subdomains. A public suffix, such as `uk`, matches that host "
        "alone; `.uk` and `*.uk` match all hosts below it.",
        unique=True,
        file=True,
    )
    suffixes: list[NonEmpty] = setting(
        [], "Files of ends of hosts, such as `xxx` or `blogspot.com`, public suffixes too.", unique=True, file=True
    )
    words: list[NonEmpty] = setting(
        [], "Files of words; a URL is split at characters that are neither letters nor digits.", unique=True, file=True
    )
    expressions: list[NonEmpty] = setting(
        [],
        "Files of regular expressions (RE2), which are searched for in the whole URL without regard to case.",
        unique=True,
        file=True,
    )


class SelectSettings(Settings):
    """Drops what a list names; documents of curated sources stay."""

    words_max: int | None = setting(0, "Most listed words in a URL; null takes no notice of words.", ge=0)


class UrlSettings(Settings):
    """Which documents come from an address that a block list names. Off unless `filters` lists it."""

    score: ScoreSettings = section()
    select: SelectSettings = section()
