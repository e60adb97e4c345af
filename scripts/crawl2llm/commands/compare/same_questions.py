"""Which measures of two runs say nothing of each other: they are of other held-out text, of other questions, or by other tokens."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from crawl2llm.core.nested_dicts import lookup

Row = dict[str, Any]
HELDOUT_PAIRS = ("finetune.pairs", "heldout.jsonl")
# Step, a pattern of its measures, and the files that their questions are in: (step, a pattern of their names).
QUESTION_FILES = (
    ("evaluate.model", "items", ("evaluate.items", "items.jsonl")),
    ("evaluate.model", "questions", HELDOUT_PAIRS),
    ("evaluate.generate", "answers", HELDOUT_PAIRS),
    ("evaluate.public", "core", ("evaluate.stage", "core.*")),
    ("evaluate.curve", "points", ("evaluate.items", "items.jsonl")),
    ("finetune.train", "heldout_loss_*", HELDOUT_PAIRS),
    ("align.train", "heldout_*", ("align.pairs", "*.heldout.jsonl")),
)


def incomparable_measures(a: Row, b: Row) -> dict[str, str]:
    """The beginning of dotted keys of measures → why they cannot be compared. a, b: the `steps` of two records."""
    return {**dict(_of_other_text(a, b)), **dict(_of_other_questions(a, b))}


def _shared_summaries(a: Row, b: Row, step: str) -> Iterator[tuple[str, Row, Row]]:
    """(dotted key, summary in A, in B) of every task that both have of a step."""
    in_a, in_b = (steps.get(step, {}).get("summary", {}) for steps in (a, b))
    yield from ((".".join(filter(None, [step, task])), in_a[task], in_b[task]) for task in in_a if task in in_b)


def _of_other_text(a: Row, b: Row) -> Iterator[tuple[str, str]]:
    for key, first, second in _shared_summaries(a, b, "evaluate.model"):
        texts: list[Row] = [summary.get("heldout_text") or {} for summary in (first, second)]
        if not all(texts):
            continue
        sizes = [{name: text[name] for name in ("documents", "bytes")} for text in texts]
        if sizes[0] != sizes[1] or _differ(first, second, "set"):
            yield f"{key}.heldout_text", f"other held-out text, {_size_words(sizes[0])} → {_size_words(sizes[1])}"
        elif texts[0]["tokens"] != texts[1]["tokens"]:
            for name in ("loss", "perplexity"):
                yield f"{key}.heldout_text.{name}", "by token, and the tokens are others: see bits_per_byte"
    for key, first, second in _shared_summaries(a, b, "evaluate.common"):
        if _differ(first, second, "set"):
            words = f"other held-out text, {_size_words(first)} → {_size_words(second)}"
            yield from ((f"{key}.{name}", words) for name in ("bits_per_byte", "loss", "by_source"))
        elif first["tokens"] != second["tokens"]:
            yield f"{key}.loss", "by token, and the tokens are others: see bits_per_byte"
        if _differ(first, second, "items.set"):
            yield f"{key}.tasks", "other items"


def _of_other_questions(a: Row, b: Row) -> Iterator[tuple[str, str]]:
    for step, measures, (source, files) in QUESTION_FILES:
        if _files_like(files, source, a) != _files_like(files, source, b):
            for key, summary, _ in _shared_summaries(a, b, step):
                yield from (
                    (f"{key}.{name}", f"other items: {source} wrote others")
                    for name in fnmatch.filter(summary, measures)
                )
    for key, first, second in _shared_summaries(a, b, "evaluate.public"):
        for task in first.get("tasks", {}):
            files = f"{task}.*"
            if task in second.get("tasks", {}) and _files_like(files, "evaluate.stage", a) != _files_like(
                files, "evaluate.stage", b
            ):
                yield f"{key}.tasks.{task}", "other items: evaluate.stage wrote others"


def _files_like(pattern: str, step: str, steps: Row) -> Row:
    """The files of a step whose names match a pattern, with their checksums."""
    files: Row = steps.get(step, {}).get("files", {}).get("", {})
    return {name: files[name] for name in fnmatch.filter(files, pattern)}


def _differ(first: Row, second: Row, key: str) -> bool:
    """Whether both say something under a dotted key, and not the same: what an earlier version wrote does not say it."""
    try:
        return bool(lookup(first, key) != lookup(second, key))
    except KeyError:
        return False


def _size_words(text: Row) -> str:
    return f"{text['documents']:,} documents of {text['bytes']:,} bytes"
