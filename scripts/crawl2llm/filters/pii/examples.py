"""Examples of the rules of the filter pii."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples
from crawl2llm.filters.pii.kinds import KINDS

EXAMPLES = Examples(
    passes=dict.fromkeys(KINDS, 1),
    drops=[*((kind, {kind: 2}) for kind in KINDS if kind != "phone_number"), ("total_max", {"phone_number": 3})],
    settings={
        "actions": {kind: "drop" for kind in KINDS if kind != "phone_number"},
        "drop_from": 2,
        "total_max": len(KINDS) + 1,
    },
)
