"""Files of marks: what is no mark is named and counted, and the newest mark counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.stages.report.mark_lines import LONGEST, Mark, parse_mark, read_marks

LINE: dict[str, Any] = {
    "id": "a" * 32, "url": "https://example.org/", "filter": "heuristics", "rule": "c4.sentences_min", "verdict": "dropped",
    "mark": "wrong", "sample": "random", "run": "0" * 16, "variant": "main", "time": "2026-01-02T00:00:00.000Z",
}  # fmt: skip


def written(path: Path, *rows: Any) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def test_a_line_is_a_mark() -> None:
    found = parse_mark(json.dumps(LINE))
    assert found.key == ("heuristics", "dropped", "c4.sentences_min", "a" * 32)
    kept = parse_mark(json.dumps({**LINE, "verdict": "kept", "url": None}))
    assert kept.key == ("heuristics", "kept", "", "a" * 32) and kept.url == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mark": "maybe"}, "mark is 'maybe'; allowed are right, wrong"),
        ({"verdict": "gone"}, "verdict is 'gone'"),
        ({"sample": None}, "sample is None; allowed are random, near"),
        ({"id": 3}, "id is 3"),
        ({"filter": ""}, "filter is ''"),
        ({"rule": None}, "rule is None, and the verdict 'dropped'"),
        ({"url": ["x"]}, "url is ['x']"),
        ({"id": "\ud800"}, r"id is '\ud800'; half of a surrogate pair"),
        ({"filter": "a\udfff"}, r"filter is 'a\udfff'; half"),
        ({"rule": "\ud800"}, r"rule is '\ud800'; half"),
        ({"url": "\ud800"}, r"url is '\ud800'; half"),
        ({"time": "\ud800"}, r"time is '\ud800'; half"),
        ({"run": "\ud800"}, r"run is '\ud800'; half"),
        ({"mark": "\ud800"}, r"mark is '\ud800'; allowed"),
    ],
)
def test_what_is_no_mark_says_why(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_mark(json.dumps({**LINE, **change}))
    assert words in str(error.value)
    str(error.value).encode()


@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.none() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
        ).map(json.dumps),
        st.fixed_dictionaries({key: st.sampled_from([value, None, 1, [], {}]) for key, value in LINE.items()}).map(
            json.dumps
        ),
    )
)
def test_any_line_is_a_mark_or_is_refused_in_words(text: str) -> None:
    try:
        assert isinstance(parse_mark(text), Mark)
    except ValueError as error:
        assert str(error)


def test_deep_and_long_lines_are_refused() -> None:
    for text in ("[" * 50_000, '"' + "x" * LONGEST + '"'):
        with pytest.raises(ValueError):
            parse_mark(text)


def test_bad_lines_are_named_by_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path / "marks.jsonl", LINE, "{", "", {**LINE, "mark": "maybe"})
    found = read_marks([path])
    assert len(found.by_key) == 1 and found.lines == 3
    assert [line.split(": ")[0] for line in found.bad] == [f"{path}:2", f"{path}:4"]
    with pytest.raises(InputError, match="no line is a mark"):
        read_marks([written(tmp_path / "none.jsonl", "hello")])


def test_the_newest_mark_counts_whatever_the_order_of_the_files(tmp_path: Path) -> None:
    old = written(tmp_path / "one", {**LINE, "mark": "right"})
    new = written(tmp_path / "two", {**LINE, "time": "2026-02-01T00:00:00.000Z", "sample": "near"})
    for paths in ([old, new], [new, old]):
        found = read_marks(paths)
        (one,) = found.by_key.values()
        assert one.mark == "wrong" and one.sample == "random"
        assert len(found.differing) == 1
