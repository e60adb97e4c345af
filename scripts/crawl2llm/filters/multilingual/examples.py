"""Examples of the rules of the filter multilingual."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"characters": 100, "foreign": 0.5},
    drops=[("characters_min", {"characters": 99}), ("foreign_max", {"foreign": 0.51})],
    settings={"characters_min": 100, "foreign_max": 0.5},
)
