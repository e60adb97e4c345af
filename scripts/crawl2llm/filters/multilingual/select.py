"""Drop the documents that are too much in other languages, or of which nothing is left; those of curated sources and of sources that
skip this filter stay.

Rules: `characters_min` (fewer are left) and `foreign_max`.
"""

from __future__ import annotations

from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.rules import Rule, Rules
from crawl2llm.filters.multilingual.settings import SelectSettings


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `multilingual.select`, in the order in which the first that fails gives the reason."""
    return [
        Rule("characters_min", "characters", "<", "characters_min"),
        Rule("foreign_max", "foreign", ">", "foreign_max"),
    ]


main = select.program("multilingual.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
