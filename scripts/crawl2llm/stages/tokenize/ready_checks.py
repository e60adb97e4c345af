"""What `tokenize.train.from` names, as far as it can be refused before a run starts. Imports nothing heavy."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import xxhash

from crawl2llm.chain.model_registry import revision_problem
from crawl2llm.core import content_hash
from crawl2llm.core.errors import InputError
from crawl2llm.core.nested_dicts import merge_dicts
from crawl2llm.stages.tokenize.settings import ReadySettings, TrainSettings
from crawl2llm.training.published.hub_folders import tokenizer_folder
from crawl2llm.training.special_tokens import SPECIAL

KEY = "tokenize.train.from"
TRAINED = ("model", "vocabulary", "digits", "marks")  # keys that say how a tokenizer is trained
KINDS = (
    "a folder with tokenizer.json, that file, a SentencePiece .model, or a folder with a .tiktoken file and pattern.txt"
)
PATTERN = "pattern.txt"  # beside a .tiktoken file
SPECIAL_TOKENS = "special_tokens.json"  # beside it, too: name → id of its special tokens
PICKLES = (b"\x80", b"PK\x03\x04")  # of pickle and of torch.save
TRAINER, NORMALIZER = 2, 3  # fields of a SentencePiece model
WIDTHS = {1: 8, 5: 4}  # bytes of protobuf's fixed numbers, by wire type
MODELS = ("BPE", "Unigram")  # of tokenizer.json
# Its normalizers whose texts do not come back.
LOSSY = ("Lowercase", "StripAccents", "NFKC", "NFKD", "NFD", "BertNormalizer", "Precompiled", "Nmt", "Strip")
MOST_ENTRIES = 1 << 24  # a number of a special token above it is a slip, and no vocabulary


def is_ready(settings: ReadySettings) -> bool:
    """Whether a config names a ready tokenizer."""
    return bool(settings.path or settings.hub)


def tokenizer_path(settings: ReadySettings) -> Path:
    """The file of a ready tokenizer. Raises InputError that says what is missing."""
    if settings.hub:
        try:
            return file_in(tokenizer_folder(settings.hub, settings.revision or ""), f"{KEY}.hub is {settings.hub!r}")
        except InputError as error:
            raise error if str(error).startswith(KEY) else InputError(f"{KEY}.hub: {error}") from None
    return file_in(Path(settings.path or ""), f"{KEY}.path is {settings.path!r}")


def file_in(path: Path, where: str) -> Path:
    """The file that a path names: itself, or in a folder tokenizer.json, else tokenizer.model. Raises InputError."""
    if path.is_dir():
        names = [path / "tokenizer.json", path / "tokenizer.model", *sorted(path.glob("*.tiktoken"))]
        files = [file for file in names if file.is_file()]
        if not files:
            raise InputError(f"{where}, a folder without tokenizer; allowed: {KINDS}")
        return files[0]
    if not path.is_file():
        raise InputError(f"{where}: no such file; allowed: {KINDS}")
    return path


def deciding_files(path: Path) -> list[Path]:
    """A tokenizer's file, and those beside ranks."""
    beside = [path.parent / name for name in (PATTERN, SPECIAL_TOKENS)] if path.suffix == ".tiktoken" else []
    return [path, *(file for file in beside if file.is_file())]


def content_digest(settings: ReadySettings) -> str:
    """The digest of what decides a ready tokenizer, in hex: what its files hold, and their kinds. Raises InputError."""
    path = tokenizer_path(settings)
    names = [path.suffix, *(file.name for file in deciding_files(path)[1:])]
    lines = [
        f"{name} {content_hash.cached_hash(file)}\n" for name, file in zip(names, deciding_files(path), strict=True)
    ]
    return xxhash.xxh3_128_hexdigest("".join(lines).encode())


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


def read_special_tokens(path: Path, entries: int) -> dict[str, int]:
    """Name → id of the special tokens of ranks at `path`, by id; none without SPECIAL_TOKENS. Raises InputError.

    entries: of the ranks, whose ids are none of these.
    """
    file = path.parent / SPECIAL_TOKENS
    if not file.is_file():
        return {}
    try:
        tokens: Any = json.loads(file.read_bytes())
    except ValueError as error:
        raise InputError(f"{KEY}: {file} is no JSON ({error})") from error
    ids = list(tokens.values()) if isinstance(tokens, dict) else [None]
    if (
        "" in tokens
        or len(set(ids)) < len(ids)
        or not all(type(number) is int and entries <= number < MOST_ENTRIES for number in ids)
    ):
        raise InputError(
            f'{KEY}: {file} has to name special tokens and their ids, as {{"<|endoftext|>": {entries}}}, each from {entries} on and once'
        )
    return dict(sorted(tokens.items(), key=lambda item: item[1]))


def count_entries(path: Path) -> int:
    """The entries of a ready tokenizer's vocabulary with the project's special tokens, of a file that `check_file` takes."""
    if path.suffix == ".tiktoken":
        ranks = len(read_ranks(path))
        special = read_special_tokens(path, ranks)
        size, names = max([ranks, *(number + 1 for number in special.values())]), set(special)
    elif path.suffix == ".json":
        content = json.loads(path.read_bytes())
        entries = content["model"]["vocab"]  # a mapping of BPE, pairs of Unigram
        names = {entry if isinstance(entry, str) else entry[0] for entry in entries}
        names |= {token["content"] for token in content.get("added_tokens") or []}
        size = len(names)
    else:
        pieces = piece_names(path.read_bytes())
        size, names = len(pieces), set(pieces)
    return size + len(set(SPECIAL) - names)


@cache
def _count_once(path: Path, content: str) -> int:
    return count_entries(path)


