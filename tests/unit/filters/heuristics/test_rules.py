"""Every rule drops a text that fails it alone, and lets a plain page pass."""

from typing import Any

import pytest

from crawl2llm.chain import config
from crawl2llm.filters.heuristics.measures import MEASURES, Limits, measure_document
from crawl2llm.filters.heuristics.rules import FAMILIES, active_rules
from crawl2llm.filters.heuristics.select import rules
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.text.stop_words import stop_words_by_language
from tests.unit import making
from tests.unit.filters.heuristics import cases

EN = stop_words_by_language({})["en"]


def failing(text: str, overlay: dict) -> list[str]:
    settings = config.validate({"heuristics": {"select": overlay}})["heuristics"]["select"]
    row = {"id": "x", "curated": False, **measure_document(text, EN, Limits())}
    return making.verdict("heuristics", row, settings)["rules"]


def test_a_plain_page_passes() -> None:
    everything = {"c4": {name: cases.SHARE for name in FAMILIES["c4"] if name.endswith("_lines_max")}}
    assert failing(cases.page(), everything) == []


@pytest.mark.parametrize("rule", [f"{family}.{name}" for family, names in FAMILIES.items() for name in names])
def test_fails_exactly_this_rule(rule: str) -> None:
    text, overlay = cases.CASES[rule]
    assert failing(text, overlay) == [rule]


def test_every_family_can_be_switched_off() -> None:
    assert SelectSettings().families == list(FAMILIES)


def test_every_measure_has_a_rule() -> None:
    names = {f"{family}_{name.rsplit('_', 1)[0]}" for family, rest in FAMILIES.items() for name in rest}
    assert names == set(MEASURES)


def test_null_and_families_switch_off() -> None:
    assert "c4.removed_lines_max" not in {rule.name for rule in active_rules(SelectSettings())}
    only = active_rules(SelectSettings(families=["fineweb"]))
    assert {rule.name.split(".")[0] for rule in only} == {"fineweb"}


def test_a_language_under_the_label_of_another_model() -> None:
    """Thresholds of `zh` hold for `cmn_Hani`; the config's before those of the label, which were calibrated."""
    settings = SelectSettings()
    named = SelectSettings(languages={"zh": {"gopher_quality": {"words_min": 7}}})
    calibrated = {"cmn_Hani": {"gopher_quality.words_min": 3, "gopher_quality.words_max": 90}}

    def limits(settings: SelectSettings, label: str, **calibrated: Any) -> dict[str, float]:
        return {rule.name: rule.threshold_for(label, settings) for rule in rules(settings, calibrated)}

    assert limits(settings, "cmn_Hani")["c4.sentences_min"] == limits(settings, "zh")["c4.sentences_min"] == 3
    assert limits(settings, "eng_Latn")["c4.sentences_min"] == settings.c4.sentences_min > 3
    found = limits(named, "cmn_Hani", **calibrated)
    assert (found["gopher_quality.words_min"], found["gopher_quality.words_max"]) == (7, 90)
