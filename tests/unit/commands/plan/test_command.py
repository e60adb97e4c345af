"""The plan of a dry run, from lines as Snakemake prints them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from crawl2llm.commands.plan import command as plan
from crawl2llm.commands.plan import words
from crawl2llm.commands.plan.estimate import Estimate

OUTPUT = """
rule language_score:
    input: results/main/ingest/extract/00000.manifest.json, crawl/TypeError.txt
    jobid: 3
    reason: Missing output files: results/main/language/score/00000.manifest.json
    wildcards: shard=00000

rule language_score:
    jobid: 4
    reason: Input files updated by another job: results/main/ingest/extract/00001.manifest.json; Params have changed since last execution: not up to date: threshold 0.4 → 0.77

localrule all:
    jobid: 0
    reason: Missing output files: report

This was a dry-run (flag -n). The order of jobs does not reflect the order of execution.
"""  # noqa: E501


def test_one_line_a_rule_with_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.print_plan(OUTPUT.splitlines()) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:4] == [
        "rule                tasks    about  why",
        "language_score          1        ?  not made yet",
        "                        1           threshold 0.4 → 0.77; needs ingest.extract, which runs again",
        "total                   2        ?",
    ]
    assert "how long it takes is not known" in said[4] and len(said) == 5


def test_long_reasons_are_wrapped_below_themselves() -> None:
    why = "code of " + ", ".join(f"scripts/crawl2llm/filters/language/module-{number}.py" for number in range(6))
    lines = list(
        words.plan_lines({"language_score": Counter({why: 2})}, {"language_score": Estimate(75, 0, 0, 2)}, False, 100)
    )
    assert lines[1].startswith(
        "language_score          2    1m15s  code of scripts/crawl2llm/filters/language/module-0.py,"
    )
    assert len(lines) > 3 and max(map(len, lines)) <= 100
    assert all(line.startswith(" " * 36 + "scripts/") for line in lines[2:-1])


def test_a_total_says_what_it_lacks() -> None:
    costs = {"pretrain_train": Estimate(7200, 16, 0, 1), "evaluate_model": Estimate(60, 0.1, 1, 2)}
    found = {"pretrain_train": Counter({"x": 1}), "evaluate_model": Counter({"y": 2})}
    lines = list(words.plan_lines(found, costs, True, 100))
    assert lines[1].split()[:4] == ["pretrain_train", "1", "2h00m", "16.00"]
    assert lines[2].split()[:4] == ["evaluate_model", "2", ">1m00s", "0.10"]
    assert lines[3].split() == ["total", "3", ">2h01m", "16.10"]
    said = words.total_text(costs, True, 2)
    assert said.startswith("estimate: at least 2h01m and at least 16.10 GPU-hours, one step after another, on 2 cores.")
    assert "Never measured: evaluate.model." in said
    whole = words.total_text({"pretrain_train": Estimate(60, 0, 0, 1)}, False, None)
    assert (
        whole.startswith("estimate: 1m00s, one step after another, all tasks of a step at once")
        and "Never" not in whole
    )


def test_cores_are_those_of_the_options_or_of_the_profile(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("cores: all\n")
    assert plan.available_cores(tmp_path, []) == len(os.sched_getaffinity(0))
    assert plan.available_cores(tmp_path, ["--until", "x", "--cores", "7"]) == 7
    (tmp_path / "config.yaml").write_text("cores: 5\n")
    assert plan.available_cores(tmp_path, []) == 5
    assert plan.available_cores(plan.ROOT / "profiles/slurm", []) is None


def test_the_config_is_found_by_snakemakes_options(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("{ingest: {extract: {shards: 3}}}")
    found = plan.config_of_options(["--until", "x", "--configfile", str(path), "--config", "data=here"], tmp_path)
    assert found and found["data"] == "here" and found["ingest"]["extract"]["shards"] == 3
    assert plan.config_of_options(["--configfile", str(tmp_path / "none.yaml")], tmp_path) is None
    (tmp_path / "config.yaml").write_text("{ingest: {extract: {shards: 5}}}")
    here = plan.config_of_options([], tmp_path)
    assert here and here["ingest"]["extract"]["shards"] == 5


def test_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.print_plan("Building DAG of jobs...\nNothing to be done (all …).\n".splitlines()) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_errors_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.print_plan("WorkflowError in file x:\nkey y is wrong\n".splitlines()) == 1
    assert capsys.readouterr().out == "WorkflowError in file x:\nkey y is wrong\n"


def test_a_refusal_is_passed_on_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.print_plan("Using profile x.\nerror: key y is wrong\n".splitlines()) == 1
    assert capsys.readouterr().out == "error: key y is wrong\n"


@pytest.mark.parametrize(
    "output", ["", "snakemake: error: unrecognized arguments: --nonsense\n", OUTPUT.split("This was")[0]]
)
def test_a_plan_that_was_not_finished_is_no_plan(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Seen: a mistyped option, and the answer was that every result is up to date."""
    assert plan.print_plan(output.splitlines()) == 1
    said = capsys.readouterr().out
    assert "nothing to do" not in said and "ended before its plan was complete" in said
