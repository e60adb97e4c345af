"""Normal forms of runs of marks are the standard's, however long they are."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints
from unicodedata import combining, normalize

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.text.normal_forms import MANY, normal_form

FORMS = get_args(get_type_hints(normal_form)["form"])
MARKS = [chr(point) for point in range(0x300, 0x1F000) if combining(chr(point))]


@given(
    st.text("aé각\u1100\u1161") | st.just("a"),
    st.lists(st.sampled_from(MARKS), min_size=MANY, max_size=3 * MANY),
    st.text(),
)
def test_as_in_the_standard_library(first: str, marks: list[str], last: str) -> None:
    text = first + "".join(marks) + last
    for form in FORMS:
        assert normal_form(form, text) == normalize(form, text)


def test_every_mark_beside_every_class() -> None:
    other: Any = {combining(mark): mark for mark in MARKS}.values()
    for mark in MARKS:
        text = "a" + "".join(mark + one for one in other)
        assert all(normal_form(form, text) == normalize(form, text) for form in FORMS)
