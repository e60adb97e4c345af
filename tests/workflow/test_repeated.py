"""boilerplate, paragraphs and substrings one after the other: each reads what those before it left, and the corpus has what all left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from tests.workflow.conftest import differences, run, snapshot

MENU = "Home | News | Sport"
SHARED = "This paragraph is on two pages of two hosts, word for word, and longer than fifty bytes."
PASSAGE = " ".join(f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(12))
NAMES = ("one", "two", "six", "ten")
OWN = {
    name: f"The text of page {name} is its own, and {name} times as good as that of any other page." for name in NAMES
}
BODY = {
    "one": [OWN["one"], SHARED],
    "two": [OWN["two"], f"Here {PASSAGE} begins."],
    "six": [OWN["six"]],
    "ten": [OWN["ten"], SHARED, f"There it is: {PASSAGE} again."],
}
PAGES: dict[str, dict[str, str]] = {  # a.org has a menu; b.org has one page
    name: {
        "url": f"https://{'b' if name == 'ten' else 'a'}.org/{name}",
        "text": "\n".join(([] if name == "ten" else [MENU]) + body),
    }
    for name, body in BODY.items()
}
BOOK = f"A curated book has it too.\n{PASSAGE}\n{MENU}"


def config(folder: Path) -> dict[str, Any]:
    """Write the sources and the config."""
    for name, texts in {"web": list(PAGES.values()), "books": [{"text": BOOK, "url": None}]}.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in texts))
    sources = [
        {"name": "web", "kind": "jsonl", "paths": ["web.jsonl"]},
        {"name": "books", "kind": "jsonl", "paths": ["books.jsonl"], "curated": True},
    ]
    left = {"select": {"words_min": 3}}
    tree = {
        "ingest": {"extract": {"shards": 2, "sources": sources}},
        "filters": ["boilerplate", "paragraphs", "substrings"],
        "boilerplate": {"frequent": {"documents_min": 3}, **left},
        "paragraphs": left,
        "substrings": {"sample": {"words": 10}, **left},
        "corpus": {"split": {"validation_fraction": 0.3, "split_by": "document"}},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    return tree


@pytest.mark.slow
def test_the_three_filters_together(tmp_path: Path) -> None:
    config(tmp_path)
    run(tmp_path, "--until", "corpus_write", config=tmp_path / "mine.yaml")
    folder = tmp_path / "results/main"
    corpus = [row for path in sorted((folder / "corpus/write").glob("*/0000?.parquet")) for row in rows(path)]
    texts = {
        row["url"].rpartition("/")[2] if row["source"] == "web" else "book": row["text"]
        for row in corpus
        if "text" in row
    }
    assert texts.pop("book") == BOOK, "a curated text stays as it is"
    assert texts["six"] == OWN["six"] and not any(MENU in text for text in texts.values())
    assert texts["two"] == f"{OWN['two']}\nHere begins.", "the book has the passage first"
    # One of two equal paragraphs stays; which, a hash of the id says.
    left = [f"{OWN['ten']}\n{SHARED}\nThere it is: again.", f"{OWN['ten']}\nThere it is: again."]
    assert (texts["one"], texts["ten"]) in [(OWN["one"], left[0]), (f"{OWN['one']}\n{SHARED}", left[1])]
    taken = {
        name: sum(Manifest.read(path).summary["edited"] for path in (folder / name / "score").glob("*.manifest.json"))
        for name in ("boilerplate", "paragraphs", "substrings")
    }
    assert taken == {"boilerplate": 3, "paragraphs": 1, "substrings": 2}


@pytest.mark.slow
@pytest.mark.long
def test_the_same_bytes_with_one_worker(tmp_path: Path) -> None:
    config(tmp_path)
    run(tmp_path, "--until", "corpus_write", config=tmp_path / "mine.yaml")
    again = tmp_path / "again"
    again.mkdir()
    config(again)
    run(again, "--until", "corpus_write", cores=1, config=again / "mine.yaml")
    assert differences(snapshot(tmp_path), snapshot(again)) == []