def message_fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(field, number, bytes) of a protobuf message, whose numbers and bytes are one or the other. Raises ValueError for what is none."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, data = 0, b""
        if key & 7 == 0:
            number, at = _varint(message, at)
        elif key & 7 in WIDTHS or key & 7 == 2:
            size, at = _varint(message, at) if key & 7 == 2 else (WIDTHS[key & 7], at)
            data, at = message[at : at + size], at + size
        else:
            raise ValueError(f"wire type {key & 7}")
        if at > len(message):
            raise ValueError("it ends early")
        yield key >> 3, number, data


def piece_names(model: bytes) -> list[str]:
    """The entries of a SentencePiece model: its field 1, whose own field 1 is the name (sentencepiece_model.proto)."""
    pieces = [data for field, _, data in message_fields(model) if field == 1]
    return [data.decode() for piece in pieces for field, _, data in message_fields(piece) if field == 1]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, place behind it) of protobuf's integers: seven bits a byte, the lowest first."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("no number")
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def with_known_vocabulary(config: dict[str, Any]) -> dict[str, Any]:
    """A complete config, with the entries of its ready tokenizer as tokenize.train.vocabulary: what a model's size is estimated with.

    Raises InputError as `check_ready`.
    """
    settings = TrainSettings.model_validate(config["tokenize"]["train"])
    if not is_ready(settings.ready):
        return config
    check_ready(settings)
    entries = _count_once(tokenizer_path(settings.ready), content_digest(settings.ready))
    return merge_dicts(config, {"tokenize": {"train": {"vocabulary": entries}}})


def check_ready(settings: TrainSettings, own_result: Path | None = None) -> None:
    """Raise InputError for a ready tokenizer that cannot be used, for keys that do not go with one, and for the run's `own_result`."""
    ready = settings.ready
    if ready.path and ready.hub:
        raise InputError(f"{KEY} has path and hub: it takes one of them")
    if problem := revision_problem(KEY, ready.hub, ready.revision):
        raise InputError(problem)
    if not is_ready(ready):
        return
    if own_result is not None and ready.path and Path(ready.path).resolve().is_relative_to(own_result.resolve()):
        raise InputError(
            f"{KEY}.path is {ready.path!r}, which this run would replace: copy it to another place, and name that"
        )
    for key in TRAINED:
        default, value = TrainSettings.model_fields[key].default, getattr(settings, key)
        if value != default:
            raise InputError(
                f"tokenize.train.{key} is {value!r}, but {KEY} names a ready tokenizer, which is not trained: allowed is {default!r}"
            )
    check_file(tokenizer_path(ready))


def check_folder(path: Path, label: str) -> None:
    """Raise InputError for a folder, called `label`, that holds no tokenizer."""
    check_file(file_in(path, label))


def check_file(path: Path) -> None:
    """Raise InputError for a file that is no tokenizer."""
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(PICKLES):
        raise InputError(f"{KEY}: {path} is a pickle or an archive, which is not read; allowed: {KINDS}")
    if path.suffix == ".tiktoken":
        if not (path.parent / PATTERN).is_file():
            raise InputError(f"{KEY}: {path} has no {PATTERN} beside it, the regular expression of its pieces")
        read_special_tokens(path, len(read_ranks(path)))
    elif path.suffix == ".json":
        check_json(path)
    elif path.suffix == ".model":
        check_sentencepiece(path)
    else:
        raise InputError(f"{KEY}: {path} is no tokenizer; allowed: {KINDS}")


def check_sentencepiece(path: Path) -> None:
    """Raise InputError for a file that is no SentencePiece model, of another kind than BPE and Unigram, or changes texts."""
    try:
        model = path.read_bytes()
        sections: dict[int, dict[int, Any]] = {
            field: {at: number or data for at, number, data in message_fields(body)}
            for field, _, body in message_fields(model)
            if field in (TRAINER, NORMALIZER)
        }
        names = piece_names(model)
    except ValueError as error:
        raise InputError(f"{KEY}: {path} is no SentencePiece model ({error})") from error
    if not names or NORMALIZER not in sections:
        raise InputError(f"{KEY}: {path} is no SentencePiece model")
    if (kind := sections.get(TRAINER, {}).get(3, 1)) not in (1, 2):
        raise InputError(f"{KEY}: {path} is neither a BPE nor a Unigram (model_type {kind!r})")
    spec = sections[NORMALIZER]
    charsmap, removes_spaces, escapes_spaces = spec.get(2, b""), spec.get(4, 1), spec.get(5, 1)
    if charsmap or removes_spaces or not escapes_spaces:
        raise InputError(
            f"{KEY}: {path} changes texts (normalization {bytes(spec.get(1, b'')).decode()}, remove_extra_whitespaces "
            f"{bool(removes_spaces)}), so that they do not come back; allowed: identity without removed spaces"
        )


def check_json(path: Path) -> None:
    """Raise InputError for a file that is no tokenizer.json, or one whose texts do not come back."""
    try:
        content = json.loads(path.read_bytes())
        entries = content["model"]["vocab"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{KEY}: {path} is no tokenizer.json of transformers") from error
    if not entries:
        raise InputError(f"{KEY}: {path} has an empty vocabulary")
    if (kind := content["model"].get("type", MODELS[0])) not in MODELS:
        raise InputError(
            f"{KEY}: {path} is a {kind}, which has no entry for every byte; allowed: {' and '.join(MODELS)}"
        )
    normalizer = content.get("normalizer") or {}
    for step in (normalizer, *normalizer.get("normalizers", [])):
        if step.get("type") in LOSSY:
            raise InputError(
                f"{KEY}: {path} changes texts (normalizer {step['type']}), so that they do not come back; allowed is NFC"
            )
