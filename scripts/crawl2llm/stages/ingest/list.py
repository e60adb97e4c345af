"""List the remote files of a run: of a crawl's paths list, by pattern or by URL, with length and mark, for each shard.

Writes `<shard>.json`: source, name, URL, bytes and mark (ETag, Last-Modified, or a digest in a mirror's folder) of each of the shard's
files; bytes and mark are null if the server does not tell. A shard reads its own file alone, so a new listing runs only the shards
again whose files differ.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from pathlib import Path
from typing import Any, cast

import fsspec

from crawl2llm.chain import file_lists, urls
from crawl2llm.chain.remote_access import Access, access_of, add_access_option
from crawl2llm.chain.sources import spread_over_shards
from crawl2llm.chain.step_program import Program
from crawl2llm.core import content_hash
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.manifest import Manifest, pretty_json
from crawl2llm.core.settings import optional, setting
from crawl2llm.stages.ingest import indexes
from crawl2llm.stages.ingest.remote import Remote, call_patiently, worker_pool
from crawl2llm.stages.ingest.settings import ExtractSource, ListSettings
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.transport import (
    KEYS,
    Facts,
    TransientError,
    error_text,
    facts_from_info,
    is_nobody,
    lacks_keys,
)

OPTIONS = "`options` of its source"  # in errors
AT_ONCE = 8  # requests for lengths
LONGEST = 2**28  # bytes of a list of paths, decompressed: a crawl's has 90,000 lines of 140 bytes

ListedFile = tuple[str, str, Facts | None]  # URL, name, what is known of it
Missing = dict[str, str]  # URL → why the file cannot be had, in words


class ListedSource(ExtractSource):
    """A source that has remote files: what decides which."""

    name: str = setting()
    paths: list[str] = setting([], "URLs, patterns and lists.")
    stores: list[str] | None = optional("The servers that its options name.")


class Task(ListSettings):
    """The arguments of the program."""

    shards: int = setting(..., "As ingest.extract.shards.")
    sources: list[ListedSource] = setting(..., "Those that have remote files.")
    lists: dict[str, str] = setting({}, "digest of each local `@list` when the run was planned")
    data: str = setting(".", "value of `{data}` in these lists")


def choose_by_hash(names: list[str], files: int | None, share: float | None) -> list[str]:
    """So many of the names, or such a share, by a hash of each: a larger number or share has all of a smaller one. In the names' order."""
    order = {name: hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names}
    if share is not None:
        return [name for name in names if int.from_bytes(order[name], "big") < share * 2**64]
    if files is None:
        return names
    wanted = set(sorted(names, key=lambda name: (order[name], name))[:files])
    return [name for name in names if name in wanted]


def read_lines(place: str, access: Access) -> list[file_lists.Line]:
    """The lines of a list at a URL or a path, in gzip or not, without empty ones and comments. Raises InputError."""
    try:
        file = Remote(place, Facts(), access) if urls.is_url(place) else Path(place)
        with file.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            text = (gzip.GzipFile(fileobj=stream) if packed else stream).read(LONGEST).decode()
    except (OSError, EOFError, UnicodeError, TransferError) as error:
        raise InputError(f"the list {place}: {error}") from error
    return file_lists.parse_list(text)


def crawl_files(source: ListedSource, access: Access) -> list[ListedFile]:
    """The chosen files of a crawl."""
    base = source.base or urls.BASE
    place = urls.join_path(base, f"crawl-data/{source.crawl}/{source.format or 'warc'}.paths.gz")
    names = list(dict.fromkeys(line.name for line in read_lines(place, access)))
    chosen_names = choose_by_hash(names, source.files, source.share)
    log.info("%s: %s of %s files of %s", source.name, f"{len(chosen_names):,}", f"{len(names):,}", place)
    if source.files and source.files > len(names):
        log.warning("%s: %s files are asked for, and %s lists %s", source.name, source.files, place, len(names))
    return [(urls.join_path(base, name), name, None) for name in chosen_names]


def files_at_paths(paths: list[str], access: Access, data: str = ".") -> list[ListedFile]:
    """The files at URLs: those that are named, that match a pattern, or that a list names, here or at a URL. Raises InputError.

    data: what `{data}` stands for in lists here.
    """
    known: dict[str, Facts | None] = {}
    for entry in paths:
        if entry.startswith("@"):
            facts_of_url: dict[str, Facts | None] = dict.fromkeys(urls_in_list(entry[1:], access, data))
        elif urls.is_pattern(entry):
            facts_of_url = (
                dict.fromkeys(indexes.files_matching(entry, access))
                if entry.startswith("http")
                else store_files_matching(entry, access)
            )
        else:
            facts_of_url = {entry: None}
        for url in facts_of_url:
            if why := urls.why_refused(url) if urls.is_url(url) else f"{url!r} in {entry}, which is no URL":
                raise InputError(why)
        if not facts_of_url:
            raise InputError(f"no file matches {entry!r}")
        known |= {url: facts for url, facts in facts_of_url.items() if url not in known}
    try:
        return [(url, name, known[url]) for url, name in urls.unique_names(list(known)).items()]
    except ValueError as error:
        raise InputError(str(error)) from error


