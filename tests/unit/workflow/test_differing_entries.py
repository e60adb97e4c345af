"""freshness.fingerprint_differences: of lists of mappings it names the entry and the key, and prints no whole list."""

from __future__ import annotations

from typing import Any

import pytest

from crawl2llm.chain.freshness import fingerprint_differences

WEB = {"name": "web", "kind": "warc", "paths": ["crawl/a.warc.gz"], "options": {"anon": True}}
BOOKS = {"name": "books", "kind": "text", "paths": ["books/*.txt"], "curated": True}
RULE = {"pattern": "a+", "keep": 0.5}


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ([WEB, BOOKS], [WEB, {**BOOKS, "unwrap": True}], ["sources[books].unwrap not set → True"]),
        ([WEB, BOOKS], [{**WEB, "options": {"anon": False}}, BOOKS], ["sources[web].options.anon True → False"]),
        ([WEB], [WEB, BOOKS], ["sources[books] is new"]),
        ([], [BOOKS], ["sources[books] is new"]),
        ([WEB, BOOKS], [WEB], ["sources[books] is gone"]),
        ([WEB, BOOKS], [BOOKS, WEB], ["sources in another order"]),
        ([RULE, RULE], [RULE, {**RULE, "keep": 1}], ["sources[1].keep 0.5 → 1"]),
        ([WEB, RULE], [WEB], ["sources[1] is gone"]),
        (["a"], ["a", "b"], ["sources ['a'] → ['a', 'b']"]),
        ([WEB], None, ["sources [{'name': 'web', 'kind': 'warc', 'pat... → null"]),
    ],
)
def test_names_the_entry_and_the_key(before: Any, now: Any, words: list[str]) -> None:
    assert fingerprint_differences({"config": {"sources": before}}, {"config": {"sources": now}}) == words
