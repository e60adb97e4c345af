"""Which files a run reads, and which shard reads which: resolved when the workflow is planned, so nothing heavy here."""

from __future__ import annotations

import glob
import hashlib
from pathlib import Path
from typing import Any

from scripts.common import contents
from scripts.common.config import ConfigError


def expand(pattern: str, data: str) -> list[str]:
    """The files behind one entry of `paths`, sorted: a path, a glob, or `@list.txt` (one path a line).

    `{data}` in the pattern stands for the config key `data`.
    """
    pattern = pattern.replace("{data}", data.rstrip("/"))
    if pattern.startswith("@"):
        lines = Path(pattern[1:]).read_text(encoding="utf-8").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if glob.has_magic(pattern) and not Path(pattern).exists():
        return sorted(glob.glob(pattern, recursive=True))
    return [pattern] if Path(pattern).is_file() else []


def files(config: dict[str, Any]) -> list[tuple[str, str]]:
    """Every input file of the config as (source name, path), in the order of the sources; the demo crawl has none here.

    Raises ConfigError where an entry finds no file, a list file is missing, or two sources share a name.
    """
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for number, source in enumerate(config["ingest"]["extract"]["sources"]):
        here = f"ingest.extract.sources[{number}]"
        if source["name"] in seen:
            raise ConfigError(f"{here}.name is {source['name']!r}, which another source is called already")
        seen.add(source["name"])
        if source["kind"] == "crawl":
            continue
        if not source.get("paths"):
            raise ConfigError(f"{here} ({source['name']}) needs `paths`: files or globs of kind {source['kind']}")
        for pattern in source["paths"]:
            try:
                paths = expand(pattern, config["data"])
            except OSError as error:
                raise ConfigError(f"{here}.paths: {error}") from error
            if not paths:
                raise ConfigError(
                    f"{here}.paths: no file matches {pattern!r} (data is {config['data']!r}, paths are relative to "
                    f"{Path.cwd()})"
                )
            found += [(source["name"], path) for path in paths]
    return found


def by_shard(config: dict[str, Any]) -> dict[str, list[str]]:
    """The files of every shard as `name=path`: file number i belongs to shard i modulo the number of shards."""
    shards: dict[str, list[str]] = {}
    for number, (name, path) in enumerate(files(config)):
        shards.setdefault(f"{number % config['ingest']['extract']['shards']:05d}", []).append(f"{name}={path}")
    return shards


def content(named: list[str]) -> str:
    """A digest of what `name=path` files hold: it changes when a file is replaced, not when it is touched."""
    state = hashlib.sha256()
    for entry in named:
        source, _, path = entry.partition("=")
        try:
            state.update(f"{source}\x1f{Path(path).name}\x1f{contents.content(Path(path))}\x1f".encode())
        except OSError as error:
            raise ConfigError(f"input file of source {source!r}: {error}") from error
    return state.hexdigest()[:16]
