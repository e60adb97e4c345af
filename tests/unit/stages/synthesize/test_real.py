"""What is said of replies over real pages in five languages: passages of one page are no foreign text, English is, and copies are found."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.gold import labels, texts
from crawl2llm.stages.synthesize.endpoint import Reply
from crawl2llm.stages.synthesize.passages import passages
from crawl2llm.stages.synthesize.prompts import Seed, TextRequest
from crawl2llm.stages.synthesize.replies import Judge
from crawl2llm.stages.synthesize.settings import RephraseSettings

CRAWL = Path(os.environ.get("CRAWL2LLM_DATA", "data")) / "crawl"
STEP = 1 if os.environ.get("CRAWL2LLM_LONG") else 8  # of the pages, one of so many


@pytest.mark.skipif(not CRAWL.is_dir(), reason=f"{CRAWL} is not here; set CRAWL2LLM_DATA")
def test_replies_over_real_pages() -> None:
    judge = Judge(RephraseSettings())
    gold = labels(CRAWL / "mlcrawl-dev.gold.tsv")
    pages = [
        (gold[name]["lang"], [part for part in passages(text, 1200) if len(part) >= 200])
        for name, text in sorted(texts(CRAWL / "mlcrawl-dev.gold_text.jsonl.zst").items())
    ][::STEP]

    def said(part: str, reply: str) -> str:
        return (
            judge(TextRequest(Seed("x", "", "", ""), 0, "easy", part, f"Rewrite this: {part}"), Reply(reply))[1]
            or "kept"
        )

    same = Counter(said(one, other) for _, parts in pages for one, other in pairwise(parts))
    english = [part for language, parts in pages if language == "en" for part in parts]
    foreign = Counter(
        said(part, english[at % len(english)])
        for language, parts in pages
        if language != "en"
        for at, part in enumerate(parts)
    )
    copies = Counter(
        said(part, " ".join(word for at, word in enumerate(part.split()) if at % 40 != 20))
        for _, parts in pages
        for part in parts
    )
    print(same, foreign, copies)
    assert not same["language"] and same["kept"] >= 0.99 * same.total() > 100
    assert foreign["language"] == foreign.total() > 50
    assert copies["copy_of_seed"] >= 0.99 * copies.total() > 100
