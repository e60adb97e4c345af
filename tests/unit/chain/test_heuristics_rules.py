"""Every rule drops a text that fails it alone, and lets a plain page pass."""

import pytest

from crawl2llm.chain import config, config_schema
from crawl2llm.chain.heuristics_rules import FAMILIES, LanguageRules, Rule, active_rules
from crawl2llm.filters.heuristics.measures import MEASURES, Limits, measure_document
from crawl2llm.filters.heuristics.select import judge_document
from crawl2llm.text.stop_words import stop_words_by_language
from tests.unit.filters.heuristics import cases

EN = stop_words_by_language({})["en"]
DEFAULTS = config.validate({})["heuristics"]["select"]


def failing(text: str, overlay: dict) -> list[str]:
    settings = config.validate({"heuristics": {"select": overlay}})["heuristics"]["select"]
    return judge_document(
        {"id": "x", "curated": False, **measure_document(text, EN, Limits())}, active_rules(settings)
    )["rules"]


def test_a_plain_page_passes() -> None:
    everything = {"c4": {name: cases.SHARE for name in FAMILIES["c4"] if name.endswith("_lines_max")}}
    assert failing(cases.page(), everything) == []


@pytest.mark.parametrize("rule", [f"{family}.{name}" for family, names in FAMILIES.items() for name in names])
def test_fails_exactly_this_rule(rule: str) -> None:
    text, overlay = cases.CASES[rule]
    assert failing(text, overlay) == [rule]


def test_rules_are_the_schemas_in_its_order() -> None:
    node = config_schema.schema()["properties"]["heuristics"]["properties"]["select"]["properties"]
    assert {name: tuple(node[name]["properties"]) for name in FAMILIES} == FAMILIES
    assert list(node["families"]["default"]) == list(FAMILIES)


def test_every_measure_has_a_rule() -> None:
    names = {f"{family}_{name.rsplit('_', 1)[0]}" for family, rest in FAMILIES.items() for name in rest}
    assert names == set(MEASURES)


def test_null_and_families_switch_off() -> None:
    assert "c4.removed_lines_max" not in {rule.name for rule in active_rules(DEFAULTS)}
    only = active_rules({**DEFAULTS, "families": ["fineweb"]})
    assert {rule.name.split(".")[0] for rule in only} == {"fineweb"}


def test_thresholds_are_what_still_passes() -> None:
    low, high = Rule("a", "m", True, 0.5), Rule("b", "m", False, 0.5)
    assert [low.fails(v) for v in (0.4, 0.5, 0.6, None)] == [True, False, False, False]
    assert [high.fails(v) for v in (0.4, 0.5, 0.6, None)] == [False, False, True, False]


def test_a_language_under_the_label_of_another_model() -> None:
    """Thresholds of `zh` hold for `cmn_Hani`; the config's before those of the label, which were calibrated."""
    settings = config.validate({})["heuristics"]["select"]
    own = LanguageRules(settings)
    assert own.rules_of("cmn_Hani") == own.rules_of("zh") != own.default and own.rules_of("eng_Latn") == own.default
    named = {**settings, "languages": {"zh": {"gopher_quality": {"words_min": 7}}}}
    found = LanguageRules(named, {"cmn_Hani": {"gopher_quality.words_min": 3, "gopher_quality.words_max": 90}})
    limits = {rule.name: rule.threshold for rule in found.rules_of("cmn_Hani")}
    assert (limits["gopher_quality.words_min"], limits["gopher_quality.words_max"]) == (7, 90)
