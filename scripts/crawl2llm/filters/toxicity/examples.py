"""Examples of the rules of the filter toxicity."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"terms": 5, "words": 100, "hits": 1, "classifiers": ["hate"], "probabilities": [0.4]},
    drops=[
        ("terms", {"terms": 6}),
        ("share", {"hits": 2}),
        ("classifier", {"probabilities": [0.41]}),
    ],
    settings={"terms_max": 5},
)
