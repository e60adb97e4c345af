"""A dry run's lines, read into tasks."""

from __future__ import annotations

from pathlib import Path

from crawl2llm.commands.plan import dryrun

LINES = """
  Working directory: /runs/one two
Job stats:
language_score    1

[Sun Nov 22 00:28:17 2026]
rule language_score:
    input: a.manifest.json, crawl/TypeError.txt
    output: results/strict/language/score/00003.manifest.json
    log: logs/x.log
    reason: Missing output files: x
    wildcards: variant=strict, shard=00003
    threads: 4
    resources: tmpdir=/tmp, gres=gpu:h100:4, card=8, nodes=2
[Sun Nov 22 00:28:17 2026]
localrule report_render:
    output: results/main/report/render/manifest.json, results/main/report/render/report.html
localrule all:
    input: results/main/report/render/report.html
This was a dry-run (flag -n).
""".splitlines()


def test_tasks_are_read_with_what_snakemake_says_of_them() -> None:
    (score, report), errors = dryrun.parse_output(LINES)
    assert errors == []
    assert (score.step, score.variant, score.id, score.threads, score.requested_gpus) == (
        "language.score",
        "strict",
        "00003",
        4,
        8,
    )
    assert score.inputs == ["a.manifest.json", "crawl/TypeError.txt"]
    assert (report.step, report.variant, report.id, report.threads, report.requested_gpus) == (
        "report.render",
        "main",
        "",
        1,
        None,
    )
    assert report.inputs == []


def test_errors_are_all_lines_from_the_first_on() -> None:
    tasks, errors = dryrun.parse_output([*LINES, "error: key x is wrong", "and why"])
    assert len(tasks) == 2 and errors == ["error: key x is wrong", "and why"]


def test_the_folder_of_the_run() -> None:
    assert dryrun.working_directory(LINES) == Path("/runs/one two")
    assert dryrun.working_directory(["Building DAG of jobs..."]) == Path()
