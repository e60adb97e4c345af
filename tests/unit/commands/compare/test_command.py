"""Records of runs, and what differs between two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.__main__ import main
from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.commands.compare.collect import load_record, run_record
from crawl2llm.commands.compare.command import differing_values
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from crawl2llm.filters.heuristics import select
from tests.workflow.conftest import TINY

WORDS = "heuristics.select.gopher_quality.words_min"


@pytest.fixture
def other(complete: Path, tmp_path: Path) -> Path:
    """The results of the tiny run, with heuristics.select by another threshold."""
    target = tmp_path / "run"
    shutil.copytree(complete / "results", target / "results", symlinks=True)
    tree = merge_dicts(yaml.safe_load(TINY.read_text(encoding="utf-8")), nest_value(WORDS, 60))
    mark = fingerprint("heuristics.select", configuration.validate(tree))
    folder = target / "results/main/heuristics"
    for shard in ("00000", "00001"):
        scores, made = folder / f"score/{shard}.manifest.json", folder / f"select/{shard}.manifest.json"
        assert select.main(["--config", mark, "--signals", str(scores), "--manifest", str(made)]) == 0
    return target / "results/main"


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["compare", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_record_has_what_made_the_results(complete: Path) -> None:
    found = run_record(complete / "results/main", [str(TINY)])
    of = found["steps"]["heuristics.select"]
    counts = [
        Manifest.read(complete / f"results/main/heuristics/select/{shard}.manifest.json").counts
        for shard in ("00000", "00001")
    ]
    assert of["counts"]["in"] == sum(one["in"] for one in counts) and of["tasks"] == 2
    assert (
        of["by"][""]["config"]["gopher_quality"]["words_min"] == 30
        and "scripts/crawl2llm/filters/heuristics/select.py" in of["by"][""]["code"]
    )
    assert of["versions"]["python"] and of["machine"]["processor"] and of["seconds"] > 0
    assert set(found["steps"]["evaluate.model"]["by"]) == {"base", "sft", "untrained"}
    assert found["missing"] == [] and found["config"]["filters"][0] == "url"


def test_summaries_of_all_tasks_are_kept_and_what_adds_up_is_told(
    complete: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(complete / "results", folder / "results", symlinks=True)
    place = folder / "results/main/corpus/write"
    before = run_record(complete / "results/main")["steps"]["corpus.write"]
    assert set(before["summary"]) == {"00000", "00001"} and list(before["by"]) == [""]
    path = place / "00001.manifest.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["summary"]["train"]["documents"] += 7
    path.write_text(json.dumps(told), encoding="utf-8")
    beside = place / "00001.run.json"
    run = json.loads(beside.read_text(encoding="utf-8"))
    run["machine"]["host"] = "another"
    beside.write_text(json.dumps(run), encoding="utf-8")
    after = run_record(folder / "results/main")["steps"]["corpus.write"]
    assert "another" in after["machine"]["host"] and len(after["machine"]["host"]) == 2
    found = asked(capsys, str(complete / "results/main"), str(folder / "results/main"))
    number = sum(of["train"]["documents"] for of in before["summary"].values())
    assert found["sums"] == {"corpus.write.train.documents": [number, number + 7]}
    assert list(found["measures"]) == ["corpus.write.00001.train.documents"]
    assert main(["compare", str(complete / "results/main"), str(folder / "results/main")]) == 0
    assert f"corpus.write.train.documents: {number} → {number + 7}" in capsys.readouterr().out


@pytest.mark.parametrize("config", [[], ["--configfile", str(TINY)]])
def test_missing_tasks_are_not_told_as_fewer_documents(
    complete: Path, tmp_path: Path, config: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(complete / "results", folder / "results", symlinks=True)
    (folder / "results/main/heuristics/select/00001.manifest.json").unlink()
    words = ["compare", str(complete / "results/main"), str(folder / "results/main"), *config]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert (
        "A has 2 of 2 tasks of heuristics.select, B 1 of 2: counts of that step are not compared" in said.splitlines()
    )
    assert "heuristics.select.kept" not in said
    found = asked(capsys, *words[1:])
    assert found["partial"] == {"heuristics.select": {"a": [2, 2], "b": [1, 2]}}
    assert not any(found[key] for key in ("counts", "sums", "measures", "settings", "input"))


def test_two_records_of_one_run_differ_in_nothing(
    complete: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, out = str(complete / "results/main"), tmp_path / "run.json"
    assert main(["record", results, "--out", str(out), "--configfile", str(TINY)]) == 0
    assert load_record(out)["steps"] == run_record(complete / "results/main", [str(TINY)])["steps"]
    found = asked(capsys, str(out), results, "--configfile", str(TINY))
    assert not any(found[key] for key in ("settings", "code", "input", "versions", "machine", "counts", "measures"))
    assert set(found["same_files"]) == set(found["seconds"])


def test_another_threshold_is_told_with_what_it_changed(
    complete: Path, other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = str(complete / "results/main")
    found = asked(capsys, results, str(other), "--configfile", str(TINY))
    assert found["settings"] == {WORDS: [30, 60]}
    before, after = found["counts"]["heuristics.select.kept"]
    assert after < before and "heuristics.select" not in found["same_files"] and "dedup.select" in found["same_files"]
    assert main(["compare", results, str(other), "--configfile", str(TINY)]) == 0
    said = capsys.readouterr().out
    assert f"{WORDS}: 30 → 60" in said and f"heuristics.select.kept: {before} → {after}" in said
    # What stands behind it is of the verdicts before, and the config has other settings than it was made with.
    assert not found["outdated"]["a"] and not found["other_settings"]["a"]
    assert "an earlier version of heuristics.select" in found["outdated"]["b"]["corpus.write"]
    assert found["other_settings"]["b"] == ["heuristics.select"]
    assert "B is not of one run: " in said and "A is not of one run" not in said
    assert "B has results of other settings or code than its config has now: heuristics.select" in said


def test_leaves_that_differ() -> None:
    assert differing_values({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 1, "c": [2]}, "e": {}}) == {
        "a.c": [[1], [2]],
        "d": [2, None],
        "e": [None, {}],
    }


def test_what_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    for words, said in (
        (["compare", str(tmp_path / "none"), str(tmp_path)], "neither a folder of results nor a record"),
        (["compare", str(tmp_path / "a.json"), str(tmp_path)], "no record of format 2"),
        (["record", str(tmp_path / "none")], "is not a folder"),
        (["record", str(tmp_path)], "no step has finished there"),
    ):
        assert main(words) == 1 and said in capsys.readouterr().err
