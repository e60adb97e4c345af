"""The plan of a dry run, from lines as Snakemake prints them."""

from __future__ import annotations

import pytest

from scripts.common import plan

OUTPUT = """
rule language_score:
    input: results/main/ingest/extract/00000.manifest.json, crawl/TypeError.txt
    jobid: 3
    reason: Missing output files: results/main/language/score/00000.manifest.json
    wildcards: shard=00000

rule language_score:
    jobid: 4
    reason: Input files updated by another job: x; Params have changed since last execution: not up to date: threshold 0.4 → 0.77

localrule all:
    jobid: 0
    reason: Missing output files: report

This was a dry-run (flag -n). The order of jobs does not reflect the order of execution.
"""


def test_one_line_a_rule_with_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    rules, errors = plan.plan(OUTPUT.splitlines())
    assert errors == [] and list(rules) == ["language_score"]
    assert rules["language_score"] == {
        "not made yet": 1,
        "a step that it reads runs again + threshold 0.4 → 0.77": 1,
    }
    assert plan.show(OUTPUT.splitlines()) == 0
    assert "total                     2" in capsys.readouterr().out


def test_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.show("Building DAG of jobs...\nNothing to be done (all …).\n".splitlines()) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_errors_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.show("WorkflowError in file x:\nkey y is wrong\n".splitlines()) == 1
    assert capsys.readouterr().out == "WorkflowError in file x:\nkey y is wrong\n"


def test_a_refusal_is_passed_on_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.show("Using profile x.\nerror: key y is wrong\n".splitlines()) == 1
    assert capsys.readouterr().out == "error: key y is wrong\n"


@pytest.mark.parametrize(
    "output", ["", "snakemake: error: unrecognized arguments: --nonsense\n", OUTPUT.split("This was")[0]]
)
def test_a_plan_that_was_not_finished_is_no_plan(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Seen: a mistyped option, and the answer was that every result is up to date."""
    assert plan.show(output.splitlines()) == 1
    said = capsys.readouterr().out
    assert "nothing to do" not in said and "ended before its plan was complete" in said
