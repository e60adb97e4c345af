"""Examples of the rules of the filter paragraphs: those of every filter that only takes parts out."""

from __future__ import annotations

from crawl2llm.filters.framework.edit_examples import EXAMPLES as EXAMPLES
