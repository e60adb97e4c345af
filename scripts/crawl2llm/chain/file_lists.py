"""Lists of files on this disk, `@list.txt`: one path or URL a line. A plan reads them, so it needs no network."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from crawl2llm.chain.data_folder import to_folder
from crawl2llm.chain.urls import COMMON_CRAWL, SCHEMES, is_url, source_paths, why_refused
from crawl2llm.core import run_folder, secret_masking
from crawl2llm.core.errors import ConfigError

SECRET_SIGNS = frozenset("@?;#")  # a URL without them has no place for a secret


class Line(NamedTuple):
    """A line of a list: its number from 1, and the path or URL that it names."""

    number: int
    name: str


def parse_list(text: str) -> list[Line]:
    """The lines of a list that name something: empty ones, and those that begin with `#`, do not."""
    lines = [Line(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [line for line in lines if line.name and not line.name.startswith("#")]


def read_list(path: str, data: str) -> list[Line]:
    """The lines of a list on this disk, `{data}` put in. Raises ConfigError if it cannot be read."""
    return _fill_data_folder(_read_cached(path), data)


def _fill_data_folder(lines: list[Line], data: str) -> list[Line]:
    return [Line(line.number, to_folder(line.name, data)) for line in lines]


def _read_cached(path: str) -> list[Line]:
    try:
        facts = os.stat(path)  # noqa: PTH116 - a plan asks for each task
        return _read_file(path, (facts.st_mtime_ns, facts.st_size, facts.st_ino))
    except FileNotFoundError:
        raise ConfigError(f"the list {path}: no such file{run_folder.search_hint(path)}") from None
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the list {path}: {error}") from error


@lru_cache(maxsize=64)
def _read_file(path: str, mark: tuple[int, int, int]) -> list[Line]:
    """mark: what changes with the file, so that it is read again then."""
    return parse_list(Path(path).read_text(encoding="utf-8"))


def is_remote(entry: str, data: str) -> bool:
    """Whether an entry of `paths`, `{data}` put in, names files at URLs: a URL, `@URL` of a list, or a list here whose first line is one.

    Raises ConfigError if a list cannot be read.
    """
    name = entry.removeprefix("@")
    return is_url(name) or (
        entry.startswith("@") and any(is_url(line.name) for line in _fill_data_folder(_read_cached(name)[:1], data))
    )


def is_listed(source: dict[str, Any], data: str) -> bool:
    """Whether the files of a source are found by ingest.list: those of a crawl, and those at URLs. data: the config's `data`.

    Raises ConfigError if a list cannot be read: without it nobody knows.
    """
    return source["kind"] == COMMON_CRAWL or any(is_remote(entry, data) for entry in source_paths(source, data))


def check_list(path: str, data: str) -> None:
    """Raises ConfigError, with the list and the line, for a line that cannot be read: a URL with a secret, or one among paths."""
    first: Line | None = None
    for line in read_list(path, data):
        place, name = f"the list {path}, line {line.number}", line.name
        first, remote = first or line, is_url(name)
        if not remote and "://" in name:
            raise ConfigError(
                f"{place}: {secret_masking.mask(name)!r} begins with none of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
            )
        # A list may have 90,000 lines, and few of them anything that needs to be taken apart.
        if remote and secret_masking.has_reference(name):
            raise ConfigError(f"{place}: a list names no secret, only a URL in `paths` does, or its `options`")
        if remote and not SECRET_SIGNS.isdisjoint(name) and (why := why_refused(name)):
            raise ConfigError(f"{place}: {why}")
        if remote and "*" in name.partition("?")[0]:
            raise ConfigError(f"{place}: {name!r} is a pattern: it goes into `paths`, a list names each file")
        if remote != is_url(first.name):
            urls, files = (line, first) if remote else (first, line)
            raise ConfigError(
                f"the list {path} has files here (line {files.number}: {files.name!r}) and at URLs (line {urls.number}): "
                "make them two lists, and two sources"
            )
