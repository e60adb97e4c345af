"""Reads a config file. One that cannot be read is refused in one line: the file, the line and column, and what is wrong there.

    python -m crawl2llm.chain.yaml_errors mine.yaml     # says nothing if it can be read, and is a run's config

Snakemake reads a file of `--configfile` before the project's code, and says only that it is not valid. So `make` and `crawl2llm` ask here
first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from crawl2llm.chain.config import merge_dicts
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import ConfigError

DEFAULT = Path("config.yaml")  # of a run without --configfile


def read_config(path: Path) -> dict[str, Any]:
    """What a YAML or JSON file holds, without a check against the schema. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = ""
        if path == DEFAULT:
            hint = " (without --configfile the config is the config.yaml of the working directory, or of --directory)"
        elif "=" in path.name:
            hint = f" (--configfile takes every word behind it: write --config {path} before it, to set a key)"
        raise ConfigError(f"{path.absolute()}: {error.strerror or error}{hint}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not text in UTF-8 (byte {error.start:,} is {error.object[error.start]:#04x})"
        ) from error
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = _parse_yaml(path, text)
    if not isinstance(tree, dict | None):
        raise ConfigError(f"{path}: holds {_kind_in_words(tree)}, not keys with values as in config.yaml")
    return tree or {}


def read_layered(paths: Iterable[Path]) -> dict[str, Any]:
    """What several files hold, each laid over those before it, as Snakemake does with several of --configfile. Raises as `read_config`."""
    tree: dict[str, Any] = {}
    for path in paths:
        tree = merge_dicts(tree, read_config(path))
    return tree


def missing_ingest_note(paths: Sequence[Path]) -> str:
    """A note on files that would be the whole config and name no text to read, as if meant to be laid over config.yaml; else ""."""
    if not paths or {"ingest", "crawl"} & read_layered(paths).keys():
        return ""
    names = " ".join(map(str, paths))
    return (
        f"note: there is no ingest in {names}, so what is not set there has its default (docs/settings.md), not what config.yaml "
        f'says; to lay it over config.yaml, name both: --configfile config.yaml {names}, or CONFIG="config.yaml {names}" with make'
    )


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a key that a mapping has twice: YAML itself would drop the first without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping. Raises MarkedYAMLError."""
        seen: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    words = f"the key {key.value} is repeated, first in line {seen[key.value].line + 1}: put both parts under one"
                    raise yaml.constructor.ConstructorError(None, None, words, key.start_mark)
                seen[key.value] = key.start_mark
        return super().construct_mapping(node, deep)


def _kind_in_words(tree: Any) -> str:
    return "a list" if isinstance(tree, list) else f"only {str(tree)[:40]!r}"


def _parse_yaml(path: Path, text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark, words = _explain_error(error, text.splitlines())
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: {words}") from error
    except yaml.reader.ReaderError as error:
        line, column = text.count("\n", 0, error.position), error.position - text.rfind("\n", 0, error.position)
        problem = f"the character U+{int(error.character):04X}, which YAML does not take"
        raise ConfigError(f"{path}, line {line + 1}, column {column}: {problem}") from error
    except (ValueError, RecursionError) as error:  # a date of month 13, a tag of ours to nothing, a thousand brackets
        raise ConfigError(f"{path}: {error}") from error


def _explain_error(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[yaml.Mark | None, str]:
    """(place, what is wrong there) of an error; PyYAML names the place where it noticed, which may lie below."""
    problem, mark, context_mark = error.problem or "not YAML", error.problem_mark, error.context_mark
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "'\\t'" in problem:
        return mark, "a tab, where YAML takes spaces only"
    if "expected ':'" in problem:
        return context_mark or mark, "a key without a `:` after it"
    if "mapping values are not allowed" in problem and mark:
        two = ":" in line[: mark.column]
        return mark, "text with `: ` needs quotes" if two else "a key here needs a line above that ends with `:`"
    if "expected ',' or" in problem:
        return (
            context_mark or mark,
            f"the bracket that is opened here is not closed before line {mark.line + 1 if mark else ''}",
        )
    if "quoted scalar" in (error.context or ""):
        return context_mark or mark, "the quote that is opened here is not closed"
    if "cannot start any token" in problem and mark:
        return mark, f"text that begins with {line[mark.column : mark.column + 1]!r} needs quotes"
    if "<block end>" in problem:
        return mark, "the indentation, or the text here, does not fit the lines above"
    return mark or context_mark, problem


def main(argv: Iterable[str] | None = None) -> int:
    """Exit status 1, and the reason on stderr, for a file that cannot be read; a note there on files that seem to lack another one."""
    try:
        if note := missing_ingest_note([Path(name) for name in (sys.argv[1:] if argv is None else argv)]):
            print_line(note, file=sys.stderr)
    except ConfigError as error:
        print_line(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
