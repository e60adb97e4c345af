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

from crawl2llm.core.errors import InputError

SIGN = "#sha256="
DIGITS = re.compile(r"[0-9a-fA-F]{64}")


def split_digest(name: str) -> tuple[str, str]:
    """(path, digest or "") of what a key names."""
    path, _, digest = name.partition(SIGN)
    return path, digest


def check_form(name: str, key: str) -> None:
    """Raise InputError if a key names a file with something after SIGN that is no SHA-256."""
    path, digest = split_digest(name)
    if SIGN in name and not DIGITS.fullmatch(digest):
        command = folder_command(path) if Path(path).is_dir() else f"sha256sum {shlex.quote(path)}"
        raise InputError(f"{key} is {name!r}; after {SIGN} stand the 64 hex digits that `{command}` prints")


def verified_path(name: str | Path, key: str) -> str:
    """The path of what a key names. Raises InputError if the file or folder does not have the digest that the key names with it."""
    path, digest = split_digest(str(name))
    if SIGN not in str(name):
        return path
    check_form(str(name), key)
    is_folder = Path(path).is_dir()
    try:
        actual = _folder_digest(Path(path), key) if is_folder else _file_digest(Path(path))
    except OSError as error:
        raise InputError(f"{key}: {error.filename or path} cannot be read: {error.strerror}") from error
    if actual != digest.lower():
        kind = "folder" if is_folder else "file"
        raise InputError(
            f"{key}: {path} has the SHA-256 {actual}, and {digest.lower()} is named: it is another {kind} or a damaged one. Fetch it "
            f"again, or name the digest of this {kind} if it is the right one"
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
    """As `folder_command` prints it. Raises InputError as `_file_names`, and for a file whose name could pass for several, and OSError."""
    names = _file_names(path, key)
    if odd := [name for name in names if {"\n", "\r", "\\"} & set(name)]:
        raise InputError(
            f"{key}: {path} holds a file of the name {odd[0]!r}; in a folder with a digest, no name has a line end or a backslash"
        )
    names = sorted(names, key=os.fsencode)
    lines = (b"%s  ./%s\n" % (_file_digest(path / name).encode(), os.fsencode(name)) for name in names)
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _file_names(top: Path, key: str) -> list[str]:
    """The files that `folder_command` lists, relative to the folder.

    Raises InputError for a folder that has two names in it, of which links that lead to each other make ever more, and OSError.
    """

    def raise_error(error: OSError) -> None:
        raise error

    names: list[str] = []
    folder_names: dict[str, Path] = {}
    for folder, folders, files in os.walk(top, onerror=raise_error, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        folder_path = Path(folder)
        first = folder_names.setdefault(os.path.realpath(folder), folder_path)
        if first != folder_path:
            raise InputError(
                f"{key}: {first} and {folder_path} are the same folder by a link; in a folder with a digest, every folder has one name: "
                "remove the link"
            )
        files = [name for name in files if not name.startswith(".") and (folder_path / name).is_file()]
        names += [str((folder_path / name).relative_to(top)) for name in files]
    return names
