"""Find keys of the config: `crawl2llm keys WORD` shows the keys whose path has the word, or else those whose meaning has it.

With a section (`crawl2llm keys dedup.signature`) it lists that section; without a word, the sections. The pages of docs/ have the same
tables, each at the end of the page of its stage or filter.
"""

from __future__ import annotations

import difflib
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crawl2llm.chain.command_line import command_parser, print_error, report_errors
from crawl2llm.chain.config_schema import allowed_values, is_section, schema
from crawl2llm.chain.stage_names import ALL_NAMES, package_of
from crawl2llm.core.console import print_line

EXAMPLE = "threshold"
PAGES = {"sweep": "docs/sweep.md"}  # of sections that are no stage or filter
GENERAL_PAGE = "docs/settings.md"  # of the keys that belong to no section


@dataclass(frozen=True)
class Key:
    """A key of the config. path: dotted; `[]` after a list, of whose objects it is a key."""

    path: str
    allowed: str
    default: str
    meaning: str
    placement: bool

    @property
    def section(self) -> str:
        """The dotted path of the section that holds the key; empty for a key of the top level."""
        names = self.path.split("[]")[0].split(".")
        return ".".join(names[:-1])

    @property
    def page(self) -> str:
        """The page with the key's table, from the project's folder."""
        first = self.section.split(".")[0]
        if first in ALL_NAMES:
            return f"docs/{package_of(first)}/{first}.md"
        return PAGES.get(first, GENERAL_PAGE)


def leaf_keys(node: dict[str, Any], path: str) -> Iterator[Key]:
    """The key at a leaf of the schema; for a list of objects also those of their keys that have a meaning."""
    yield Key(
        path=path,
        allowed=allowed_values(node),
        default=json.dumps(node["default"], ensure_ascii=False) if "default" in node else "–",
        meaning=" ".join(node.get("description", "").split()),
        # The files that the keys of an entry name are tracked.
        placement=bool(node.get("placement")) and "[]" not in path,
    )
    for name, child in node.get("items", {}).get("properties", {}).items():
        if "description" in child:
            yield from leaf_keys(child, f"{path}[].{name}")


def section_keys(node: dict[str, Any], path: str = "") -> Iterator[Key]:
    """The keys of a section, without those of its sub-sections. Without a path, the keys of the top level."""
    for name, child in node["properties"].items():
        if not is_section(child):
            yield from leaf_keys(child, f"{path}.{name}" if path else name)


def all_sections(node: dict[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(dotted path, schema node) of every section, each before its sub-sections, in the order of the config."""
    for name, child in (node or schema())["properties"].items():
        if is_section(child):
            child_path = f"{path}.{name}" if path else name
            yield child_path, child
            yield from all_sections(child, child_path)


def all_keys() -> list[Key]:
    """Every key, in the order of the config."""
    keys = [*section_keys(schema())]
    for path, node in all_sections():
        keys += section_keys(node, path)
    return keys


def matching_keys(text: str, keys: list[Key]) -> list[Key]:
    """The keys of the section `text`, else those with it in their path, else with all its words in path or meaning."""
    text = re.sub(r"\[\d+\]", "[]", " ".join(text.split()).lower().strip("."))
    name = re.sub(r"[ -]", "_", text)
    words = text.split()
    return (
        [key for key in keys if key.section == text or key.section.startswith(f"{text}.")]
        or [key for key in keys if name in key.path.lower()]
        or [key for key in keys if all(word in key.path.lower() for word in words)]
        or [key for key in keys if all(word in f"{key.path} {key.meaning}".lower() for word in words)]
    )


def key_text(key: Key) -> str:
    """A key in a few lines of at most 100 characters: path, allowed and default values, meaning, page."""
    about = [f"allowed {key.allowed}; default {key.default}", key.meaning]
    if key.placement:
        about.append("An edit of it reruns nothing.")
    about.append(f"{key.page}#keys")
    lines = (textwrap.wrap(line, 100, initial_indent="    ", subsequent_indent="    ") for line in about)
    return "\n".join([key.path, *("\n".join(wrapped) for wrapped in lines)])


def sections_text(keys: list[Key]) -> str:
    """The sections of the config, each with how many keys it has."""
    numbers: dict[str, int] = {}
    for key in keys:
        first = key.section.split(".")[0] or key.path
        numbers[first] = numbers.get(first, 0) + 1
    rows = [f"  {name:14} {number:4}  {'key' if number == 1 else 'keys'}" for name, number in numbers.items()]
    return "\n".join(
        [f"{len(keys)} keys; `crawl2llm keys {EXAMPLE}` finds some of them, a section's name lists it:", *rows]
    )


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Print the keys that match; 1 with the nearest names if none does."""
    parser = command_parser("crawl2llm keys", __doc__, EXAMPLE)
    parser.add_argument("word", nargs="*", help="a part of a key's path, a section, or words of its meaning")
    word = " ".join(parser.parse_args(argv).word)
    keys = all_keys()
    if not word.strip(" ."):
        print_line(sections_text(keys))
        return 0
    if matches := matching_keys(word, keys):
        print_line("\n\n".join(map(key_text, matches)))
        return 0
    names = {name: key.path for key in keys for name in (key.path, key.path.split(".")[-1])}
    near = dict.fromkeys(names[name] for name in difflib.get_close_matches(word.lower(), names, n=5, cutoff=0.5))
    hint = f"; near are {', '.join(near)}" if near else "; `crawl2llm keys` lists the sections"
    return print_error(f"no key has {word!r} in its name or its meaning{hint}")


if __name__ == "__main__":
    raise SystemExit(main())
