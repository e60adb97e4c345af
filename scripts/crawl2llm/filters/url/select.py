"""Drop the documents whose URL is on a block list, but those of curated sources and of sources that skip this filter.

Rules: `domain`, `address` and `expression` (no number is compared, `detail` names the entry) and `words` (more listed words than
`words_max`). Such a document stays in any case; its verdict still lists the rules that it fails.
"""

from __future__ import annotations

from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.rules import Match, Rule, Rules
from crawl2llm.filters.url.settings import SelectSettings


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `url.select`, in the order in which the first that fails gives the reason."""
    return [
        Match("domain", "domain"),
        Match("address", "address"),
        Match("expression", "expression"),
        Rule("words", "words", ">", "words_max"),
    ]


main = select.program("url.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
