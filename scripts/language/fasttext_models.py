"""fastText models by path: those that find languages, and classifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.workflow.errors import InputError

PREFIX = "__label__"  # of labels in fastText's files


def load(path: str | Path, key: str) -> Any:
    """fastText's model in a file. Raises InputError, with the `key` of the config that names the file, where it is none."""
    import fasttext

    try:
        return fasttext.load_model(str(path))
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{key}: {path} is not a fastText model ({error})") from error
