"""Drop the documents of which too little is left after the passages that others have too; those of curated sources stay.

Rules: `characters_min` (nothing is left), `words_min` and `removed_max`. Documents that nothing was taken out of stay.
"""

from __future__ import annotations

from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.edit_rules import rules

main = select.program("substrings.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
