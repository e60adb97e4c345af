"""Copy a shard's remote files to the disk before they are read, for compute nodes without a network.

Files are in `<shard>/`, under names made from source and name. A copy that was cut off continues where it ended, if the server says that
the file is the same. Nothing that is read later depends on it: documents are the same with and without.
"""

from __future__ import annotations

import argparse
import io
import json
import os
from pathlib import Path
from typing import Any, cast

from crawl2llm.chain.remote_access import access_of, add_access_option
from crawl2llm.chain.step_program import Program
from crawl2llm.chain.urls import is_url
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import setting
from crawl2llm.formats.documents import shard_of
from crawl2llm.stages.ingest.files import copy_path, read_remote_files
from crawl2llm.stages.ingest.remote import Remote, worker_pool
from crawl2llm.stages.ingest.settings import FetchSettings
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.transport import PIECE, Facts


class Task(FetchSettings):
    """The arguments of the program: what of ingest.extract it has to know."""

    texts: list[str] = setting(..., "The sources of kind text, which may be web pages.")
    max_missing_files: int = setting(..., "As ingest.extract.max_missing_files.")


def copy_file(url: str, facts: Facts, access: Any, page: bool, out: Path) -> None:
    """Copy a file, or what is missing of it. Raises MissingError, TransferError, OSError."""
    partial, about = out.with_name(f".{out.name}.partial"), out.with_name(f".{out.name}.json")
    mark = json.dumps([url, facts.bytes, facts.mark])
    same = facts.mark is not None and about.exists() and about.read_text("utf-8") == mark
    if same and out.exists() and out.stat().st_size == facts.bytes:
        return
    if not same:  # before the new mark is there: it would pass for that of what an older list left
        for old in (partial, out):
            old.unlink(missing_ok=True)
        about.write_text(mark, "utf-8")
    file = Remote(url, facts, access, page)
    with file.open() as stream, partial.open("ab") as handle:
        if handle.tell():
            log.info("%s: continued at byte %s", url, f"{handle.tell():,}")
            stream.seek(handle.tell())
        # read1: what came before a failure is written.
        while piece := cast(io.BufferedReader, stream).read1(PIECE):
            handle.write(piece)
        handle.flush()
        os.fsync(handle.fileno())
        size = handle.tell()
    if file.facts.bytes is not None and size != file.facts.bytes:
        partial.unlink()
        raise TransferError(f"{url}: {size:,} bytes arrived, and the server announced {file.facts.bytes:,}")
    partial.replace(out)


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shard = shard_of(args.manifest)
    folder = args.manifest.with_name(shard)
    folder.mkdir(exist_ok=True)
    entries = [entry for entry in read_remote_files(args.list, shard) if is_url(entry["url"])]
    files = {copy_path(folder, entry["source"], entry["name"]): entry for entry in entries}
    kept_names = {name for path in files for name in (path.name, f".{path.name}.partial", f".{path.name}.json")}
    for path in folder.iterdir():
        if path.name not in kept_names:
            path.unlink()
    progress = Progress(len(files), "files")

    def copy_entry(out: Path, entry: dict[str, Any]) -> str:
        """Why the file cannot be had; "" if it was copied."""
        try:
            facts, page = Facts(entry["bytes"], entry["mark"]), entry["source"] in settings.texts
            copy_file(entry["url"], facts, access_of(args.access, entry["source"]), page, out)
        except MissingError as error:
            log.warning("%s", error)
            return str(error)
        progress.add()
        return ""

    try:
        with worker_pool(settings.parallel) as pool:
            why = dict(zip(files, pool.map(copy_entry, files, files.values()), strict=True))
    except TransferError as error:
        raise InputError(f"{error}; the received bytes are kept, start the run again") from error
    missing = {out: words for out, words in why.items() if words}
    if len(missing) > settings.max_missing_files:
        raise InputError(
            f"missing files: {len(missing)}, and ingest.extract.max_missing_files is {settings.max_missing_files}: "
            f"{next(iter(missing.values()))}"
        )
    copies = [out for out in files if out not in missing]
    manifest.summary = {
        "bytes": sum(out.stat().st_size for out in copies),
        "missing": {out.name: words for out, words in missing.items()},
    }
    return copies


main = Program("ingest.fetch", __doc__, Task, body, add_access_option)


if __name__ == "__main__":
    raise SystemExit(main())
