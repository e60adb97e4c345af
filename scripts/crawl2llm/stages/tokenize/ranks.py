"""A byte-level BPE of `tokenizers` as tiktoken takes one: a regular expression, and a rank for each entry's bytes.

tiktoken merges the two neighbours whose joined bytes have the lowest rank; `tokenizers` merges the pair that comes first in a list of
pairs. These are the same where every entry has one pair that it can come from. `byte_ranks` proves that for the vocabulary it is given, and
refuses what it cannot prove:

Let the entry t come from the pair (p, q), and let the merges of lower rank than t, applied to the bytes of t alone, end in (p, q).
Inside a longer word, as long as no merge crosses the borders of these bytes, the same merges happen in the same order, for each is
the lowest there; and after one has crossed, the bytes never are two neighbours again. So the two neighbours that make t are always (p, q).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GROUPS = re.compile(r"\\p\{N\}\{1,(\d+)\}")  # of `digits` in crawl2llm.stages.tokenize.train
# Radford et al. 2019 (GPT-2), without backtracking over words; what follows are its rules for white space.
WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?[^\s\p{L}\p{N}]++"
# The same with combining marks as letters: the vowel signs of Hindi, Bengali and Thai do not part words.
MARKED_WORDS = r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]++| ?[^\s\p{L}\p{M}\p{N}]++"
# GPT-2's whole expression with these, for a step of its own before the bytes.
MARKED = r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


class InexpressibleError(ValueError):
    """tiktoken has no words for this tokenizer; the message says for what of it."""


def byte_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte, as in its encoder.py (`bytes_to_unicode`): printable ones stand for themselves."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + n): byte for n, byte in enumerate(rest)}}


def piece_pattern(pre_tokenizer: dict[str, Any] | None) -> str:
    """The regular expression whose matches are the pre-tokenizer's pieces. Raises InexpressibleError.

    pre_tokenizer: of tokenizer.json. Known are those of `crawl2llm.stages.tokenize.train.untrained_tokenizer`: GPT-2's, with or without
    groups of digits, and with marks by themselves or as letters.
    """
    outer = pre_tokenizer or {}
    steps = outer.get("pretokenizers", []) if outer.get("type") == "Sequence" else [outer]
    *before, last = steps or [{}]
    words = WORDS
    marked = {"type": "Split", "pattern": {"Regex": MARKED}, "behavior": "Isolated", "invert": False}
    if before and before[-1] == marked and last.get("use_regex") is False:
        words, last = MARKED_WORDS, {**last, "use_regex": True}
        before.pop()
    if (last.get("type"), last.get("add_prefix_space"), last.get("use_regex")) != ("ByteLevel", False, True):
        raise InexpressibleError("its pre-tokenizer does not end with GPT-2's regular expression over bytes")
    if not before:
        return rf"{words}| ?\p{{N}}++|\s++$|\s+(?!\S)|\s"
    split = before[0]
    digit_groups = GROUPS.fullmatch(split.get("pattern", {}).get("Regex", ""))
    if len(before) > 1 or not digit_groups or (split.get("behavior"), split.get("invert")) != ("Isolated", False):
        raise InexpressibleError("its pre-tokenizer splits by something else than groups of digits")
    # GPT-2's expression sees one piece between numbers at a time: white space before a number is at the end of its text.
    return rf"{words}|\p{{N}}{{1,{digit_groups[1]}}}+|\s++(?:$|(?=\p{{N}}))|\s+(?![^\s\p{{N}}])|\s"


def merge_below(text: bytes, rank_by_bytes: Mapping[bytes, int], below: int) -> list[bytes]:
    """The parts of `text` after all merges of a rank under `below`: the lowest first, and of these the leftmost."""
    parts = [text[n : n + 1] for n in range(len(text))]
    while len(parts) > 1:
        best = [rank_by_bytes.get(parts[n] + parts[n + 1], below) for n in range(len(parts) - 1)]
        rank = min(best)
        if rank >= below:
            break
        at = best.index(rank)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def byte_ranks(tokenizer_json: dict[str, Any]) -> dict[bytes, int]:
    """Bytes → id of every entry that is no special token, such that tiktoken gives the same ids. Raises InexpressibleError.

    tokenizer_json: the content of tokenizer.json.
    """
    model = tokenizer_json["model"]
    if model["type"] != "BPE":
        raise InexpressibleError(f"its model is {model['type']}, not BPE")
    for name in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise InexpressibleError(f"its model has {name}")
    for name, section in (
        ("byte_fallback", model),
        ("ignore_merges", model),
        ("normalizer", tokenizer_json),
        ("truncation", tokenizer_json),
    ):
        if section.get(name):
            raise InexpressibleError(f"it has {name}")
    if not all(token["special"] for token in tokenizer_json["added_tokens"]):
        raise InexpressibleError("it has added tokens that are not special")
    special = {token["content"] for token in tokenizer_json["added_tokens"]}
    byte = byte_alphabet()
    rank_by_bytes: dict[bytes, int] = {}
    for entry, number in model["vocab"].items():
        if entry not in special:
            if not all(character in byte for character in entry):
                raise InexpressibleError(f"its entry {entry!r} is not written in GPT-2's alphabet of bytes")
            rank_by_bytes[bytes(byte[character] for character in entry)] = number
    if not all(bytes([n]) in rank_by_bytes for n in range(256)):
        raise InexpressibleError("its vocabulary lacks bytes")
    pairs: dict[bytes, list[bytes]] = {}
    for left, right in (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]):
        pair = [bytes(byte[character] for character in part) for part in (left, right)]
        pairs.setdefault(b"".join(pair), pair)  # a pair that makes the same entry later is never reached, see above
    numbers = [rank_by_bytes[token] for token in pairs]
    if numbers != sorted(numbers) or len(pairs) + 256 != len(rank_by_bytes):
        raise InexpressibleError("the order of its merges differs from the order of its entries")
    for token, pair in pairs.items():
        if merge_below(token, rank_by_bytes, rank_by_bytes[token]) != pair:
            raise InexpressibleError(f"its entry {token!r} can come from more than one pair")
    return rank_by_bytes
