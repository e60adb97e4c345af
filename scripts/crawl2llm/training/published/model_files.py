"""The files of a published model's folder: which of them hold its weights, and what their headers say."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError

CONFIG, TOKENIZER, WEIGHTS, INDEX = "config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"
TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
INCOMPLETE = ".incomplete"  # how the name of a file ends that is not all here
PAPERS = ("README.md", "LICENSE*", "NOTICE*")  # that go with a copy
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
LARGEST_HEADER = 100_000_000  # bytes, as safetensors allows


def is_gguf(path: Path) -> bool:
    """Whether a path names a GGUF file, by its suffix."""
    return path.suffix.lower() == ".gguf"


def weight_files(path: Path, where: str) -> list[Path]:
    """The files of safetensors of a folder. Raises InputError if there are none, or not all that the index names."""
    if (path / INDEX).is_file():
        names = sorted(set(read_json(path / INDEX, where).get("weight_map", {}).values()))
        if outside := [name for name in names if not isinstance(name, str) or "/" in name]:
            raise InputError(f"{where}: its {INDEX} names {outside[0]!r}, which is not in the folder")
        if missing := [name for name in names if not (path / name).is_file()]:
            raise InputError(f"{where}: half a download, {missing[0]} of its {INDEX} is missing; fetch it again")
        if names:
            return [path / name for name in names]
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    pickles = sorted(file for pattern in PICKLES for file in path.glob(pattern))
    if pickles:
        raise InputError(f"{where}: its weights are pickles ({pickles[0].name}), which can run code; safetensors only")
    shards = sorted(path.glob("*.safetensors"))
    hint = f" ({shards[0].name} is there without {INDEX}: half a download?)" if shards else ""
    raise InputError(f"{where}: a folder without weights ({WEIGHTS}, or {INDEX} and what it names){hint}")


def safetensors_entries(file: Path, where: str) -> tuple[dict[str, Any], int]:
    """(the header's entry of each tensor by name, where the values begin in bytes) of a file of safetensors.

    Raises InputError if it has no whole header.
    """
    try:
        with file.open("rb") as data:
            size = struct.unpack("<Q", data.read(8))[0]
            if size > LARGEST_HEADER:
                raise ValueError(f"a header of {size:,} bytes")
            entries = json.loads(data.read(size))
        entries.pop("__metadata__", None)
        if any(len(entry["data_offsets"]) != 2 or not isinstance(entry["shape"], list) for entry in entries.values()):
            raise ValueError("no offsets")
    except (struct.error, ValueError, AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{where}: the header of {file.name} is damaged or cut off; fetch it again") from error
    except OSError as error:
        raise InputError(f"{where}: {file.name} cannot be read ({error.strerror})") from error
    return entries, 8 + size


def read_json(file: Path, where: str) -> dict[str, Any]:
    """A file of JSON; {} if it is not there. Raises InputError for another thing than an object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: its {file.name} is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{where}: its {file.name} is no JSON object")
    return content


def template_in_config(source: Path, where: str) -> str:
    """The chat template in a folder's tokenizer_config.json, as models had it before it was a file; of several the default. "" without."""
    named = read_json(source / TOKENIZER_CONFIG, where).get("chat_template") or ""
    if isinstance(named, list):
        return next((str(entry["template"]) for entry in named if entry.get("name") == "default"), "")
    return str(named)