def urls_in_list(place: str, access: Access, data: str) -> list[str]:
    """The URLs that a list names, at a URL or here. Raises InputError with the list and the line of one that is not taken."""
    if not urls.is_url(place):
        file_lists.check_list(place, data)
        return [line.name for line in file_lists.read_list(place, data)]
    listed_lines = read_lines(place, access)
    for number, url in listed_lines:
        if why := urls.why_refused(url) if urls.is_url(url) else f"{url!r} is no URL ({', '.join(urls.SCHEMES)})":
            raise InputError(f"the list {place}, line {number}: {why}")
    return [line.name for line in listed_lines]


def store_files_matching(pattern: str, access: Access) -> dict[str, Facts | None]:
    """The files of a store that match a pattern, with what it says of them. Raises TransferError, InputError."""
    scheme = pattern.partition("://")[0]

    def glob_store() -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", fs.glob(path, detail=True))
        except (OSError, ImportError, ValueError, TypeError):
            raise
        except Exception as error:  # libraries of stores raise what they like
            if lacks_keys(error):
                raise TransferError(f"{pattern}: {error_text(error)}: {KEYS}") from error
            raise TransientError(error_text(error), nobody=is_nobody(error, pattern)) from error

    try:
        fs, path = fsspec.core.url_to_fs(pattern, **access.fill_options(OPTIONS))
        infos = call_patiently(pattern, access.patience, glob_store)
    except (OSError, ImportError, ValueError, TypeError) as error:
        raise InputError(f"{pattern}: {error_text(error)}") from error
    return {
        f"{scheme}://{name}": facts_from_info(info)
        for name, info in sorted(infos.items())
        if info.get("type") != "directory"
    }


def facts_on_disk(path: Path) -> Facts:
    """What there is to say of a file in a mirror's folder: its mark is a digest. Raises OSError."""
    return Facts(path.stat().st_size, content_hash.hash_file(path))


def ask_servers(files: list[ListedFile], access: Access) -> tuple[list[ListedFile], Missing]:
    """The same, with what the servers say of each file, and which are not there. Those stay, too, for their reader counts them."""
    missing: Missing = {}
    progress = Progress(len(files), "files")

    def ask_server(file: ListedFile) -> ListedFile:
        url, name, facts = file
        if facts is None:
            try:
                facts = Remote(url, Facts(), access).read_facts() if urls.is_url(url) else facts_on_disk(Path(url))
            except (MissingError, OSError) as error:
                log.warning("%s", error)
                missing[url] = str(error)
                facts = Facts()
        progress.add()
        return url, name, facts

    with worker_pool(AT_ONCE) as pool:
        return list(pool.map(ask_server, files)), missing


def check_missing(shards: dict[str, list[dict[str, Any]]], missing: Missing, most: int) -> None:
    """Raises InputError if a shard has more missing files than `most`: its ingest.extract would fail, perhaps hours later."""
    for shard, entries in shards.items():
        gone = [entry["url"] for entry in entries if entry["url"] in missing]
        if len(gone) > most:
            raise InputError(
                f"missing files: {len(gone)} of shard {shard} ({len(missing)} in all), and ingest.extract.max_missing_files is {most}: "
                f"{missing[gone[0]]}"
            )


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shards: dict[str, list[dict[str, Any]]] = {f"{number:05d}": [] for number in range(settings.shards)}
    entries: list[dict[str, Any]] = []
    missing: Missing = {}
    for path, mark in settings.lists.items():
        if facts_on_disk(Path(path[1:])).mark != mark:
            raise InputError(f"the list {path[1:]} has changed since the run was planned: run again")
    for source in settings.sources:
        access = access_of(args.access, source.name)
        try:
            is_crawl = source.kind == urls.COMMON_CRAWL
            listed, gone = ask_servers(
                crawl_files(source, access) if is_crawl else files_at_paths(source.paths, access, settings.data), access
            )
        except (TransferError, ConfigError, InputError) as error:
            raise InputError(f"source {source.name!r}: {error}") from error
        missing |= gone
        for url, name, facts in listed:
            assert facts is not None
            entries.append({"source": source.name, "name": name, "url": url, "bytes": facts.bytes, "mark": facts.mark})
    keys = [f"{entry['source']}\x1f{entry['name']}" for entry in entries]
    place = spread_over_shards(keys, settings.shards)
    for key, entry in zip(keys, entries, strict=True):
        shards[f"{place[key]:05d}"].append(entry)
    if args.max_missing_files is not None:
        check_missing(shards, missing, args.max_missing_files)
    files = []
    for shard, content in shards.items():
        files.append(args.manifest.with_name(f"{shard}.json"))
        order = [source.name for source in settings.sources]
        files[-1].write_text(
            pretty_json(
                sorted(content, key=lambda listed_file: (order.index(listed_file["source"]), listed_file["name"]))
            ),
            "utf-8",
        )
    manifest.summary = {
        "files": len(entries),
        "bytes": sum(entry["bytes"] or 0 for entry in entries),
        "unknown": sum(entry["bytes"] is None for entry in entries),
    }
    log.info("%s files, %s GB", f"{len(entries):,}", f"{manifest.summary['bytes'] / 1e9:,.1f}")
    return files


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide no byte of a list."""
    add_access_option(parser)
    parser.add_argument(
        "--max-missing-files",
        type=int,
        help="most files of a shard that may be missing, ingest.extract.max_missing_files; without it that step alone counts them",
    )


main = Program("ingest.list", __doc__, Task, body, add_options, always=True)  # whether the servers have what they had


if __name__ == "__main__":
    raise SystemExit(main())
