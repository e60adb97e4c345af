"""A ready tokenizer in the place of a trained one: read, given the project's special tokens, and compared with its original.

The ids of a text are those of the original: of tokenizer.json by `tokenizers`, of ranks by tiktoken, of a SentencePiece model by
sentencepiece. Special tokens that it lacks are new entries at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece
import tiktoken
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from crawl2llm.core.errors import InputError
from crawl2llm.stages.tokenize import ranks
from crawl2llm.stages.tokenize.ready_checks import (
    KEY,
    PATTERN,
    SPECIAL_TOKENS,
    check_file,
    read_ranks,
    read_special_tokens,
    tokenizer_path,
)
from crawl2llm.stages.tokenize.settings import TrainSettings
from crawl2llm.training.special_tokens import SPECIAL

SHOWN = 12  # ids of a text, and 5 times as many characters of it, in an error
SPACE = "▁"  # of SentencePiece, which knows no other meaning of that character
NEVER = -1e6
# `\p{N}{1,3}+` of cl100k_base: without backtracking for tiktoken, and many times over for Oniguruma, which `tokenizers` cuts with.
POSSESSIVE_COUNT = re.compile(r"((?:\\p\{\w+\}|\\.|\[(?:\\.|[^\]\\]){0,99}\]|\.)\{\d{1,9},?\d{0,9}\})\+")
HARD_TEXTS = (
    "", " ", "  two  spaces ", "\n\n1", "\t\ta\r\n b", "Zwölf 狐 🦊 \u200d\u0301", "3.14159 and 2024-05-01 and 1234567", "हिन्दी ภาษาไทย",
    "don't I'LL we’ve", "<|endoftext|> <s> </s> <0x41>", "a\x00b\ufeff\u2028c", "ﬁ ① Ａ é e\u0301",
    "def f(x):\n    return x  # ok\n", "-" * 300, " " * 50 + "x",
)  # fmt: skip


@dataclass
class Ready:
    """A tokenizer, and what its original gives. exact: whether the ids of hard texts have to be the original's too."""

    tokenizer: Tokenizer
    original: Callable[[str], list[int]]
    exact: bool = True
    unknown: int | None = None  # the id that stands for what has no entry
    space: str = " "  # the character that comes back as a space
    differing: list[str] = field(default_factory=list)  # hard texts with other ids
    composed: int = 0  # texts that came back in Unicode's form NFC, as Qwen's tokenizers give them

    def ids(self, text: str) -> list[int]:
        """The ids of a text, in which no special token is looked for."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def check_hard_texts(self) -> None:
        """Compare the ids of HARD_TEXTS. Raises InputError where `exact` and one differs."""
        for text in HARD_TEXTS:
            if self.ids(text) != self.original(text):
                if self.exact:
                    raise InputError(self._difference(text))
                self.differing.append(text)

    def check_texts(self, texts: Iterable[str]) -> Iterator[str]:
        """The texts, each compared with the original. Raises InputError for the first that has other ids, or does not come back."""
        for text in texts:
            ids = self.ids(text)
            if ids != self.original(text):
                raise InputError(self._difference(text))
            if self.unknown in ids or not self._comes_back(text, ids):
                raise InputError(
                    f"{KEY}: the tokenizer is lossy: {_short_form(text)} does not come back from its ids; needed is one "
                    "that has an entry for every byte and changes no text but to NFC"
                )
            yield text

    def _comes_back(self, text: str, ids: list[int]) -> bool:
        """Whether ids stand for a text, as it is or in NFC, which means the same characters."""
        decoded, expected = self.tokenizer.decode(ids, skip_special_tokens=False), text.replace(self.space, " ")
        if decoded == expected:
            return True
        if decoded == normalizers.NFC().normalize_str(expected):
            self.composed += 1
            return True
        return False

    def _difference(self, text: str) -> str:
        ids, expected = self.ids(text), self.original(text)
        shorter = min(len(ids), len(expected))
        at = next((n for n in range(shorter) if ids[n] != expected[n]), shorter)
        return (
            f"{KEY}: {_short_form(text)} gets other ids than by the original, from token {at} on: "
            f"{ids[at : at + SHOWN]}, not {expected[at : at + SHOWN]}"
        )


def _short_form(text: str) -> str:
    return repr(text if len(text) <= 5 * SHOWN else f"{text[: 5 * SHOWN]}…")


def read_ready(settings: TrainSettings) -> Ready:
    """The tokenizer that `from` names, with SPECIAL among its entries. Raises InputError."""
    path = tokenizer_path(settings.ready)
    check_file(path)
    if path.suffix == ".tiktoken":
        ready = from_ranks(path, (path.parent / PATTERN).read_text(encoding="utf-8").strip("\n"))
    elif path.suffix == ".json":
        ready = from_json(path)
    else:
        ready = from_sentencepiece(path)
    entries = ready.tokenizer.get_vocab_size()
    if max(ready.tokenizer.get_vocab().values()) >= entries:
        raise InputError(
            f"{KEY}: {path} has ids above its {entries:,} entries: ids have to be 0, 1, 2, … without a gap"
        )
    ready.tokenizer.add_special_tokens(list(SPECIAL))
    ready.tokenizer.encode_special_tokens = True
    return ready


def from_json(path: Path) -> Ready:
    """tokenizer.json, without what it adds to a text, or cuts from it: the chain does that itself."""
    content: dict[str, Any] = json.loads(path.read_bytes())
    # A dropout of merges is for training alone: with it a text has other ids each time.
    content |= {"truncation": None, "padding": None, "model": {**content["model"], "dropout": None}}
    if content["model"].get("type") == "Unigram":
        del content["model"]["dropout"]
    try:
        original = Tokenizer.from_str(json.dumps(content))
        tokenizer = Tokenizer.from_str(json.dumps({**content, "post_processor": None}))
    except Exception as error:  # tokenizers raises no narrower one
        raise InputError(f"{KEY}: {path} is no tokenizer.json: {error}") from error
    original.encode_special_tokens = True
    name = content["model"].get("unk_token")
    unknown = tokenizer.token_to_id(name) if name else content["model"].get("unk_id")
    before = json.dumps([content.get("normalizer"), content.get("pre_tokenizer")], ensure_ascii=False)
    space = SPACE if SPACE in before else " "  # as of a converted SentencePiece model
    return Ready(
        tokenizer, lambda text: list(original.encode(text, add_special_tokens=False).ids), unknown=unknown, space=space
    )


def from_ranks(path: Path, pattern: str) -> Ready:
    """tiktoken's ranks as a BPE: an entry comes from the two parts that the merges before it leave of its bytes."""
    rank_by_bytes = read_ranks(path)
    character = {byte: character for character, byte in ranks.byte_alphabet().items()}
    names = {token: "".join(character[byte] for byte in token) for token in rank_by_bytes}
    merges = []
    for token, rank in sorted(rank_by_bytes.items(), key=lambda item: item[1]):
        parts = ranks.merge_below(token, rank_by_bytes, rank)
        if len(parts) == 2:  # an entry that no pair makes is looked up whole
            merges.append((names[parts[0]], names[parts[1]]))
    try:
        encoding = tiktoken.Encoding("ready", pat_str=pattern, mergeable_ranks=rank_by_bytes, special_tokens={})
        split = pre_tokenizers.Split(Regex(POSSESSIVE_COUNT.sub(r"(?>\1)", pattern)), behavior="removed", invert=True)
    except Exception as error:  # both raise no narrower one for an expression
        raise InputError(f"{KEY}: {path.parent / PATTERN} is no regular expression: {error}") from error
    vocabulary = {names[token]: rank for token, rank in rank_by_bytes.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    add_numbered_tokens(tokenizer, read_special_tokens(path, len(rank_by_bytes)))
    return Ready(tokenizer, encoding.encode_ordinary)


def add_numbered_tokens(tokenizer: Tokenizer, number_by_name: dict[str, int]) -> None:
    """Add special tokens with these ids, in their order; ids between that none has get names of their own. Raises InputError."""
    for name, number in number_by_name.items():
        size = tokenizer.get_vocab_size()
        tokenizer.add_special_tokens([*(f"<|unused_{between}|>" for between in range(size, number)), name])
        if tokenizer.token_to_id(name) != number:
            raise InputError(
                f"{KEY}: {SPECIAL_TOKENS} names {name!r}, which is an entry for text as well, or has the name of an unused id"
            )


def from_sentencepiece(path: Path) -> Ready:
    """A SentencePiece model, BPE or Unigram, that changes no text.

    `tokenizers` orders equal pairs and user's symbols in another way: a few hard texts may get other ids, see Ready.exact.
    """
    proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(path.read_bytes())
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except Exception as error:  # protobuf and sentencepiece share no class of errors
        raise InputError(f"{KEY}: {path} is no SentencePiece model") from error
    spec = proto.normalizer_spec
    kinds = type(proto.pieces[0])
    # The names of bytes and of special tokens are no entries for text: a score under all others keeps Unigram from them.
    pieces = [
        (piece.piece, NEVER if piece.type in (kinds.CONTROL, kinds.BYTE) else piece.score) for piece in proto.pieces
    ]
    fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == proto.trainer_spec.BPE:
        name = pieces[processor.unk_id()][0]
        vocabulary = {piece: number for number, (piece, _) in enumerate(pieces)}
        model: models.Model = models.BPE(
            vocab=vocabulary, merges=merges_of(proto), unk_token=name, fuse_unk=True, byte_fallback=fallback
        )
    else:
        model = models.Unigram(pieces, processor.unk_id(), fallback)
    tokenizer = Tokenizer(model)
    prefix = [normalizers.Prepend(SPACE)] if spec.add_dummy_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if spec.add_dummy_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    special = [piece.piece for piece in proto.pieces if piece.type in (kinds.CONTROL, kinds.UNKNOWN)]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(
        [AddedToken(piece.piece, normalized=False) for piece in proto.pieces if piece.type == kinds.USER_DEFINED]
    )
    return Ready(tokenizer, processor.encode, exact=False, unknown=processor.unk_id(), space=SPACE)


def merges_of(proto: Any) -> list[tuple[str, str]]:
    """The pairs of a SentencePiece BPE, best score of the joined entry first: every cut of an entry into two entries."""
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == type(piece).NORMAL}
    pairs = [
        (-score, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    return [(left, right) for _, left, right in sorted(pairs, key=lambda pair: pair[0])]
