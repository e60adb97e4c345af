"""What to say of a checkpoint that is complete and cannot be read: which file it is, and what helps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from scripts.workflow.errors import InputError


def remedy(path: Path, folder: Path) -> str:
    """What to do about the checkpoint at `path`: it is this run's where it is in `folder`, and another run's elsewhere."""
    if path.resolve().parent == folder.resolve():
        return "delete it to resume from the one before"
    return "name another checkpoint in pretrain.train.start_from"


@contextlib.contextmanager
def named(path: Path, folder: Path) -> Iterator[None]:
    """Raise InputError, which names the file, where reading the checkpoint at `path` fails over a file of safetensors.

    folder: the run's. Files are looked at after a failure alone: reading is no slower.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as failure:
        for file in sorted(path.rglob("*.safetensors")):
            try:
                with safe_open(file, framework="pt"):
                    pass
            except (SafetensorError, OSError) as error:
                raise InputError(f"{file} cannot be read ({error}): {remedy(path, folder)}") from failure
        raise
