"""The verdict on a document that fails rules."""

from __future__ import annotations

from crawl2llm.formats.verdicts import FailedRule, verdict_row

LONG, LICENCE = FailedRule("words_max", 9.0, 5.0), FailedRule("licence", detail="gpl-3.0")


def test_the_first_rule_drops_it_and_all_are_listed() -> None:
    found = verdict_row("x", [LONG, LICENCE])
    assert found == {
        "id": "x",
        "kept": False,
        "rule": "words_max",
        "value": 9.0,
        "threshold": 5.0,
        "detail": None,
        "rules": ["words_max", "licence"],
    }
    assert verdict_row("x", [LICENCE, LONG])["detail"] == "gpl-3.0"


def test_one_that_stays_has_its_rules_and_no_numbers() -> None:
    found = verdict_row("x", [LONG], stays=True)
    assert found["kept"] and found["rules"] == ["words_max"]
    assert found["rule"] is found["value"] is found["threshold"] is None
    kept = verdict_row("x", [])
    assert kept["kept"] and kept["rules"] == [] and kept == verdict_row("x", [], stays=True)
