"""Every rule drops a text that fails it alone, and lets a plain page pass."""

import pytest

from scripts.heuristics.measures import MEASURES, Limits, measure
from scripts.heuristics.rules import FAMILIES, Rule, rules
from scripts.heuristics.select import judge
from scripts.heuristics.stop_words import tables
from scripts.workflow import config
from tests.unit.heuristics import cases

EN = tables({})["en"]
DEFAULTS = config.validate({})["heuristics"]["select"]


def failing(text: str, overlay: dict) -> list[str]:
    settings = config.validate({"heuristics": {"select": overlay}})["heuristics"]["select"]
    return judge({"id": "x", "curated": False, **measure(text, EN, Limits())}, rules(settings))["rules"]


def test_a_plain_page_passes() -> None:
    everything = {"c4": {name: cases.SHARE for name in FAMILIES["c4"] if name.endswith("_lines_max")}}
    assert failing(cases.page(), everything) == []


@pytest.mark.parametrize("rule", [f"{family}.{name}" for family, names in FAMILIES.items() for name in names])
def test_fails_exactly_this_rule(rule: str) -> None:
    text, overlay = cases.CASES[rule]
    assert failing(text, overlay) == [rule]


def test_rules_are_the_schemas_in_its_order() -> None:
    node = config.schema()["properties"]["heuristics"]["properties"]["select"]["properties"]
    assert {name: tuple(node[name]["properties"]) for name in FAMILIES} == FAMILIES
    assert list(node["families"]["default"]) == list(FAMILIES)


def test_every_measure_has_a_rule() -> None:
    names = {f"{family}_{name.rsplit('_', 1)[0]}" for family, rest in FAMILIES.items() for name in rest}
    assert names == set(MEASURES)


def test_null_and_families_switch_off() -> None:
    assert "c4.removed_lines_max" not in {rule.name for rule in rules(DEFAULTS)}
    only = rules({**DEFAULTS, "families": ["fineweb"]})
    assert {rule.name.split(".")[0] for rule in only} == {"fineweb"}


def test_thresholds_are_what_still_passes() -> None:
    low, high = Rule("a", "m", True, 0.5), Rule("b", "m", False, 0.5)
    assert [low.fails(v) for v in (0.4, 0.5, 0.6, None)] == [True, False, False, False]
    assert [high.fails(v) for v in (0.4, 0.5, 0.6, None)] == [False, False, True, False]
