"""Examples of the rules of the filter sourcecode."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples

EXAMPLES = Examples(
    passes={"extension": "py", "data": False, "longest_line": 1000},
    drops=[
        ("lines_max", {"lines": 100_001}),
        ("longest_line_max", {"longest_line": 1001}),
        ("longest_line_max", {"extension": "json", "data": True, "longest_line": 100_001}),
        ("mean_line_max", {"mean_line": 101.0}),
        ("alphanumeric_min", {"alphanumeric": 0.24}),
        ("alphabetic_min", {"alphabetic": 0.24}),
        ("encoded_run_max", {"encoded_run": 1025}),
        ("encoded_share_max", {"encoded_share": 0.51}),
        ("generated", {"generated": "do not edit"}),
        ("licence", {"spdx": "GPL-3.0-only"}),
    ],
    settings={"licences": ["MIT"]},
)
