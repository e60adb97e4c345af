"""Examples of the rules of the filter substrings: those of every filter that only takes parts out."""

from __future__ import annotations

from crawl2llm.filters.framework.edit_examples import EXAMPLES as EXAMPLES
