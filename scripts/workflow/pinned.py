"""A file or folder with its SHA-256, as a key of the config names it: `models/lid.bin#sha256=<64 hex digits>`, the form of pip's links
(PEP 503).

The digest of a folder is that of the digests and names of its files, as `sha256sum` lists them: `folder_command` is the shell's way to it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from pathlib import Path

from scripts.workflow import contents
from scripts.workflow.errors import InputError

SIGN = "#sha256="
DIGITS = re.compile(r"[0-9a-fA-F]{64}")


def split(name: str) -> tuple[str, str]:
    """(path, digest or "") of what a key names."""
    path, _, digest = name.partition(SIGN)
    return path, digest


def path_with_its_digest(name: str | Path, key: str) -> str:
    """The path of what a key names. Raises InputError if the file or folder does not have the digest that the key names with it."""
    path, digest = split(str(name))
    if SIGN not in str(name):
        return path
    of_folder = Path(path).is_dir()
    if not DIGITS.fullmatch(digest):
        command = folder_command(path) if of_folder else f"sha256sum {path}"
        raise InputError(f"{key} is {str(name)!r}; after {SIGN} stand the 64 hex digits that `{command}` prints")
    try:
        held = _folder_digest(Path(path), key) if of_folder else _file_digest(Path(path))
    except OSError as error:
        raise InputError(f"{key}: {error.filename or path} cannot be read: {error.strerror}") from error
    if held != digest.lower():
        kind = "folder" if of_folder else "file"
        raise InputError(
            f"{key}: {path} has the SHA-256 {held}, and {digest.lower()} is named: it is another {kind} or a damaged one. Fetch it again, "
            f"or name the digest of this {kind} if it is the right one"
        )
    return path


def folder_command(path: str) -> str:
    """The shell command that prints the digest of a folder: of all its files, through links too, without hidden ones."""
    files = "find -L . -type f -not -path '*/.*' -print0 | LC_ALL=C sort -z"
    return f"cd {shlex.quote(path)} && {files} | xargs -0 sha256sum | sha256sum"


def _file_digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _folder_digest(path: Path, key: str) -> str:
    """As `folder_command` prints it. Raises InputError for a file whose name could pass for several, and OSError."""
    names = [str(file.relative_to(path)) for file in contents.below(path)]
    seen = [name for name in names if not any(part.startswith(".") for part in Path(name).parts)]
    if odd := [name for name in seen if {"\n", "\r", "\\"} & set(name)]:
        raise InputError(
            f"{key}: {path} holds a file of the name {odd[0]!r}; in a folder with a digest, no name has a line end or a backslash"
        )
    lines = (
        b"%s  ./%s\n" % (_file_digest(path / name).encode(), os.fsencode(name))
        for name in sorted(seen, key=os.fsencode)
    )
    return hashlib.sha256(b"".join(lines)).hexdigest()
