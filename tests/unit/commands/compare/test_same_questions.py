"""Measures of two runs that say nothing of each other are not told as a difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from crawl2llm.commands.compare.command import compare_records, comparison_lines

TEXT = {"loss": 5.0, "perplexity": 148.4, "bits_per_byte": 2.0, "tokens": 100, "documents": 3, "bytes": 900}
SUMMARY = {"heldout_text": TEXT, "set": "one", "items": {"next_word": {"accuracy": 0.5}}}
ITEMS = {"": {"items.jsonl": {"bytes": 9, "xxh3": "a"}}}


def step(summary: Any, files: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {name: {} for name in ("by", "sources", "versions", "machine", "counts")}
    return {**empty, "tasks": 1, "of": 1, "seconds": 1.0, "summary": summary, "files": files}


def record() -> dict[str, Any]:
    made = {
        "evaluate.model": step({"base": copy.deepcopy(SUMMARY)}, {}),
        "evaluate.items": step({"": {}}, copy.deepcopy(ITEMS)),
        "finetune.pairs": step({"": {}}, {"": {"heldout.jsonl": {"bytes": 9, "xxh3": "a"}}}),
        "finetune.train": step({"chat": {"heldout_loss_after": 3.0}}, {}),
        "evaluate.stage": step({"": {}}, {"": {"arc_easy.jsonl": {"bytes": 9, "xxh3": "a"}}}),
        "evaluate.public": step({"chat": {"tasks": {"arc_easy": {"accuracy": 0.5}}}}, {}),
    }
    return {
        "variant": "main",
        "written": "today",
        "crawl2llm": "1",
        "outdated": {},
        "other_settings": [],
        "steps": made,
    }


def text_of(other: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = other["steps"]["evaluate.model"]["summary"]["base"]["heldout_text"]
    found.update(bits_per_byte=1.5, loss=4.0)
    return found


def other_set(other: dict[str, Any]) -> None:
    other["steps"]["evaluate.model"]["summary"]["base"]["set"] = "two"


def other_size(other: dict[str, Any]) -> None:
    text_of(other)["documents"] = 4
    del other["steps"]["evaluate.model"]["summary"]["base"]["set"]  # as an earlier version wrote it


def other_tokens(other: dict[str, Any]) -> None:
    text_of(other)["tokens"] = 90


def other_items(other: dict[str, Any]) -> None:
    other["steps"]["evaluate.items"]["files"][""]["items.jsonl"]["xxh3"] = "b"
    other["steps"]["evaluate.model"]["summary"]["base"]["items"]["next_word"]["accuracy"] = 0.6


def other_pairs(other: dict[str, Any]) -> None:
    other["steps"]["finetune.pairs"]["files"][""]["heldout.jsonl"]["xxh3"] = "b"
    other["steps"]["finetune.train"]["summary"]["chat"]["heldout_loss_after"] = 2.0


def more_public_tasks(other: dict[str, Any]) -> None:
    other["steps"]["evaluate.stage"]["files"][""]["piqa.jsonl"] = {"bytes": 9, "xxh3": "p"}
    other["steps"]["evaluate.public"]["summary"]["chat"]["tasks"]["arc_easy"]["accuracy"] = 0.6


def other_public_items(other: dict[str, Any]) -> None:
    more_public_tasks(other)
    other["steps"]["evaluate.stage"]["files"][""]["arc_easy.jsonl"]["xxh3"] = "b"


@pytest.mark.parametrize(
    ("change", "told", "not_told"),
    [
        (text_of, "evaluate.model.base.heldout_text.bits_per_byte: 2 → 1.5", "not compared:"),
        (other_set, "evaluate.model.base.heldout_text: other held-out text, 3 documents of 900 bytes → 3 documents", "bits_per_byte"),
        (other_size, "evaluate.model.base.heldout_text: other held-out text, 3 documents of 900 bytes → 4 documents", "bits_per_byte"),
        (other_tokens, "evaluate.model.base.heldout_text.bits_per_byte: 2 → 1.5", "heldout_text.loss: 5"),
        (other_items, "evaluate.model.base.items: other items: evaluate.items wrote others", "next_word"),
        (other_pairs, "finetune.train.chat.heldout_loss_after: other items: finetune.pairs wrote others", "3 → 2"),
        (more_public_tasks, "evaluate.public.chat.tasks.arc_easy.accuracy: 0.5 → 0.6", "not compared:"),
        (other_public_items, "evaluate.public.chat.tasks.arc_easy: other items: evaluate.stage wrote others", "0.5 → 0.6"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_same_is_not_compared(
    change: Callable[[dict[str, Any]], Any], told: str, not_told: str
) -> None:
    other = record()
    text_of(other)
    change(other)
    lines = "\n".join(comparison_lines(compare_records(record(), other)))
    assert told in lines and not_told not in lines
