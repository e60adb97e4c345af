"""Examples of the rules of edit_rules.py."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"taken": 1, "removed": 0.5, "words": 50, "characters": 300},
    drops=[
        ("characters_min", {"characters": 0}),
        ("words_min", {"words": 49}),
        ("removed_max", {"removed": 0.51}),
    ],
    settings={"removed_max": 0.5},
)
