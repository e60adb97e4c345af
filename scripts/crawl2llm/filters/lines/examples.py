"""Examples of the rules of the filter lines."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"characters": 400, "sentences": 5, "flagged": 0.05},
    drops=[
        ("characters_min", {"characters": 0}),
        ("sentences_min", {"sentences": 4}),
        ("flagged_max", {"flagged": 0.06}),
    ],
    settings={"sentences_min": 5, "flagged_max": 0.05},
)
