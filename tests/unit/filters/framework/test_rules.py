"""A rule drops what fails its threshold, and keeps the rest: for all, for languages, for some documents, and under several rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crawl2llm.core.settings import Settings, section
from crawl2llm.filters.framework.columns import Columns, columns_of_document
from crawl2llm.filters.framework.rules import OFF, Comparison, Match, Rule, failed_rules


class Deep(Settings):
    most: int = 7


class Some(Settings):
    most: int = 5
    least: int = 2
    off: int | None = None
    deep: Deep = section()


SETTINGS = Some()


def failed(rules: list[Rule | Match], language: str = "", **numbers: float | None) -> list[tuple[str, Any, Any]]:
    (failures,) = failed_rules(rules, columns_of_document(numbers, language), SETTINGS)
    return [(failure.rule, failure.value, failure.threshold) for failure in failures]


@pytest.mark.parametrize(("drops", "dropped"), [("<", [4.0]), ("<=", [4.0, 5.0]), (">", [6.0]), (">=", [5.0, 6.0])])
def test_the_threshold_itself(drops: Comparison, dropped: list[float]) -> None:
    rule = Rule("r", "n", drops, "most")
    assert [number for number in (4.0, 5.0, 6.0) if failed([rule], n=number)] == dropped
    assert not failed([rule], n=None), "what was not measured passes"


def test_a_key_may_be_null_or_below_a_section_and_a_threshold_may_have_no_key() -> None:
    assert not failed([Rule("r", "n", ">", "off")], n=1e9)
    assert not failed([Rule("r", "not measured", ">", "off")])
    assert failed([Rule("r", "n", ">", "deep.most")], n=8) == [("r", 8.0, 7.0)]
    assert failed([Rule("r", "n", "<", 1)], n=0) == [("r", 0.0, 1.0)]


def test_thresholds_of_languages() -> None:
    own, looser = {"de": 9.0, "fi": 1.0, "th": OFF}, {"ko": 8.0, "zh": 3.0, "lo": OFF, "de": 100.0}
    rule = Rule("r", "n", ">", "most", by_language=own.get, looser=looser.get)
    limits = {label: rule.threshold_for(label, SETTINGS) for label in ("en", "de", "fi", "ko", "zh")}
    assert limits == {"en": 5, "de": 9, "fi": 1, "ko": 8, "zh": 5}, "its own in any case, a looser one only if it is"
    assert not failed([rule], "th", n=1e9) and not failed([rule], "lo", n=1e9) and failed([rule], "en", n=6)
    off = Rule("r", "n", ">", "off", by_language=own.get, looser=looser.get)
    assert failed([off], "fi", n=2) and not failed([off], "ko", n=1e9), "a looser one does not switch a rule on"


def test_rules_for_some_documents() -> None:
    small = Rule("r", "n", ">", "most", when=lambda columns: columns.values("kind") == 0)
    large = Rule("r", "n", ">", 50, when=lambda columns: columns.values("kind") == 1)
    assert failed([small, large], n=6, kind=0) == [("r", 6.0, 5.0)]
    assert not failed([small, large], n=6, kind=1) and failed([small, large], n=60, kind=1) == [("r", 60.0, 50.0)]
    both = Rule("r", "n", ">", "most", also=("m", "least"))
    assert failed([both], n=6, m=2) and not failed([both], n=6, m=1)


def test_all_rules_are_listed_in_order_and_each_name_once() -> None:
    rules = [Rule("b", "n", ">", 1), Rule("a", "n", ">", "most"), Rule("b", "n", ">", 2)]
    assert failed(rules, n=6) == [("b", 6.0, 1.0), ("a", 6.0, 5.0)]


def test_a_rule_that_compares_no_number() -> None:
    columns = Columns([pa.table({"name": ["bad", "good", None]})], np.zeros(3, np.int64), [""])
    found = failed_rules([Match("name", "name", lambda text: text if text == "bad" else None)], columns, SETTINGS)
    assert [[failure.detail for failure in row] for row in found] == [["bad"], [], []]
    some = Match("name", "name", when=lambda columns: np.array([False, True, True]))
    assert [len(row) for row in failed_rules([some], columns, SETTINGS)] == [0, 1, 0]


def test_what_another_threshold_moves() -> None:
    """Not documents of languages that keep their own, nor those that a looser threshold spares whatever the other is."""
    labels = ["en", "de", "ko", "ko", "lo"]
    rule = Rule("r", "n", ">", "most", by_language={"de": 9.0}.get, looser={"ko": 8.0, "lo": OFF}.get)
    columns = Columns([pa.table({"n": [6, 6, 7, 9, 9]})], np.arange(5), labels)
    values, fixed = rule.movable_values(columns, SETTINGS)
    assert np.array_equal(values, [6, np.nan, np.nan, 9, np.nan], equal_nan=True)
    assert fixed.tolist() == [False, True, False, False, False]
