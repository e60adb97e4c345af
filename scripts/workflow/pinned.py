"""A file with its SHA-256, as a key of the config names it: `models/lid.bin#sha256=<64 hex digits>`, the form of pip's links (PEP 503)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from scripts.workflow.errors import InputError

SIGN = "#sha256="
DIGITS = re.compile(r"[0-9a-fA-F]{64}")


def split(name: str) -> tuple[str, str]:
    """(path, digest or "") of what a key names."""
    path, _, digest = name.partition(SIGN)
    return path, digest


def path_with_its_digest(name: str | Path, key: str) -> str:
    """The path of what a key names. Raises InputError if the file does not have the digest that the key names with it."""
    path, digest = split(str(name))
    if SIGN not in str(name):
        return path
    if not DIGITS.fullmatch(digest):
        raise InputError(f"{key} is {str(name)!r}; after {SIGN} stand the 64 hex digits that `sha256sum {path}` prints")
    try:
        with Path(path).open("rb") as handle:
            held = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{key}: {path} cannot be read: {error.strerror}") from error
    if held != digest.lower():
        raise InputError(
            f"{key}: {path} has the SHA-256 {held}, and {digest.lower()} is named: it is another file or a damaged one. Fetch it again, "
            "or name the digest of this file if it is the right one"
        )
    return path
