"""Read a shard's WARC, WET, ARC, text, JSON Lines and Parquet files, and write their main text as documents.

Writes `<shard>.parquet` (documents) and `<shard>.dropped.parquet` (every dropped record: file, record id, URL,
reason, detail). Non-200 responses, other types than HTML, empty bodies and damaged records are counted by reason.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.remote_access import access_of, add_access_option
from crawl2llm.chain.sources import content_digest, file_digests, name_of
from crawl2llm.chain.step_program import Program
from crawl2llm.chain.urls import COMMON_CRAWL, is_url
from crawl2llm.core import code_snapshot, content_hash
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.formats.documents import DOCUMENT, Writer, shard_of
from crawl2llm.stages.ingest.compiled import Ids
from crawl2llm.stages.ingest.extractors import missing_extractor
from crawl2llm.stages.ingest.files import File, FileHead, copy_path, read_remote_files
from crawl2llm.stages.ingest.files import bytes_to_read as size_of
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.synthesized import SynthesizedReader, file_of
from crawl2llm.stages.ingest.text import JsonLinesReader, TextReader
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.warc import Page, RejectedRecord, WarcReader

DROPPED_SCHEMA = pa.schema([(name, pa.string()) for name in ("file", "record_id", "url", "reason", "detail")])
DAMAGE = {"broken_record", "broken_row_group", "broken_file", "missing_column", "wrong_type", "not_warc"}
# Characters of an address; a longer one is null, and LONG_URL what it is counted as. Servers take 8,000 at least (RFC 9110, section 4.1).
LONGEST_URL, LONG_URL = 1 << 13, "url over 8 kB"
# The key that limits how many there may be, and what they are called.
LIMITS = {"missing_file": ("max_missing_files", "missing files")} | dict.fromkeys(
    DAMAGE, ("max_damaged", "damaged places")
)
DEMO_CRAWL = "crawl"  # the source kind that crawl.render writes
SYNTHESIZED = "synthesized"  # and that of texts that the stage synthesize writes; the source's `step` says which
Reader = Callable[[File, str], Iterator[Page | RejectedRecord]]
KINDS: dict[str, Callable[[ExtractSource, ExtractSettings], Reader]] = {
    DEMO_CRAWL: WarcReader,
    "warc": WarcReader,  # WARC, WET and ARC
    COMMON_CRAWL: WarcReader,
    "text": TextReader,
    "jsonl": JsonLinesReader,
    "parquet": ParquetReader,
    SYNTHESIZED: SynthesizedReader,
}


def source_reader(source: ExtractSource, settings: ExtractSettings) -> Reader:
    """The reader of a source's kind."""
    return KINDS[source.kind](source, settings)


def files_of_shard(args: argparse.Namespace) -> tuple[list[str], str]:
    """(the shard's files, what they held when the run was planned; "" where nobody planned it).

    Raises InputError if `--files`, which are those of one shard, are given for several.
    """
    if not args.sources:
        if args.also:
            raise command_line.InputError("--files are those of one shard: --also needs --sources")
        return args.files, ""
    files, planned_digests = _read_frozen_sources(args.sources[0], args.sources[1])
    shard = shard_of(args.manifest)
    return files.get(shard, []), planned_digests[shard]


