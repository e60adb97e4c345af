"""What is known of a run: documents, and how long it takes still."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawl2llm.commands.watch.lines import time_left_text
from crawl2llm.commands.watch.run import Run, documents_text
from crawl2llm.commands.watch.screen import activity_text, elapsed_text, steps_by_stage


def info(folder: Path, number: int, rule: str, shard: str = "", variant: str = "main") -> SimpleNamespace:
    """The fields of a JOB_INFO event."""
    wildcards = {"variant": variant} | ({"shard": shard} if shard else {})
    where = f"{rule.replace('_', '/', 1)}{f'/{shard}' if shard else ''}"
    return SimpleNamespace(
        jobid=number, rule_name=rule, wildcards=wildcards, log=[f"logs/{where}.log"],
        output=[f"results/{where}.manifest.json"], shellcmd="x",
    )  # fmt: skip


def done(run: Run, task: SimpleNamespace, now: float, read: int, kept: int) -> None:
    """A task ends with these counts."""
    path = run.folder / task.output[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"counts": {"in": read, "kept": kept}}), encoding="utf-8")
    run.stop_task(task.jobid, now, finished=True)


def test_documents_and_time(tmp_path: Path) -> None:
    run = Run(tmp_path, 0)
    run.set_plan({"all": 1, "total": 6, "language_select": 1, "ingest_extract": 4})
    assert list(run.steps) == ["ingest.extract", "language.select"]
    assert run.time_left(0, 0) == (None, ["ingest.extract", "language.select"], [])
    for number in (1, 2):
        assert (
            str(run.start_task(info(tmp_path, number, "ingest_extract", f"0000{number}"), 0))
            == f"ingest.extract 0000{number}"
        )
    done(run, info(tmp_path, 1, "ingest_extract", "00001"), 10, 100, 90)
    assert run.kept_documents() is None, "not before all shards are read"
    assert run.time_left(10, 0) == (
        10.0,
        ["language.select"],
        [],
    )  # two tasks that wait, two at once, as the one that ended
    for number in (2, 3, 4):
        run.start_task(info(tmp_path, number, "ingest_extract", f"0000{number}"), 10)
        done(run, info(tmp_path, number, "ingest_extract", f"0000{number}"), 20, 100, 90)
    assert documents_text(run.kept_documents()) == "360 of 400 documents kept after ingest.extract"
    run.start_task(info(tmp_path, 5, "language_select"), 20)
    done(run, info(tmp_path, 5, "language_select"), 25, 360, 40)
    assert documents_text(run.kept_documents()) == "40 of 400 documents kept after language.select"
    assert run.time_left(25, 0) == (0.0, [], [])


def test_documents_of_a_task_of_several_shards(tmp_path: Path) -> None:
    run = Run(tmp_path, 0)
    run.set_plan({"language_score": 1})
    task = info(tmp_path, 1, "language_score", "00000")
    task.shellcmd = "python -m crawl2llm.filters.language.score --also 00001 00002 --at-once 2 --manifest x"
    run.start_task(task, 0)
    for shard in ("00001", "00002"):
        path = tmp_path / f"results/language/score/{shard}.manifest.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"counts": {"in": 10, "kept": 9}}), encoding="utf-8")
    done(run, task, 10, 100, 90)
    assert (run.steps["language.score"].documents_read, run.steps["language.score"].documents_kept) == (120, 108)


def test_documents_of_main_alone(tmp_path: Path) -> None:
    """Variants judge the same documents again: together they would keep more than there are."""
    run = Run(tmp_path, 0)
    run.set_plan({"ingest_extract": 1, "language_select": 2})
    run.start_task(info(tmp_path, 1, "ingest_extract", "00000"), 0)
    done(run, info(tmp_path, 1, "ingest_extract", "00000"), 10, 100, 90)
    for number, variant in ((2, "main"), (3, "without-url")):
        run.start_task(info(tmp_path, number, "language_select", variant=variant), 10)
        done(run, info(tmp_path, number, "language_select", variant=variant), 20, 90, 80)
    assert documents_text(run.kept_documents()) == "80 of 100 documents kept after language.select"
    assert run.steps["language.select"].documents_kept == 160


def test_nothing_is_said_where_the_first_step_ran_for_few_shards(tmp_path: Path) -> None:
    run = Run(tmp_path, 0)
    run.set_plan({"ingest_extract": 1, "language_select": 1})
    for number, rule, read, kept in ((1, "ingest_extract", 10, 9), (2, "language_select", 90, 80)):
        run.start_task(info(tmp_path, number, rule), 0)
        done(run, info(tmp_path, number, rule), 10, read, kept)
    assert run.kept_documents() is None


def test_a_training_says_itself_how_long_it_takes(tmp_path: Path) -> None:
    run = Run(tmp_path, 0)
    run.set_plan({"pretrain_train": 1})
    task = run.start_task(info(tmp_path, 1, "pretrain_train"), 0)
    assert task and task.log
    task.log.parent.mkdir(parents=True)
    task.log.write_text("10:00:00 pretrain.train: step 1/9, loss 2.5000, 1m00s left\n")
    run.read_logs()
    written = task.log.stat().st_mtime
    assert run.time_left(50, written + 20) == (pytest.approx(40), [], []) and task.tail and task.tail.loss == 2.5
    with task.log.open("a") as log:
        log.write("10:01:00 pretrain.train: step 9/9, validation loss 3.1698, 1.6909 bits per byte\n")
    run.read_logs()
    assert run.steps["pretrain.train"].result == "validation loss 3.170 nats a token"


def test_a_task_that_takes_longer_than_it_should_has_no_time_left_to_be_told(tmp_path: Path) -> None:
    """A judge whose endpoint is dead waits for minutes: `about 0s left` was said all that time."""
    path = tmp_path / "results/main/benchmarks/evaluate/judge/sft.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("s\th:m:s\n12.5\t0:00:12\n")
    run = Run(tmp_path, 0)
    run.set_plan({"evaluate_judge": 1, "report_render": 1})
    run.start_task(info(tmp_path, 1, "evaluate_judge", "sft"), 0)
    assert run.time_left(14, 0) == (0.0, ["report.render"], [])
    assert run.time_left(139, 0) == (None, ["report.render"], ["evaluate.judge"])
    late = "evaluate.judge takes longer than expected"
    assert time_left_text(run, 139) == f"report.render not measured yet; {late}"
    run.steps["report.render"].seconds_before = 30.0
    assert time_left_text(run, 139) == f"at least 30s left ({late})"
    assert time_left_text(run, 2) == "about 40s left"


def test_times_of_earlier_runs(tmp_path: Path) -> None:
    path = tmp_path / "results/main/benchmarks/dedup/exact.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("s\th:m:s\n12.5\t0:00:12\n")
    run = Run(tmp_path, 0)
    run.set_plan({"dedup_exact": 1})
    assert run.time_left(0, 0) == (12.5, [], [])


def test_a_variant_is_named(tmp_path: Path) -> None:
    assert str(Run(tmp_path, 0).start_task(info(tmp_path, 1, "language_score", "00003", "strict"), 0)) == (
        "language.score 00003 of strict"
    )


def test_a_stage_that_only_waits_has_no_running_clock(tmp_path: Path) -> None:
    run = Run(tmp_path, 0)
    run.set_plan({"finetune_pairs": 1, "finetune_train": 1})
    steps = steps_by_stage(run)["finetune"]
    assert elapsed_text(steps, 5) == ""
    run.start_task(info(tmp_path, 1, "finetune_pairs"), 10)
    assert elapsed_text(steps, 11) == "1s"
    run.stop_task(1, 13, finished=True)
    assert elapsed_text(steps, 200) == "3s", "pretraining goes on meanwhile"
    run.start_task(info(tmp_path, 2, "finetune_train"), 210)
    assert elapsed_text(steps, 215) == "3m25s"
    run.stop_task(2, 220, finished=True)
    assert elapsed_text(steps, 999) == "3m30s"


def test_a_stage_tells_what_its_first_step_read_and_its_last_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, 0)
    run.set_plan({"ingest_extract": 1, "ingest_check": 1, "heuristics_score": 1, "heuristics_select": 2})
    tasks = [
        (info(tmp_path, 1, "ingest_extract"), 425, 53),
        (info(tmp_path, 2, "ingest_check"), 53, 53),
        (info(tmp_path, 3, "heuristics_score"), 53, 53),
        (info(tmp_path, 4, "heuristics_select"), 53, 40),
        (info(tmp_path, 5, "heuristics_select", variant="strict"), 53, 30),
    ]
    for task, read, kept in tasks:
        run.start_task(task, 1)
        done(run, task, 2, read, kept)
    assert [activity_text(steps) for steps in steps_by_stage(run).values()] == ["53 of 425 kept", "40 of 53 kept"]
