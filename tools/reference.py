"""Writes docs/config.md, the page of all keys, from the settings. A test fails when the page drifts.

python -m tools.reference
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from crawl2llm.chain.config_schema import allowed_values, is_section, schema
from crawl2llm.core.root import ROOT

PAGE = ROOT / "docs" / "config.md"
HEAD = """# Configuration: every key

Generated from each stage's and filter's `settings.py` by `make docs`. A key that is not set has its default. An unknown key, a wrong type
or a value out of range is refused with the key's path, what is allowed and the nearest known key.

An editor with a YAML language server completes and checks a config by `schemas/config.schema.json`: its first line is
`# yaml-language-server: $schema=PATH/schemas/config.schema.json`.

**Placement** keys say how a step runs, not what it writes: a change of one reruns nothing.
"""


def section_lines(node: dict, path: str) -> Iterator[str]:
    """The lines of a section: its leaves as a table, then its sub-sections."""
    leaves = {key: child for key, child in node["properties"].items() if not is_section(child)}
    if leaves:
        yield "\n| key | allowed | default | meaning |\n|---|---|---|---|"
        yield from (line for key, child in leaves.items() for line in key_lines(child, f"{path}{key}"))
    for key, child in node["properties"].items():
        if is_section(child):
            depth = "#" * (2 + path.count("."))
            yield f"\n{depth} {path}{key}\n\n{' '.join(child.get('description', '').split())}"
            yield from section_lines(child, f"{path}{key}.")


def key_lines(node: dict, path: str) -> Iterator[str]:
    """The line of a key, and of a list of objects those of their keys that say what they mean."""
    default = json.dumps(node["default"], ensure_ascii=False) if "default" in node else "–"
    meaning = " ".join(node.get("description", "").split())
    if node.get("placement") and "[]" not in path:  # what files the keys of an entry lead to is tracked
        meaning += " *Placement.*"
    cells = (f"`{path}`", allowed_values(node), f"`{default}`", meaning)
    yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    for key, child in node.get("items", {}).get("properties", {}).items():
        if "description" in child:
            yield from key_lines(child, f"{path}[].{key}")


def config_page() -> str:
    """The whole page."""
    return HEAD + "\n".join(section_lines(schema(), "")) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(config_page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
