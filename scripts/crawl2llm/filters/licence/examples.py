"""Examples of the rules of the filter licence."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"licence": "cc-by-4.0", "said": "rel", "beside": 0},
    drops=[
        ("unknown", {"licence": None, "said": None}),
        ("licence", {"licence": "cc-by-nc-4.0"}),
        ("said", {"said": "link"}),
        ("beside", {"beside": 1}),
    ],
    settings={},
)
