"""What of pretrain.continue is refused before a run: one line that names the key, its value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import InputError
from crawl2llm.stages.pretrain.continued_checks import check_continued
from tests.unit.training.tiny_published import write_published

SOURCES = [{"name": name, "kind": "text", "paths": [f"{name}.txt"]} for name in ("old", "new")]


def check_entry(parent: str = "base", published: Path | None = None, **keys: Any) -> None:
    models = {"more": {"from": parent, "step": "pretrain.continue", **keys}}
    root = {"tiny": {"path": str(published)}} if published else {}
    train = {"model": {"context": 256}}
    sources = {"extract": {"sources": SOURCES}}
    check_continued(validate({"models": {**root, **models}, "ingest": sources, "pretrain": {"train": train}}))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"shares": {"odl": 0.1}}, "models.more.shares names 'odl', and ingest.extract.sources has new, old"),
        ({"shares": {"old": 0.7, "new": 0.7}}, "models.more.shares add up to 1.4; allowed: 1, or less where"),
        ({"shares": {"old": 0.1, "new": 0.2}}, "models.more.shares add up to 0.3; allowed: 1, or less where"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            "models.more.rope_parameters.rope_type is 'dynamic'; allowed: default, linear, yarn, longrope, llama3",
        ),
        ({"rope_parameters": {"factor": 2.0}}, "models.more.rope_parameters.rope_type is None; allowed: default,"),
        (
            {"batch_tokens": 1000, "context": 512},
            "models.more.batch_tokens is 1000, not a multiple of the context, 512 tokens; the nearest is 1024",
        ),
        ({"batch_tokens": 1000}, "models.more.batch_tokens is 1000, not a multiple of the context, 256 tokens"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        check_entry(**keys)


def test_what_is_taken(tmp_path: Path) -> None:
    check_entry(
        shares={"old": 0.05}, context=512, batch_tokens=1024, rope_parameters={"rope_type": "yarn", "factor": 2}
    )
    tiny = write_published(tmp_path / "tiny")
    check_entry("tiny", tiny, batch_tokens=256)
    with pytest.raises(InputError, match="batch_tokens is 200, not a multiple of the context, 128 tokens"):
        check_entry("tiny", tiny, batch_tokens=200)
    with pytest.raises(InputError, match=re.escape("models.more.new_tokens has 'a', which the tokenizer has already")):
        check_entry("tiny", tiny, batch_tokens=256, new_tokens=["<|tool|>", "a"])
