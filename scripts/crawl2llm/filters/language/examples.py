"""Examples of the rules of the filter language."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"language": "en", "score": 0.9, "agreement": 1.0, "script_share": 1.0},
    drops=[
        ("language", {"language": "de"}),
        ("score", {"score": 0.64}),
        ("agreement_min", {"agreement": 0.4}),
        ("script_min", {"script_share": 0.4}),
    ],
    settings={"agreement_min": 0.5, "script_min": 0.5},
)
