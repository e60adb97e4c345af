"""Drop the documents of which too little is left; those of curated sources and of sources that skip this filter stay.

Rules: `characters_min` (nothing is left), `sentences_min` and `flagged_max`.
"""

from __future__ import annotations

from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.rules import Rule, Rules
from crawl2llm.filters.lines.settings import SelectSettings


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `lines.select`, in the order in which the first that fails gives the reason."""
    return [
        Rule("characters_min", "characters", "<", 1),
        Rule("sentences_min", "sentences", "<", "sentences_min"),
        Rule("flagged_max", "flagged", ">", "flagged_max"),
    ]


main = select.program("lines.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
