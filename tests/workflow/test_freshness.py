"""What is up to date after a move, a loss or an edit: the manifests decide, not clocks and not .snakemake."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core.task_costs import WORK_SUFFIX
from tests.workflow.conftest import TINY, differences, run, snapshot
from tests.workflow.plan import planned
from tests.workflow.test_matrix import config_with, downstream

LOST = ("nothing", ".snakemake", "times", ".snakemake and times")


def tiny() -> dict[str, Any]:
    return yaml.safe_load(TINY.read_text(encoding="utf-8"))


def moved(copy: Path, lost: str, target: Path) -> Path:
    """The folder elsewhere, without what is lost on the way."""
    copy.rename(target)
    if ".snakemake" in lost:
        shutil.rmtree(target / ".snakemake")
    if "times" in lost:
        for number, path in enumerate(sorted(target.rglob("*"), reverse=True)):
            os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number), follow_symlinks=False)
    return target


@pytest.mark.parametrize("lost", LOST)
def test_a_moved_folder_is_up_to_date_and_an_edit_is_seen(
    copy_of: Callable[[], Path], tmp_path: Path, lost: str
) -> None:
    folder = moved(copy_of(), lost, tmp_path / "élsewhere, moved")
    assert planned(folder, tiny()) == set()
    assert planned(folder, config_with("quality.select.keep_fraction", 0.77)) == downstream("quality.select")
    assert planned(folder, config_with("pretrain.train.log_every", 3)) == set()


def test_an_edit_before_the_move(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder = copy_of()
    edited = config_with("corpus.split.validation_fraction", 0.4)
    before = planned(folder, edited)
    assert before == downstream("corpus.split")
    assert planned(moved(folder, ".snakemake and times", tmp_path / "moved"), edited) == before


@pytest.mark.parametrize("half", [0, 1])
def test_half_of_it_missing(copy_of: Callable[[], Path], half: int) -> None:
    """Every second file of the results is gone: what is there and whole is kept, the rest is made again, and all below it."""
    folder = copy_of()
    shutil.rmtree(folder / ".snakemake")
    files = sorted(path for path in (folder / "results").rglob("*.parquet") if "benchmarks" not in path.parts)
    for path in files[half::2]:
        path.unlink()
    steps = planned(folder, tiny())
    touched = {".".join(path.relative_to(folder / "results/main").parts[:2]) for path in files[half::2]}
    assert touched <= steps and "pretrain.train" in steps
    assert "crawl.render" not in steps


def test_a_deleted_step_reruns_nothing_while_its_results_below_are_there(copy_of: Callable[[], Path]) -> None:
    folder = copy_of()
    shutil.rmtree(folder / "results/main/heuristics/score")
    assert planned(folder, tiny()) == set()
    assert "heuristics.score" in planned(folder, config_with("heuristics.select.families", ["c4"]))


def test_a_task_that_was_begun_and_not_finished_is_missed(copy_of: Callable[[], Path]) -> None:
    """A forced or damaged step, killed at its work: its old record tells it from a step that was deleted."""
    folder = copy_of()
    (folder / "results/main/evaluate/model/sft.manifest.json").unlink()
    assert planned(folder, tiny()) == {"evaluate.model[sft]", "evaluate.compare", "report.render"}


def test_touching_everything_removes_nothing(copy_of: Callable[[], Path]) -> None:
    folder = copy_of()
    before = snapshot(folder)
    run(folder, "--touch", "--forceall")
    assert differences(snapshot(folder), before) == []


def test_steps_that_come_out_as_before_keep_their_results_and_costs_and_the_page_is_made(
    copy_of: Callable[[], Path],
) -> None:
    folder = copy_of()
    costs = folder / "results/main/benchmarks/corpus/write/00000.tsv"
    costs.write_text(costs.read_text().replace(costs.read_text().splitlines()[1].split()[0], "1234.5", 1))
    page = folder / "results/main/report/render/report.html"
    page.unlink()
    before = snapshot(folder)
    said = run(folder, "--forcerun", "quality_select")
    assert differences(snapshot(folder), before) == []
    assert re.search(r" corpus\.write +1 task +0s  as before", said), said
    assert page.exists() and "1234.5" in costs.with_suffix(WORK_SUFFIX).read_text(encoding="utf-8")
    page.unlink()
    run(folder)
    assert page.exists()


def test_manifests_of_an_earlier_version_are_not_taken_for_new(copy_of: Callable[[], Path]) -> None:
    import json

    folder = copy_of()
    for path in (folder / "results/main").glob("*/*/*manifest.json"):
        body = json.loads(path.read_text())
        for key in ("inputs", "sources"):
            body.pop(key)
        path.write_text(json.dumps(body))
    assert downstream("ingest.extract") <= planned(folder, tiny())


def test_a_run_says_that_it_replaces_results_of_other_settings(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder, config = copy_of(), tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(config_with("quality.select.keep_fraction", 0.77)), encoding="utf-8")
    first, second = (run(folder, "--until", "corpus_split", config=config) for _ in range(2))
    said = (
        "1 of 2 tasks replaces results made with other settings or code; 1 more only reads what other tasks make anew"
    )
    assert said in first and first.index(said) < first.index("2 tasks of 2 steps"), first
    assert "replace" not in second
