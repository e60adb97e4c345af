"""Which files a run reads, what they are called, and which shard reads which: resolved when the workflow is planned, so nothing heavy here.

A file's name is its path below the source's root, so that it stays when the data are moved. As `--files` it is written
`source=root/./name`, as `rsync --relative` marks where a name begins.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from crawl2llm.chain import file_lists, urls
from crawl2llm.chain import remote_access as access_to
from crawl2llm.chain.data_folder import to_folder
from crawl2llm.core import content_hash, run_folder, secret_masking
from crawl2llm.core.console import log
from crawl2llm.core.errors import ConfigError

MARK = "/./"
Identity: TypeAlias = tuple[int, ...] | str  # of a file, see `identity`


def listed_files(path: str, data: str) -> list[str]:
    """The files that a list names, one path a line (see file_lists.py). Raises ConfigError if one is missing or not readable."""
    out = []
    for line in file_lists.read_list(path, data):
        if not Path(line.name).is_file():
            raise ConfigError(
                f"the list {path}, line {line.number}: no such file {line.name!r}{run_folder.search_hint(line.name)}"
            )
        out.append(line.name)
    return out


def files_of_entry(pattern: str, data: str) -> list[tuple[str, str]]:
    """The files of one entry of `paths` (a path, a glob, or `@list.txt`), each with the folder that it is named below.

    `{data}` stands for the config key `data`, in a list too. The folder of a path is its own; of a glob, the longest part
    without wildcards; of a file in a list `data`, or the list's own folder, or `/`: the first that holds it.
    """
    pattern = to_folder(pattern, data)
    if pattern.startswith("@"):
        folders = [data, str(Path(pattern[1:]).parent), "/"]
        files = [os.path.normpath(name) for name in listed_files(pattern[1:], data)]
        return [(name, next(folder for folder in folders if _is_inside(name, folder))) for name in files]
    if is_glob(pattern):
        parts = pattern.split("/")
        fixed = parts[: next(number for number, part in enumerate(parts) if glob.has_magic(part))]
        root = os.path.normpath("/".join([*fixed, ""]) or ".")
        # A dump has 90,000 files, and a Path of each takes longer than the question.
        matches = sorted(os.path.normpath(name) for name in glob.glob(pattern, recursive=True) if os.path.isfile(name))  # noqa: PTH113
        return [(name, root) for name in matches]
    path = os.path.normpath(pattern)
    return [(path, str(Path(path).parent))] if Path(path).is_file() else []


def is_glob(pattern: str) -> bool:
    """Whether an entry of `paths`, `{data}` put in, is a pattern, and no file whose name has such signs."""
    return not pattern.startswith("@") and glob.has_magic(pattern) and not Path(pattern).exists()


def first_path_outside(files: Iterable[tuple[str, str]]) -> str:
    """The first of these (path, root) that a symbolic link takes out of its root; "" without one."""
    folders: dict[str, str] = {}  # a dump has 90,000 files in a few folders
    for path, root in files:
        folder = os.path.dirname(path)  # noqa: PTH120 - 90,000 files
        for directory in (folder, root):
            if directory not in folders:
                folders[directory] = os.path.realpath(directory)
        real = os.path.realpath(path) if os.path.islink(path) else folders[folder]  # noqa: PTH114
        if real != folders[root] and not real.startswith(f"{folders[root].rstrip('/')}/"):
            return path
    return ""


def _absolute_path(path: str) -> str:
    """The path from / without `..`; links stay what they are."""
    return os.path.normpath(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118


def _is_inside(path: str, folder: str) -> bool:
    return os.path.commonpath([_absolute_path(path), _absolute_path(folder)]) == _absolute_path(folder)


def files_of_source(source: dict[str, Any], data: str, key_path: str) -> list[str]:
    """The files of a source as `root/./name`, sorted by name, each once however many entries of `paths`, or links, find it.

    A file is named below the folder of the first entry that finds it (see `files_of_entry`); where a file of an earlier entry has that
    name already, as many parent folders are put in front as make it unique. So an entry that is added at the end renames no file.
    Raises ConfigError if an entry finds no file, a name is not UTF-8, or a link takes what a pattern finds out of its folder.
    """
    if not source.get("paths"):
        raise ConfigError(f"{key_path} ({source['name']}) needs `paths`: files or globs of kind {source['kind']}")
    seen: set[Identity] = set()
    out: dict[str, str] = {}
    for pattern in source["paths"]:
        try:
            files = files_of_entry(pattern, data)
        except ConfigError as error:
            raise ConfigError(f"{key_path}.paths: {error}") from error
        if not files:
            raise ConfigError(
                f"{key_path}.paths: no file matches {pattern!r}"
                + (f" (data is {data!r})" if (path := to_folder(pattern, data)) != pattern else "")
                + run_folder.search_hint(path.removeprefix("@"))
            )
        new = {identity: entry for identity, entry in _distinct_files(files).items() if identity not in seen}
        seen |= new.keys()
        if (
            not source.get("follow_links")
            and is_glob(filled := urls.source_paths({"paths": [pattern]}, data)[0])
            and (path := first_path_outside(new.values()))
        ):
            raise ConfigError(
                f"{key_path}.paths: {filled!r} finds {path}, which a symbolic link takes to {os.path.realpath(path)}: if it is wanted, set "
                "follow_links: true in its source, or name the file itself"
            )
        for path, root in new.values():
            try:
                path.encode()
            except UnicodeEncodeError as error:
                raise ConfigError(
                    f"{key_path}.paths: the name of the file {os.fsencode(path)!r} is not UTF-8: rename it"
                ) from error
            folder, name = _free_name(path, root, out)
            if name in out:
                raise ConfigError(f"{key_path}.paths: {path} and {path_of(out[name])} would both be called {name}")
            out[name] = f"{folder.rstrip('/')}{MARK}{name}"
    return [out[name] for name in sorted(out)]


def file_identity(path: str) -> Identity:
    """What two paths of the same file have in common, through links too: device and inode, or the path if a file system has none.

    Length and time of the last change are in it, since network file systems make inodes up, and may give two files the same.
    """
    try:
        facts = os.stat(path)  # noqa: PTH116 - a plan asks of 90,000 files
    except OSError:
        return _absolute_path(path)
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns) if facts.st_ino else _absolute_path(path)


def _distinct_files(files: list[tuple[str, str]]) -> dict[Identity, tuple[str, str]]:
    """The files that an entry finds, each once: by the first of its paths that is no symbolic link, since links come and go."""
    out: dict[Identity, tuple[str, str]] = {}
    for path, root in files:
        first_path = out.setdefault(key := file_identity(path), (path, root))[0]
        if first_path != path and os.path.islink(first_path) and not os.path.islink(path):  # noqa: PTH114
            out[key] = (path, root)
    return out


def _free_name(path: str, root: str, names_taken: Iterable[str]) -> tuple[str, str]:
    """(folder, name below it) of a file: below `root`, or the nearest folder above it below which its name is not taken."""
    name = path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else os.path.relpath(path, root)
    for above in Path(_absolute_path(root)).parents if name in names_taken else ():
        root, name = str(above), os.path.relpath(_absolute_path(path), above)
        if name not in names_taken:
            break
    return root, name


def path_of(marked: str) -> str:
    """The path of `root/./name`."""
    return os.path.normpath(marked)


def name_of(marked: str) -> str:
    """The name in `root/./name`; of a bare path, its last part."""
    return marked.split(MARK, 1)[1] if MARK in marked else Path(marked).name


def input_files(config: dict[str, Any]) -> list[tuple[str, str]]:
    """Every input file of the config as (source name, `root/./name`), in the order of the sources; the demo crawl has none here.

    Raises ConfigError if an entry finds no file, a list file is missing, or two sources share a name.
    """
    files: list[tuple[str, str]] = []
    seen: set[str] = set()
    readers: dict[Identity, str] = {}  # file → the first source that reads it
    shared: list[str] = []
    for number, source in enumerate(config["ingest"]["extract"]["sources"]):
        key_path = f"ingest.extract.sources[{number}]"
        if source["name"] in seen:
            raise ConfigError(f"{key_path}.name is {source['name']!r}, which another source is called already")
        seen.add(source["name"])
        check_source(source, config["data"], key_path)
        if source["kind"] not in ("crawl", "synthesized") and not file_lists.is_listed(source, config["data"]):
            for marked in files_of_source(source, config["data"], key_path):
                files.append((source["name"], marked))
                first = readers.setdefault(file_identity(path_of(marked)), source["name"])
                if first != source["name"]:
                    shared.append(f"{path_of(marked)} by {first} and {source['name']}")
    if shared:
        # Two sources may read one file on purpose, each another column of it.
        log.warning("files that two sources read: %s, such as %s", f"{len(shared):,}", shared[0])
    return files


def check_source(source: dict[str, Any], data: str, key_path: str) -> None:
    """Raises ConfigError for a source that cannot be read: keys that do not go together, a URL or an option with a secret."""
    paths, crawl = urls.source_paths(source, data), source["kind"] == urls.COMMON_CRAWL
    if crawl and not (source.get("crawl") and ("files" in source) + ("share" in source) == 1):
        raise ConfigError(
            f"{key_path} ({source['name']}) needs `crawl`, such as CC-MAIN-2026-08, and one of `files` and `share`"
        )
    if paths and crawl:
        raise ConfigError(f"{key_path}.paths: a crawl has none; its files are those of `crawl`, below `base`")
    if (source["kind"] == "synthesized") != ("step" in source):
        raise ConfigError(
            f"{key_path} ({source['name']}) is of kind {source['kind']}: a source of kind synthesized has a `step`, synthesize.rephrase or "
            "synthesize.seed, and no other has one"
        )
    if source["kind"] == "synthesized" and "paths" in source:
        raise ConfigError(
            f"{key_path}.paths: a source of kind synthesized has none; its texts are those of {source['step']}"
        )
    if not crawl and (
        wrong := next((key for key in ("crawl", "format", "files", "share", "base") if key in source), "")
    ):
        raise ConfigError(f"{key_path}.{wrong} is of kind {urls.COMMON_CRAWL}, and this is {source['kind']}")
    if source.get("first_mb") and source["kind"] == "text":
        raise ConfigError(f"{key_path}.first_mb: a text has no records that it could be cut between")
    if source["kind"] == "text" and source.get("preset", "code") != "code":
        raise ConfigError(
            f"{key_path}.preset is {source['preset']!r}: a text has no columns, and only `code`, to keep its indentation"
        )
    if source["kind"] == "text" and "preset" in source and source.get("unwrap"):
        raise ConfigError(f"{key_path}.unwrap: lines are not joined of a text that `preset: code` keeps as it is")
    try:
        remote = [path for path in paths if file_lists.is_remote(path, data)]
        if remote and len(remote) < len(paths):
            raise ConfigError("files here and at URLs: make them two sources")
        for path in paths:
            if path.startswith("@") and not urls.is_url(path[1:]):
                file_lists.check_list(path[1:], data)
    except ConfigError as error:
        raise ConfigError(f"{key_path}.paths: {error}") from error
    options = source.get("options", {})
    for path in [*(path.removeprefix("@") for path in remote), source.get("base", ""), *urls.store_servers(options)]:
        if why := urls.why_refused(path):
            raise ConfigError(f"{key_path}: {why}")
        if secret_masking.has_reference(path) and not (path.startswith("http") and {path, f"@{path}"} & set(paths)):
            raise ConfigError(
                f"{key_path}: a secret is named in {path}, and only URLs of `paths` at http and https, and `options`, may do so"
            )
        if path.startswith("http") and urls.is_pattern(path):
            if path not in paths:
                raise ConfigError(f"{key_path}: {path} is a pattern: only an entry of `paths` that is no list is one")
            if "?" in path:
                raise ConfigError(
                    f"{key_path}.paths: {path}: a pattern at a web server has no query, and `?` begins one; headers go into `options`"
                )
    urls.check_options(options, f"{key_path}.options")


def listing_settings(config: dict[str, Any]) -> dict[str, Any]:
    """What decides the list of remote files: the sources that have such and in what stores, what lists on this disk hold, and
    the number of shards.

    Raises ConfigError if a list cannot be read.
    """
    extract, data = config["ingest"]["extract"], config["data"]
    keys = ("name", "kind", "crawl", "format", "files", "share", "base")
    source_rows = []
    list_hashes: dict[str, str] = {}
    for source in extract["sources"]:
        if file_lists.is_listed(source, data):
            entries = urls.source_paths(source, data)
            list_hashes |= {
                path: _list_hash(path[1:]) for path in entries if path.startswith("@") and not urls.is_url(path[1:])
            }
            base = {"base": source["base"].replace("{data}", data)} if "base" in source else {}
            store_key = {"stores": servers} if (servers := urls.store_servers(source.get("options", {}))) else {}
            source_rows.append(
                {**{key: source[key] for key in keys if key in source}, **base, **store_key, "paths": entries}
            )
    # A list of 90,000 URLs is longer than a command line takes: ingest.list reads the file, and compares.
    more = {"lists": list_hashes, "data": data} if list_hashes else {}
    return {"shards": extract["shards"], "sources": source_rows, **more}


def _list_hash(path: str) -> str:
    try:
        return content_hash.cached_hash(path)
    except OSError as error:
        raise ConfigError(f"the list {path}: {error}") from error


def fetching_settings(config: dict[str, Any]) -> dict[str, Any]:
    """What ingest.fetch needs to know of the sources: those that may be web pages, and how many files may be missing."""
    extract = config["ingest"]["extract"]
    texts = [source["name"] for source in extract["sources"] if source["kind"] == "text"]
    return {"texts": texts, "max_missing_files": extract["max_missing_files"]}


def access_json(config: dict[str, Any]) -> str:
    """How the files of each source are reached, as `--access` takes it (chain/remote_access.py): a placement, which decides no byte."""
    by_source = {}
    for source in config["ingest"]["extract"]["sources"]:
        keys = {key: source[key] for key in ("options", "patience", "allowed_hosts") if key in source}
        if filled := [path for path in urls.source_paths(source, config["data"]) if secret_masking.has_reference(path)]:
            keys["urls"] = [path.removeprefix("@") for path in filled]
        if "allowed_hosts" in keys or "options" in keys:
            keys["origins"] = access_to.origins(_named_urls(source, config["data"]))
        if keys:
            by_source[source["name"]] = keys
    return json.dumps(by_source)


def _named_urls(source: dict[str, Any], data: str) -> Iterator[str]:
    """The URLs that the config names for a source, itself or by lists on this disk."""
    yield source.get("base", urls.BASE)
    for path in urls.source_paths(source, data):
        if path.startswith("@") and not urls.is_url(path[1:]):
            yield from (line.name for line in file_lists.read_list(path[1:], data))
        else:
            yield path.removeprefix("@")


def _name_hash(name: str, attempt: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{attempt}\x1f{name}".encode(), digest_size=8).digest(), "big")


def spread_over_shards(names: Iterable[str], shards: int) -> dict[str, int]:
    """The shard of each name; the order of the names does not matter.

    Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018, https://arxiv.org/abs/1608.01350): a name goes
    to the first shard with a free place in a sequence that is a hash of the name, and names choose in the order of another
    hash. There are `places` in all, as even as can be, so a shard has at most ceil(places / shards) names: never more than
    1.25 times the mean where the mean is 4 or more, else the mean or 1.04 times it, rounded up. One name more or less adds or
    takes one place or two, and moves few others.
    """
    ordered = sorted(names, key=lambda name: (_name_hash(name, 0), name))
    count = len(ordered)
    places = max(26 * count // 25, 5 * count // 4 - shards, count)
    free = [(places + number) // shards for number in range(shards)]
    out = {}
    for name in ordered:
        attempt, shard = 1, _name_hash(name, 1) % shards
        while not free[shard]:
            attempt, shard = attempt + 1, _name_hash(name, attempt + 1) % shards
        free[shard] -= 1
        out[name] = shard
    return out


def files_by_shard(config: dict[str, Any]) -> dict[str, list[str]]:
    """The files of every shard that has any as `source=root/./name`, in the order of the sources and of their names.

    Raises ConfigError as `files` does.
    """
    files = input_files(config)
    keys = [f"{source}\x1f{name_of(marked)}" for source, marked in files]
    number = config["ingest"]["extract"]["shards"]
    place = spread_over_shards(keys, number)
    shards: dict[str, list[str]] = {}
    for key, (source, marked) in zip(keys, files, strict=True):
        shards.setdefault(f"{place[key]:05d}", []).append(f"{source}={marked}")
    return dict(sorted(shards.items()))


def content_digest(entries: list[str]) -> str:
    """A digest of what `source=root/./name` files are called and hold: it changes when one is replaced, not when it is moved or touched."""
    state = hashlib.sha256()
    for source, name, mark in _digest_rows(entries):
        state.update(f"{source}\x1f{name}\x1f{mark}\x1f".encode())
    return state.hexdigest()[:16]


def file_digests(entries: list[str]) -> dict[str, str]:
    """What each of `source=root/./name` files holds, as a digest, by `source=name`. Raises ConfigError if one cannot be read."""
    return {f"{source}={name}": mark for source, name, mark in _digest_rows(entries)}


def _digest_rows(entries: list[str]) -> Iterator[tuple[str, str, str]]:
    """(source, name, digest of what it holds) of each file."""
    for entry in entries:
        source, _, marked = entry.partition("=")
        try:
            yield source, name_of(marked), content_hash.cached_hash(marked)
        except OSError as error:
            raise ConfigError(f"input file of source {source!r}: {error}") from error
