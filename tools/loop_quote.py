"""Quotes the training loop in docs/architecture.md. A test fails if the quote drifts.

python -m tools.loop_quote
"""

from __future__ import annotations

import ast

from crawl2llm.core.root import ROOT
from tools.reference import between

PAGE = ROOT / "docs" / "architecture.md"
LOOP = ROOT / "scripts" / "crawl2llm" / "training" / "loop.py"
FUNCTION = "take_steps"
BEGIN, END = "<!-- loop: quoted from scripts/crawl2llm/training/loop.py by make docs -->", "<!-- /loop -->"


def loop_text() -> str:
    """The function that takes the steps of a training, as Markdown."""
    text = LOOP.read_text(encoding="utf-8")
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION)
    return f"```python\n{ast.get_source_segment(text, next(functions))}\n```"


def with_quote(page: str) -> str:
    """The page's text with the quote between its two markers replaced."""
    return between(page, BEGIN, loop_text(), END)


def main() -> None:
    """Write the quote."""
    PAGE.write_text(with_quote(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote the loop in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
