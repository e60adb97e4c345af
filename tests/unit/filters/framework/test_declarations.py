"""A filter that measures documents one by one declares in its `steps.py` what its class says that it reads."""

from __future__ import annotations

from importlib import import_module

import pytest

from crawl2llm.chain.filter_order import FILTERS, ordinary_filters
from crawl2llm.filters.framework.score import Measuring

CLASSES = {
    name: kind
    for name in ordinary_filters()
    for kind in vars(import_module(f"crawl2llm.filters.{name}.score")).values()
    if isinstance(kind, type) and issubclass(kind, Measuring)
}


def test_most_filters_measure_by_such_a_class() -> None:
    assert set(ordinary_filters()) - CLASSES.keys() == {"pii"}


@pytest.mark.parametrize("name", CLASSES)
def test_the_steps_are_those_of_the_class(name: str) -> None:
    score, kind = FILTERS[name].steps["score"], CLASSES[name]
    assert ("edits" in score.inputs, "languages" in score.inputs) == (kind.reads_texts, kind.reads_languages)
    assert (FILTERS[name].edits == "score", score.exempts) == (kind.edits, kind.edits)
    assert ("language" in FILTERS[name].after) == kind.reads_languages
