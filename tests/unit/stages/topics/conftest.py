"""Documents about three things, in English and in Chinese, from several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.formats.documents import uniform_hash
from tests.unit import making

WORDS = {
    "sea": ["ship", "harbour", "sail", "captain", "anchor", "storm", "wave", "deck", "crew", "island"],
    "kitchen": ["onion", "butter", "oven", "recipe", "flour", "sugar", "garlic", "pepper", "simmer", "dough"],
    "numbers": ["theorem", "proof", "lemma", "integer", "prime", "matrix", "vector", "algebra", "induction", "degree"],
}
PARTS = {"food": "面包黄油洋葱大蒜", "rail": "火车车站铁路乘客"}
COMMON = ["and", "then", "there", "was", "something", "that", "everybody", "knew", "about"]


def text(name: str, words: list[str], length: int = 60) -> str:
    """Words drawn by the hash of a document's name, between common ones."""
    drawn = [words[int(uniform_hash(0, f"{name} {number}") * len(words))] for number in range(length)]
    return " ".join(word for pair in zip(drawn, COMMON * length, strict=False) for word in pair)


def english() -> list[dict[str, Any]]:
    """40 documents about each of three things: `sea0`, …, each of one of ten hosts."""
    return [
        making.document(
            f"{kind}{number}", text(f"{kind}{number}", words), url=f"https://h{number % 10}.example/{number}"
        )
        for kind, words in WORDS.items()
        for number in range(40)
    ]


def chinese() -> list[dict[str, Any]]:
    """30 documents about each of two things, without any space."""
    found = []
    for kind, signs in PARTS.items():
        pairs = [signs[at : at + 2] for at in range(0, len(signs), 2)]
        for number in range(30):
            name = f"{kind}{number}"
            drawn = "".join(pairs[int(uniform_hash(0, f"{name} {n}") * len(pairs))] for n in range(40))
            found.append(making.document(name, drawn))
    return found


@pytest.fixture(scope="session")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two shards of them, dealt by hash, as ingest.extract writes them."""
    folder = tmp_path_factory.mktemp("topics")
    rows = sorted([*english(), *chinese()], key=lambda row: uniform_hash(1, row["id"]))
    return [making.documents(folder, rows[shard::2], f"0000{shard}") for shard in range(2)]
