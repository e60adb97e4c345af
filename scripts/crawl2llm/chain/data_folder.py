"""The folder of the config's key `data`, which paths name as `{data}`."""

from __future__ import annotations

DATA = "{data}"  # in a path: the folder of the key `data`


def to_folder(path: str, data: str) -> str:
    """A path with the folder `data` in place of `{data}`."""
    return path.replace(DATA, data.rstrip("/") or "/")


def from_folder(path: str, data: str) -> str:
    """The inverse: a path in the folder `data` begins with `{data}`, any other stays."""
    root = data.rstrip("/")
    return f"{DATA}{path[len(root) :]}" if root and (path == root or path.startswith(f"{root}/")) else path
