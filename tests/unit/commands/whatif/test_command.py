"""What other thresholds would keep: both directions, nothing changed, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.__main__ import main
from crawl2llm.chain import steps
from crawl2llm.chain.config import validate
from crawl2llm.commands.trace.results import Results
from crawl2llm.commands.whatif.command import step_exactness, whatif_report
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from tests.workflow.conftest import TINY


@pytest.fixture
def results(complete: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.chdir(complete)
    return Results([TINY])


def step_of(found: dict[str, Any], step: str) -> dict[str, Any]:
    told: dict[str, Any] = next(one for one in found["steps"] if one["step"] == step)
    return told


def counts(folder: Path, results: Results, step: str) -> dict[str, Any]:
    """`in`, `kept` and `dropped` by rule of all tasks of a step."""
    out: dict[str, Any] = {"in": 0, "kept": 0, "dropped": {}}
    for task in steps.result_ids(step, results.config):
        made = Manifest.read(folder / results.manifest_path(step, task)).counts
        out["in"] += made["in"]
        out["kept"] += made["kept"]
        for rule, number in made["dropped"].items():
            out["dropped"][rule] = out["dropped"].get(rule, 0) + number
    return {**out, "dropped": dict(sorted(out["dropped"].items()))}


def test_what_an_unchanged_config_would_keep_is_what_is_there(results: Results) -> None:
    value = results.config["heuristics"]["select"]["gopher_quality"]["words_min"]
    found = whatif_report(results, [f"heuristics.select.gopher_quality.words_min={value}"])
    assert all(one["before"] == one["after"] and not one["edited"] for one in found["steps"])
    assert found["corpus"]["before"] == found["corpus"]["after"] and found["corpus"]["perhaps"] == 0
    for one in found["steps"]:
        assert {key: one["before"][key] for key in ("in", "kept", "dropped")} == counts(Path(), results, one["step"])


def test_both_directions_with_the_nearest_first(results: Results) -> None:
    found = whatif_report(results, ["heuristics.select.gopher_quality.words_min=100"])
    strict = step_of(found, "heuristics.select")
    gone = found["samples"]["heuristics.select"]["gone"]
    assert strict["gone"] >= len(gone) > 0 == strict["back"] and found["corpus"]["perhaps"] == 0
    assert [row["value"] for row in gone] == sorted((row["value"] for row in gone), reverse=True)
    assert found["corpus"]["after"] < found["corpus"]["before"]
    loose = whatif_report(results, ["heuristics.select.gopher_quality.words_min=1"])
    back = step_of(loose, "heuristics.select")["back"]
    assert back > 0 == step_of(loose, "heuristics.select")["gone"]
    assert loose["corpus"]["perhaps"] == back == step_of(loose, "quality.select")["perhaps"]
    assert loose["corpus"]["after"] == loose["corpus"]["before"]
    assert not step_of(loose, "dedup.select")["exact"] and step_of(loose, "lines.select")["exact"]


def test_results_of_another_config_are_named_before_the_table(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif_report(results, ["quality.select.keep_fraction=0.5"])["other_settings"] == {}
    other = tmp_path / "other.yaml"
    tree = merge_dicts(
        yaml.safe_load(TINY.read_text(encoding="utf-8")), nest_value("heuristics.select.gopher_quality.words_min", 31)
    )
    other.write_text(yaml.safe_dump(tree), encoding="utf-8")
    edit = "heuristics.select.gopher_quality.words_min=60"
    assert main(["whatif", edit, "--configfile", str(other)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "heuristics.select was made with other settings than this config has (gopher_quality.words_min: 30 → 31): is it the config "
        "that the run was started with? --configfile names it"
    )
    assert main(["whatif", edit, "--configfile", str(TINY)]) == 0
    rules = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" dropped")]
    assert rules and all(line.split()[1] != line.split()[3] for line in rules)  # those that change


def test_what_is_sure_depends_on_who_is_judged_together_and_on_whose_text() -> None:
    used = [f"{name}.select" for name in ("url", "language", "pii", "heuristics", "dedup", "lines")]

    def unsure(changed: str, method: str | None = None) -> list[str]:
        config = validate({"heuristics": {"calibrate": {"method": method}}})
        return [step.partition(".")[0] for step, sure in step_exactness(used, [changed], config) if not sure]

    assert unsure("language.select") == ["dedup"]
    assert unsure("language.select", "tail") == ["heuristics", "dedup"]  # its thresholds are those of other documents
    assert unsure("heuristics.select", "tail") == ["dedup"]
    assert unsure("pii.select") == ["heuristics", "dedup", "lines"]  # they read what it puts in a find's place
    assert unsure("lines.select") == []
    used = [f"{name}.select" for name in ("language", "pii", "licence", "url", "dedup", "decontaminate")]
    assert unsure("pii.select") == ["dedup"]  # the others read no text, or what stood there before the masks


def test_nothing_is_written(results: Results, complete: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (complete / "results").rglob("*")}
    whatif_report(results, ["quality.select.keep_fraction=0.5", "dedup.select.threshold=0.95"])
    assert {path: path.stat().st_mtime_ns for path in (complete / "results").rglob("*")} == before


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("heuristics.select.gopher_quality.words_min", "is not an edit: write KEY=VALUE"),
        ("dedup.signature.bands=3", "is no key of a select step"),
        ("pii.select.drop_from=3", "the run does not use pii"),
        ("heuristics.select.gopher_quality.word_min=3", "did you mean heuristics.select.gopher_quality.words_min?"),
        ("quality.select.keep_fraction=3", "quality.select.keep_fraction is 3"),
        ("quality.select.keep_fraction=[", "expected"),
        ("language.select.agreement_min=0.5", "nothing is compared"),
    ],
)
def test_what_is_wrong_is_named(results: Results, edit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", edit, "--configfile", str(TINY)]) == 1
    assert said in capsys.readouterr().err
    assert main(["whatif", "quality.select.keep_fraction=0.7", "--configfile", str(TINY)]) == 0
    assert "quality.select" in capsys.readouterr().out
