"""The files that readers get: on the disk, at a URL, or the beginning of either."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import xxhash

from crawl2llm.core.manifest import Manifest

if TYPE_CHECKING:  # it imports a network's libraries, which a run over local files does not need
    from crawl2llm.stages.ingest.remote import Remote


File: TypeAlias = "Path | Remote | FileHead"  # what readers use of it: open, name, suffix, suffixes


class FileHead:
    """The first `limit` bytes of a file, as if it ended there.

    cut: whether it is longer. ended: whether its reader came to the cut: what is cut there is no damage, and is left out.
    """

    def __init__(self, file: File, limit: int) -> None:
        self.file, self.limit = file, limit
        self.name: str = file.name
        self.suffix: str = file.suffix
        self.suffixes: list[str] = file.suffixes
        self.cut = self.ended = False

    def __str__(self) -> str:
        return str(self.file)

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """A stream of the bytes; without a buffer of all of the file, for a reader that keeps the limit itself."""
        if buffering == 0:
            return cast(BinaryIO, self.file.open("rb", 0))
        return cast(BinaryIO, io.BufferedReader(_Head(cast(BinaryIO, self.file.open("rb")), self)))


class StreamWrapper(io.RawIOBase):
    """A stream over another one, at the same places. What reads says what differs."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from another place."""
        return True

    def tell(self) -> int:
        """The place."""
        return self.stream.tell()

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        return self.stream.seek(place, whence)

    def close(self) -> None:
        """Let go of the stream below."""
        self.stream.close()
        super().close()


class _Head(StreamWrapper):
    def __init__(self, stream: BinaryIO, file: FileHead) -> None:
        super().__init__(stream)
        self.file = file

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; from the end means from the cut."""
        if whence == os.SEEK_END:
            size = self.stream.seek(0, os.SEEK_END)
            self.file.cut = size > self.file.limit
            return self.stream.seek(min(size, self.file.limit) + place)
        return super().seek(place, whence)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 at the cut, and at the file's end."""
        left = self.file.limit - self.stream.tell()
        if left <= 0:
            self.file.ended = True
            self.file.cut = self.file.cut or bool(self.stream.read(1))
            return 0
        data = self.stream.read(min(len(buffer), left))
        buffer[: len(data)] = data
        return len(data)


def read_remote_files(manifest: Path, shard: str) -> list[dict[str, Any]]:
    """The remote files of a shard (`source`, `name`, `url`, `bytes`, `mark`), as ingest.list found them. manifest: its own."""
    name = f"{shard}.json"
    return cast(
        list[dict[str, Any]], json.loads(Manifest.read(manifest, only=name).file(name).read_text(encoding="utf-8"))
    )


def copy_path(folder: Path, source: str, name: str) -> Path:
    """Where a file is copied to. A server decides its name, so only what is harmless of it is kept, for readers go by its suffixes."""
    last = re.sub(r"[^A-Za-z0-9._-]", "_", name.rpartition("/")[2])[-80:]
    return folder / f"{xxhash.xxh3_64_hexdigest(f'{source}/{name}'.encode())}-{last}"


def is_cut(file: Any) -> bool:
    """Whether the reader of a file came to a cut that was asked for (see FileHead)."""
    return isinstance(file, FileHead) and file.cut and file.ended


def bytes_to_read(file: File) -> int:
    """The bytes of a file that are read, as far as that is known before."""
    if isinstance(file, FileHead):
        whole = bytes_to_read(file.file)
        return min(whole, file.limit) if whole else 0
    return file.stat().st_size if isinstance(file, Path) else file.facts.bytes or 0
