"""Examples of the rules of the filter url."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"words": 2},
    drops=[
        ("domain", {"domain": "bad.example"}),
        ("address", {"address": "bad.example/a"}),
        ("expression", {"expression": "bad"}),
        ("words", {"words": 3}),
    ],
    settings={"words_max": 2},
)