@cache
def _read_frozen_sources(path: str, variant: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Shard → its files, and shard → what they hold, of a run's frozen sources."""
    try:
        files, contents = code_snapshot.read_sources(Path(path))
        return files[variant], contents[variant]
    except (OSError, ValueError, KeyError) as error:
        raise command_line.InputError(f"--sources {path} {variant}: not the source files of a run: {error}") from error


def own_sources(args: argparse.Namespace) -> dict[str, str]:
    """What the shard is made from beside manifests, as its own manifest says under `sources`."""
    files, planned_digest = files_of_shard(args)
    return {"files": planned_digest or content_digest(files)}


def files_to_read(
    args: argparse.Namespace, settings: ExtractSettings, shard: str
) -> list[tuple[ExtractSource, File, str]]:
    """(source, file, its name) of everything that this shard reads, in order.

    Remote files are those of the shard in `--list`; of synthesized texts (`--synthesized`) its files are those whose
    number is this shard's, modulo the shards. Its files here are `source=root/./name` or `source=path`; of the demo crawl
    (`--crawl`) those whose number in their source is this shard's, modulo the shards. Raises InputError if a name is not a source
    of the config.
    """
    sources = {source.name: source for source in settings.sources}
    out: list[tuple[ExtractSource, File, str]] = []
    for entry in files_of_shard(args)[0]:
        name, _, path = entry.partition("=")
        if name not in sources or not path:
            raise command_line.InputError(
                f"--files {entry!r}: not source=path of a source; the sources are {', '.join(sources)}"
            )
        out.append((sources[name], Path(path), name_of(path)))
    for source in settings.sources:
        if source.kind == DEMO_CRAWL:
            if not args.crawl:
                raise command_line.InputError(
                    f"source {source.name!r} is the demo's crawl: --crawl must name its manifest"
                )
            crawl = Manifest.read(args.crawl[0])
            suffix = ".jsonl" if source.curated else ".warc.gz"
            names = [name for name in sorted(crawl.files) if name.endswith(suffix) and not name.startswith("gold")]
            mine = [name for number, name in enumerate(names) if number % settings.shards == int(shard)]
            # The crawl's curated file is JSON Lines, its pages are WARC.
            read_as = source.model_copy(update={"kind": "jsonl"}) if source.curated else source
            out += [(read_as, crawl.file(name), name) for name in mine]
    manifest_of_step = {
        manifest.step: manifest for manifest in (Manifest.read(path, only="") for path in args.synthesized)
    }
    for source in settings.sources:
        if source.kind == SYNTHESIZED:
            if source.step not in manifest_of_step:
                raise command_line.InputError(
                    f"source {source.name!r} is of {source.step}: --synthesized must name its manifest"
                )
            # Each shard consumes its own files alone: with other texts few shards are read again.
            texts_manifest, shards = manifest_of_step[source.step], settings.shards
            numbers = range(int(shard), texts_manifest.summary_part("files"), shards)
            out += [(source, texts_manifest.file(name), name) for name in map(file_of, numbers)]
    if args.list:
        copies = read_copies(args.fetched[0]) if args.fetched else None
        for remote_file in read_remote_files(args.list[0], shard):
            source = sources[remote_file["source"]]
            out.append((source, listed_file(args, source, remote_file, copies), remote_file["name"]))
    return [(source, FileHead(file, round(source.first_mb * 1e6)), name) if source.first_mb else (source, file, name)
            for source, file, name in out]  # fmt: skip


def read_copies(path: Path) -> Manifest:
    """The manifest of a shard's copies. It is not read as input: the documents are the same without. Raises ManifestError."""
    manifest = Manifest.read_unchecked(path)
    for fault in manifest.file_problems():
        raise ManifestError(f"{fault}: remove {path}, and run again")
    return manifest


def listed_file(
    args: argparse.Namespace, source: ExtractSource, entry: dict[str, Any], copies: Manifest | None = None
) -> File:
    """A file of the list: at a URL, its copy, or in a mirror's folder. Raises InputError if that has another file by now."""
    if not is_url(entry["url"]):
        path = Path(entry["url"])
        if not path.is_file():
            from crawl2llm.stages.ingest.remote import MissingFile

            return MissingFile(str(path), "no such file")
        if entry["mark"] and content_hash.hash_file(path) != entry["mark"]:
            raise command_line.InputError(
                f"{path} has changed since ingest.list: run again with --forcerun ingest_list"
            )
        return path
    from crawl2llm.stages.ingest.remote import MissingFile, Remote
    from crawl2llm.stages.ingest.transport import Facts

    if copies is not None:
        copy = copy_path(copies.folder / shard_of(args.manifest), source.name, entry["name"])
        why = copies.summary["missing"].get(copy.name)
        return MissingFile(entry["url"], why) if why else copies.file(f"{copy.parent.name}/{copy.name}")
    facts, access = Facts(entry["bytes"], entry["mark"]), access_of(args.access, source.name)
    return Remote(entry["url"], facts, access, page=source.kind == "text")


def pages_of_file(
    source: ExtractSource, settings: ExtractSettings, file: File, name: str
) -> Iterator[Page | RejectedRecord]:
    """What a file's reader makes of it; a remote file that cannot be had is one RejectedRecord, `missing_file`.

    Raises InputError, with the URL, where a transfer fails that had begun, or a file is not what it was.
    """
    has_begun = False
    try:
        for page in source_reader(source, settings)(file, name):
            has_begun = True
            yield page
    except TransferError as error:
        if has_begun or not isinstance(error, MissingError):
            raise command_line.InputError(f"source {source.name!r}: {error}") from error
        yield RejectedRecord("missing_file", "", str(file), str(error)[:300])


def check_limit(page: RejectedRecord, number: int, settings: ExtractSettings) -> None:
    """Raises InputError if there are more of such than the config allows; null is any number. number: how many there are."""
    key, label = LIMITS[page.reason]
    most = getattr(settings, key)
    if most is not None and number > most:
        where = f"{page.url or page.record_id}: {page.reason}: {page.detail}"
        raise command_line.InputError(f"{label}: {number}, and ingest.extract.{key} is {most}: {where}")


def unreadable_text(unreadable: dict[str, dict[str, int]]) -> str:
    """By source and column how many values could not be read: `web: url (2), date (1); books: title (1)`."""
    return "; ".join(
        f"{source}: {', '.join(f'{name} ({n:,})' for name, n in sorted(columns.items(), key=lambda item: (-item[1], item[0])))}"
        for source, columns in sorted(unreadable.items())
    )


def body(args: argparse.Namespace, settings: ExtractSettings, manifest: Manifest) -> list[Path]:
    if lacking := missing_extractor(settings.extractor):
        raise command_line.InputError(lacking)
    shard = shard_of(args.manifest)
    out = args.manifest.with_name(f"{shard}.parquet")
    aside = args.manifest.with_name(f"{shard}.dropped.parquet")
    dropped: dict[str, int] = {}
    by_source: dict[str, dict[str, int]] = {}
    summary: dict[str, Any] = {"bytes_read": 0, "text_bytes": 0, "truncated": 0, "charsets": {}, "unreadable": {}}
    seen = Ids()
    limited = Counter[str]()  # by the key that limits them
    kept = 0
    progress = Progress(None, "records")
    with Writer(out, DOCUMENT) as documents, Writer(aside, DROPPED_SCHEMA) as rejects:
        for source, path, file in files_to_read(args, settings, shard):
            if isinstance(path, Path) and not path.is_file():
                raise command_line.InputError(f"source {source.name!r}: no such file {path}")
            log.info("reading %s (%s, %s)", file, source.kind, f"{size_of(path) / 1e6:,.1f} MB")
            mine = by_source.setdefault(source.name, {"documents": 0, "bytes": 0})
            for page in pages_of_file(source, settings, path, file):
                progress.add()
                if isinstance(page, Page) and not seen.add(page.id):
                    # The same record twice (a file given twice, a repeated record): ids are unique within a shard.
                    page = RejectedRecord("repeated_record", page.metadata.get("record_id", page.id), page.url)
                address = page.url if len(page.url) <= LONGEST_URL else None
                if isinstance(page, RejectedRecord):
                    dropped[page.reason] = dropped.get(page.reason, 0) + 1
                    rejects.add({"file": file, **vars(page), "url": address})
                    if page.reason in LIMITS:
                        key, _ = LIMITS[page.reason]
                        limited[key] += 1
                        check_limit(page, limited[key], settings)
                    continue
                size = len(page.text.encode())
                kept += 1
                summary["text_bytes"] += size
                mine["documents"] += 1
                mine["bytes"] += size
                if page.metadata.get("truncated"):
                    summary["truncated"] += 1
                if charset := page.metadata.get("charset"):
                    summary["charsets"][charset] = summary["charsets"].get(charset, 0) + 1
                for column in (*page.unreadable, *([LONG_URL] if address is None else [])):
                    columns = summary["unreadable"].setdefault(source.name, {})
                    columns[column] = columns.get(column, 0) + 1
                documents.add(
                    {
                        "id": page.id,
                        "text": page.text,
                        "source": source.name,
                        "curated": bool(source.curated),
                        "url": address,
                        "date": page.date,
                        "metadata": json.dumps({**page.metadata, "file": file}, ensure_ascii=False, sort_keys=True),
                    }
                )
            summary["bytes_read"] += size_of(path)  # of a remote file it may be known only now
    manifest.counts = {"in": kept + sum(dropped.values()), "kept": kept, "dropped": dropped}
    if damage := {reason: number for reason, number in sorted(dropped.items()) if reason in DAMAGE}:
        log.warning(
            "damaged input: %s; %s names file and place", ", ".join(f"{n:,} {why}" for why, n in damage.items()), aside
        )
    if summary["unreadable"]:
        log.warning("values beside the text that cannot be read are null: %s", unreadable_text(summary["unreadable"]))
    # ingest.check uses the order of the sources.
    order = [source.name for source in settings.sources]
    manifest.summary = {**summary, "by_source": by_source, "sources": order}
    files, planned_digest = files_of_shard(args)
    current_digest = content_digest(files)
    if planned_digest and current_digest != planned_digest:
        raise command_line.InputError(
            f"a file of shard {shard} changed since this run was planned; start the run again"
        )
    manifest.sources, manifest.inputs = {shard: current_digest}, {command_line.SOURCES: {"files": current_digest}}
    # In the record alone: a plan names the file that was replaced, and the digest above decides.
    manifest.run = {"files": file_digests(files)}
    return [out, aside]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which files a shard reads, and how remote ones are reached."""
    parser.add_argument(
        "--files",
        nargs="*",
        default=[],
        help="source=path: a source's name and a file of it; root/./name says below which folder it is named",
    )
    parser.add_argument(
        "--sources",
        nargs=2,
        metavar=("FILE", "VARIANT"),
        help="instead of --files: the file of all shards' source files that a run freezes when it starts, and the variant",
    )
    parser.set_defaults(own=own_sources)
    add_access_option(parser)


main = Program("ingest.extract", __doc__, ExtractSettings, body, add_options, "--files web=crawl.warc.gz")


if __name__ == "__main__":
    raise SystemExit(main())
