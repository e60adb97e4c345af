"""What `tokenize.train.from` names, as far as it can be refused before a run starts. Imports nothing heavy."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.stages.tokenize.settings import TrainSettings

KEY = "tokenize.train.from"
TRAINED = ("model", "vocabulary", "digits", "marks")  # keys that say how a tokenizer is trained
KINDS = (
    "a folder with tokenizer.json, that file, a SentencePiece .model, or a folder with a .tiktoken file and pattern.txt"
)
PATTERN = "pattern.txt"  # beside a .tiktoken file
PICKLES = (b"\x80", b"PK\x03\x04")  # of pickle and of torch.save


def tokenizer_path(name: str) -> Path:
    """The file that a `from` names: itself, or in a folder tokenizer.json, else tokenizer.model. Raises InputError."""
    path = Path(name)
    if path.is_dir():
        names = [path / "tokenizer.json", path / "tokenizer.model", *sorted(path.glob("*.tiktoken"))]
        files = [file for file in names if file.is_file()]
        if not files:
            raise InputError(f"{KEY} is {name!r}, a folder without tokenizer; allowed: {KINDS}")
        return files[0]
    if not path.is_file():
        raise InputError(f"{KEY} is {name!r}: no such file; allowed: {KINDS}")
    return path


def read_ranks(path: Path) -> dict[bytes, int]:
    """Bytes → id of a .tiktoken file: a line an entry, base64 and id. Raises InputError."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError as error:
            raise InputError(f"{KEY}: {path}, line {number} is not an entry in base64 and its id") from error
    if sorted(ranks.values()) != list(range(len(ranks))) or not all(bytes([n]) in ranks for n in range(256)):
        raise InputError(f"{KEY}: {path} has not all 256 bytes, or its ids are not 0, 1, 2, … once each")
    return ranks


def check_ready(settings: TrainSettings, own_result: Path | None = None) -> None:
    """Raise InputError for a ready tokenizer that cannot be used, for keys that do not go with one, and for the run's `own_result`."""
    if settings.ready is None:
        return
    if own_result is not None and Path(settings.ready).resolve().is_relative_to(own_result.resolve()):
        raise InputError(
            f"{KEY} is {settings.ready!r}, which this run would replace: copy it to another place, and name that"
        )
    for key in TRAINED:
        default, value = TrainSettings.model_fields[key].default, getattr(settings, key)
        if value != default:
            raise InputError(
                f"tokenize.train.{key} is {value!r}, but {KEY} names a ready tokenizer, which is not trained: allowed is {default!r}"
            )
    path = tokenizer_path(settings.ready)
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(PICKLES):
        raise InputError(f"{KEY}: {path} is a pickle or an archive, which is not read; allowed: {KINDS}")
    if path.suffix == ".tiktoken":
        if path == Path(settings.ready) or not (path.parent / PATTERN).is_file():
            raise InputError(
                f"{KEY} is {settings.ready!r}: name a folder with the .tiktoken file and {PATTERN}, the regular expression of its pieces"
            )
        read_ranks(path)
    elif path.suffix == ".json":
        check_json(path)
    elif path.suffix != ".model" or not re.match(rb"\n.\n", start, re.DOTALL):  # the first field is the entries' list
        raise InputError(f"{KEY}: {path} is no tokenizer; allowed: {KINDS}")


def check_json(path: Path) -> None:
    """Raise InputError for a file that is no tokenizer.json."""
    try:
        content = json.loads(path.read_bytes())
        entries = content["model"]["vocab"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{KEY}: {path} is no tokenizer.json of transformers") from error
    if not entries:
        raise InputError(f"{KEY}: {path} has an empty vocabulary")
