"""The patterns of finetune.pairs on text laid out as extracted pages are."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.core.errors import InputError
from crawl2llm.training.pair_patterns import PRESETS, bounded_text, compile_patterns, document_title, matched_pairs
from crawl2llm.training.pair_settings import PairsPattern
from crawl2llm.workflow.project_checks import check_project

PAGE = """heapq\t\tindex
Module Reference

Heap queue algorithm (a.k.a. priority queue).

Functions
heapify(heap, /)
Transform list into a heap, in-place, in O(len(heap)) time.
__init__(self, /, *args, **kwargs)
Initialize self.  See help(type(self)) for accurate signature.
merge(*iterables, key=None, reverse=False) -> Iterator
 \n   Merge multiple sorted inputs into a single   sorted output.
class Context(builtins.object)
   \t\tContext(prec=None)
class Dialect(builtins.object)
   \t\tDescribe a CSV dialect.
fromhex(string, /) from builtins.type
Create a float from a hexadecimal string.
nlargest(n, iterable, key=None)
find the n largest elements
"""


def test_summary_preset() -> None:
    assert list(matched_pairs(compile_patterns([PairsPattern(preset="summary")]), PAGE)) == [
        ("summary", "What does heapify do?", "Transform list into a heap, in-place, in O(len(heap)) time."),
        ("summary", "What does merge do?", "Merge multiple sorted inputs into a single sorted output."),
        ("summary", "What does Dialect do?", "Describe a CSV dialect."),
        ("summary", "What does fromhex do?", "Create a float from a hexadecimal string."),
    ]


def test_title_preset() -> None:
    text = "The history of tea\nHome | About\n\nTea was drunk in China long before it was grown in India. It spread.\n"
    assert list(matched_pairs(compile_patterns([PairsPattern(preset="title")]), text, "The history of tea")) == [
        (
            "title",
            'What is the page "The history of tea" about?',
            "Tea was drunk in China long before it was grown in India.",
        )
    ]
    assert not list(
        matched_pairs(compile_patterns([PairsPattern(preset="title")]), text)
    )  # a text without a title, such as a piece of a novel


def test_questions_of_subjects_and_titles() -> None:
    made = compile_patterns(
        [PairsPattern(pattern=r"(?P<subject>\w+) is (?P<answer>.+)", question="{subject} in {title}?")]
    )
    assert [asked for _, asked, _ in matched_pairs(made, "Tea is good.\nIt is {title}.", "A {subject}")] == [
        "Tea in A {subject}?",
        "It in A {subject}?",
    ]
    assert not list(matched_pairs(made, "Tea is good."))


@pytest.mark.parametrize(
    ("metadata", "url", "told"),
    [
        ({"title": " The history\nof tea "}, "https://example.org/tea", "The history of tea"),
        ({"title": "Tea"}, "https://example.org/tea", ""),
        ({"title": "a long novel", "piece": 3}, "file:novels/a/a long novel.txt#3", ""),
        ({"title": "Of tea"}, "file:books/tea.jsonl#7", "Of tea"),
        ({"title": None}, "https://example.org/tea", ""),
        ({}, None, ""),
    ],
)
def test_the_title_that_a_document_bears(metadata: dict[str, Any], url: str | None, told: str) -> None:
    assert document_title({"metadata": json.dumps(metadata), "url": url}) == told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"pattern": "(?P<subject>a)(?P<answer>b", "question": "{subject}?"}, "missing ) at position 26"),
        ({"pattern": "(?P<subject>a)", "question": "{subject}?"}, "(?P<answer>…)"),
        ({"pattern": "(?P<subject>a)(?P<answer>b)", "question": "What?"}, "must hold {subject} or {title}"),
        ({"pattern": "(?P<answer>b)", "question": "{title}, {subject}?"}, "(?P<subject>…)"),
        ({"pattern": "(?P<subject>a)(?P<answer>b)"}, "lacks 'question'"),
        ({"preset": "title", "question": "{subject}?"}, "the one or the other"),
    ],
)
def test_bad_entries_are_named(entry: dict[str, str], told: str) -> None:
    with pytest.raises(InputError) as error:
        compile_patterns([PairsPattern(preset="summary"), PairsPattern(**entry)])
    assert "finetune.pairs.patterns[1]" in str(error.value)
    assert told in str(error.value)


def test_pathological_pattern_is_stopped() -> None:
    slow = compile_patterns([PairsPattern(pattern=r"^(?P<subject>(a+)+)(?P<answer>(a+)+)$", question="{subject}?")])
    start = time.monotonic()
    with pytest.raises(InputError, match=r"patterns\[0\]\.pattern took more than 0\.2 s"):
        list(matched_pairs(slow, "a" * 5000 + "b", seconds=0.2))
    assert time.monotonic() - start < 5


@given(st.text(alphabet="ab (\n.", max_size=300), st.integers(1, 100), st.integers(1, 30))
def test_window(text: str, characters: int, line: int) -> None:
    seen = bounded_text(text, characters, line)
    assert len(seen) <= characters
    assert all(len(row) <= line for row in seen.split("\n"))
    for old, new in zip(text.split("\n"), seen.split("\n"), strict=False):
        assert new in ("", old)


@given(st.text(alphabet="aA.() \n\t", max_size=2000))
def test_presets_are_quick_and_clean(text: str) -> None:
    for _, question, answer in matched_pairs(
        compile_patterns([PairsPattern.model_validate({"preset": name}) for name in PRESETS]),
        text,
        "A title",
        seconds=1.0,
    ):
        assert answer == " ".join(answer.split())
        assert question.endswith("?")


def test_a_plan_refuses_a_broken_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not finetune.pairs, after pre-training."""
    monkeypatch.chdir(tmp_path)
    config = configuration.validate({"finetune": {"pairs": {"patterns": [{"pattern": "(", "question": "?"}]}}})
    with pytest.raises(InputError, match="is not a regular expression"):
        check_project(Project(config))


def test_the_first_sentence_sums_up_what_follows() -> None:
    """A heading is no sentence; nothing follows a text that ends with its first."""
    body = "The council of the town said on Monday that the old bridge will be closed for two years. " * 4
    lead = "The old bridge over the river is closed until the spring."
    heading = "Bridge closed\n\n"
    (made,) = compile_patterns([PairsPattern(preset="lead")])
    for text in (f"{heading}{lead} {body}", f"{lead}\n{body}", f"{heading}{lead}\n\n{body}"):
        assert list(matched_pairs([made], text)) == [("lead", f"Summarize in one sentence: {body.strip()}", lead)]
    assert not list(matched_pairs([made], f"{heading}{lead}")) and not list(matched_pairs([made], f"{lead} Short."))
