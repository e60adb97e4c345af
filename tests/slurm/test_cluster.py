"""The SLURM profile on a real cluster: where jobs go, and every failure ends in the result of an unbroken run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from crawl2llm.commands import status
from crawl2llm.core import retries
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT, Drive, beside, slurm, until

Make = Callable[..., Drive]
Unbroken = Callable[[Drive], dict[str, str]]


def job(drive: Drive, rule: str, task: int = 0) -> dict[str, str]:
    """`scontrol show job` of a task's newest job."""
    return dict(part.split("=", 1) for part in drive.fact(rule, task)["job"].split() if "=" in part)


def site(drive: Drive, partition: str) -> str:
    """The option for another site's partitions file: everything goes to `partition`."""
    file = drive.folder / "partitions.yaml"
    file.write_text(f"partitions: {{{partition}: {{max_gpu: 8, available_gpu_models: [h100]}}}}\n", encoding="utf-8")
    return f"--slurm-partition-config={file}"


@beside
def test_time_limit_in_a_data_task(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    """A task of more than a minute under a limit of one, the least that SLURM counts in; the next attempt has four."""
    run = drive({"language_score": 1}, {"language_score": 350}).start(
        "--set-resources", "language_score:runtime=attempt**2"
    )
    run.finish()
    assert "TIMEOUT" in run.output
    # On a busy machine the first job may end before its program has begun.
    jobs = list((run.folder / "logs/slurm/rule_language_score/main_00000").glob("*.log"))
    assert len(jobs) == 2 and len(run.table("starts")) in (1, 2) and len(run.table("ends")) == 1
    assert job(run, "language_score")["TimeLimit"] == "00:04:00"
    assert run.results() == unbroken(run)


@beside
def test_out_of_memory(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    """A task that takes more than it asked for is ended by SLURM, and has twice the memory in its next attempt."""
    run = drive({"language_score": 1}, {"language_score": 30})
    (run.folder / "hold-language_score").write_text("800", encoding="utf-8")
    run.start("--set-resources", "language_score:mem_mb=700*attempt").finish()
    killed = run.folder / f"logs/slurm/rule_language_score/main_00000/{run.table('starts')[0][3]}.log"
    assert "exceeded memory limit" in killed.read_text(encoding="utf-8", errors="replace")
    assert "Error in rule language_score" in run.output and str(killed) in run.output
    assert len(run.table("starts")) == 2 and len(run.table("ends")) == 1
    assert job(run, "language_score")["MinMemoryNode"] == "1400M"
    assert run.results() == unbroken(run)


@beside
def test_placement_names_logs_and_retry(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    run = drive({"language_score": 2, "pretrain_train": 1, "evaluate_model": 2})
    (run.folder / "fail-language_score").touch()
    run.start("--resources", "card=4").finish()
    assert run.results() == unbroken(run)

    cpu, train, score = job(run, "language_score"), job(run, "pretrain_train"), job(run, "evaluate_model")
    assert cpu["Partition"] == "cpu" and "TresPerNode" not in cpu
    assert cpu["Comment"] == "rule_language_score_wildcards_main_00000"
    assert train["Partition"] == score["Partition"] == "h100"
    assert train["TresPerNode"] == "gres:gpu:h100:4" and score["TresPerNode"] == "gres:gpu:h100:1"
    assert (train["NumNodes"], train["CPUs/Task"], train["TimeLimit"]) == ("1", "48", "23:00:00")
    assert len(run.fact("pretrain_train")["CUDA_VISIBLE_DEVICES"].split(",")) == 4
    assert len(run.fact("evaluate_model")["CUDA_VISIBLE_DEVICES"].split(",")) == 1
    assert run.fact("language_score")["CUDA_VISIBLE_DEVICES"] is None
    assert cpu["JobName"].startswith("crawl2llm_") and cpu["Requeue"] == "1"

    # One task failed once: said with its rule and its log, and tried again with more memory and time.
    failed = re.search(r"Error in rule language_score:.*?(\S+/(\d+)\.log) \(check log", run.output, re.DOTALL)
    assert failed, run.output
    folder = run.folder / "logs/slurm/rule_language_score"
    assert Path(failed[1]).parent.parent == folder
    assert "was told to fail once" in Path(failed[1]).read_text(encoding="utf-8")
    starts = [row for row in run.table("starts") if row[1] == "language_score"]
    assert len(starts) == 3
    first, again = (row[3] for row in starts if row[2] == next(r[2] for r in starts if r[3] == failed[2]))
    limits = [re.findall(r"TimeLimit=(\S+)", slurm("scontrol", "show", "job", number)) for number in (first, again)]
    assert limits == [["01:00:00"], ["02:00:00"]]
    # The logs of tasks that succeeded are kept as well, each under its rule and its shard.
    assert sorted(path.name for path in folder.iterdir()) == ["main_00000", "main_00001"]
    assert len(list(folder.rglob("*.log"))) == 3


@beside
def test_a_node_loses_power(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    data, train = (
        drive({"language_score": 1}, {"language_score": 150}),
        drive({"pretrain_train": 1}, {"pretrain_train": 150}),
    )
    slurm("scontrol", "update", "NodeName=f2", "State=DRAIN", "Reason=test")
    data.start(site(data, "fragile"))
    train.start(site(train, "fragile"))
    until("both tasks at work", lambda: data.working("language_score") and train.working("pretrain_train"))
    slurm("scontrol", "update", "NodeName=f2", "State=RESUME")
    cluster.crash("f1")
    data.finish()
    train.finish()
    cluster.revive("f1")
    for run, rule in ((data, "language_score"), (train, "pretrain_train")):
        starts = run.table("starts")
        assert len(starts) == 2 and len(run.table("ends")) == 1
        assert starts[0][3] == starts[1][3], "SLURM queued the job again; Snakemake did not submit another"
        assert job(run, rule)["NodeList"] == "f2"
        assert run.results() == unbroken(run)


@beside
def test_preempted(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    run = drive({"pretrain_train": 1}, {"pretrain_train": 40})
    run.start(site(run, "low"))
    until("the task at work", lambda: run.working("pretrain_train"))
    urgent = ["-p", "urgent", "--gres=gpu:h100:8", "--time=1", "--output=/dev/null", "--wrap=sleep 2"]
    slurm("sbatch", "--chdir=/", *urgent)
    run.finish()
    assert len(run.table("starts")) == 2 and len({row[3] for row in run.table("starts")}) == 1
    assert run.results() == unbroken(run)


@beside
def test_cancelled_by_somebody_else_and_the_cap_on_gpus(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    run = drive({"evaluate_model": 2}, {"evaluate_model": 15}).start("--resources", "card=1")
    until("a task at work", lambda: run.working("evaluate_model", 0) or run.working("evaluate_model", 1))
    cancelled = run.queue()
    assert len(cancelled) == 1, "card=1 lets one GPU be asked for at a time"
    slurm("scancel", *cancelled)
    run.finish()
    assert "FAILED" in run.output or "CANCELLED" in run.output
    assert run.results() == unbroken(run)
    assert len(run.table("starts")) == 3 and len(run.table("ends")) == 2


@beside
def test_trainings_of_variants_are_jobs_side_by_side_as_far_as_the_cap_on_gpus_lets_them(
    drive: Make, cluster: Cluster, unbroken: Unbroken
) -> None:
    """Four GPUs each: with 8 the two trainings run at the same time, with 4 one after the other."""
    runs = {cap: drive({"pretrain_train": 1}, {"pretrain_train": 40}) for cap in (8, 4)}
    for cap, run in runs.items():
        path = run.folder / "config.yaml"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"variants": ["main", "other"]}), "utf-8")
        run.start("--resources", f"card={cap}")
    for cap, run in runs.items():
        run.finish()
        spans = sorted(
            (float(start[0]), float(end[0]))
            for start in run.table("starts")
            for end in run.table("ends")
            if start[3] == end[3]
        )
        assert len(spans) == 2 and (spans[1][0] < spans[0][1]) is (cap == 8), spans


@beside
def test_interrupted_then_again(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    run = drive({"language_score": 2}, {"language_score": 150}).start()
    until("both tasks at work", lambda: run.working("language_score", 0) and run.working("language_score", 1))
    run.send(signal.SIGINT)
    assert run.end(60) != 0
    until("no job left", lambda: not run.queue(), 20)
    assert not run.table("ends")
    run.start().finish()
    assert "left from a run that was killed" not in run.output
    assert run.results() == unbroken(run)


@beside
def test_killed_then_again_runs_no_second_copy(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    run = drive({"language_score": 2}, {"language_score": 150}).start()
    until("both tasks at work", lambda: run.working("language_score", 0) and run.working("language_score", 1))
    orphans = run.queue()
    run.send(signal.SIGKILL)
    run.end()
    assert sorted(run.queue()) == sorted(orphans), "the jobs outlive Snakemake"
    run.start().finish()
    assert run.output.count("left from a run that was killed: cancelled") == 2
    assert run.results() == unbroken(run), "two copies would have written lines twice"
    for orphan in orphans:
        facts = slurm("scontrol", "show", "job", orphan)
        assert "JobState=CANCELLED" in facts
        end = re.search(r"EndTime=(\S+)", facts)[1]  # type: ignore[index]
        assert all(job(run, "language_score", task)["StartTime"] >= end for task in (0, 1))


@beside
def test_a_busy_controller(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    """A quarter of all calls fails, half of the submissions arrive without an answer, and then there is silence for a while."""
    run = drive({"language_score": 4, "language_select": 2, "evaluate_model": 1}, {"language_select": 20})
    silent = run.busy(percent=25, lost=50)
    run.start("--retries=0")
    until(
        "the second rule at work", lambda: run.working("language_select", 0) or run.working("language_select", 1), 240
    )
    silent.touch()
    until("the silence is told", lambda: "SLURM does not answer (squeue: error: Unable to contact" in run.output)
    silent.unlink()
    run.finish()
    assert run.results() == unbroken(run)
    assert run.once_each() and not run.queue()
    wrong = {(row[1], row[2]) for row in run.unheard}
    assert wrong >= {("failed", "squeue"), ("lost", "sbatch")}, wrong
    assert run.output.count("SLURM does not answer") == run.output.count("SLURM answers again, after ") <= 2
    assert "Falling back" not in run.output and "Error in rule" not in run.output


@beside
def test_a_submission_that_arrives_late(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    """It was cut off, squeue did not show it, it was sent again: the copy that comes after all never runs."""
    run = drive({"language_score": 1}, {"language_score": 100})
    run.busy(lost=100, late=8)
    run.start()
    until("a submission is lost", lambda: bool(run.unheard))
    (run.folder / "busy" / "sbatch").unlink()  # the next ones are heard
    until("the task at work", lambda: run.working("language_score"))
    until("a copy", lambda: len(run.queue()) == 2, 30)
    copies = [
        line.split("|")
        for line in slurm("squeue", "-h", "-o", "%i|%r|%Z").splitlines()
        if line.endswith(f"|{run.folder}")
    ]
    assert sorted(reason for _, reason, _ in copies) == ["JobHeldUser", "None"]
    run.finish()
    assert run.results() == unbroken(run)
    assert len(run.table("starts")) == 1 and not run.queue()


@beside
def test_a_controller_that_stays_silent(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    """The run ends with one line; the job keeps running, and the next start deals with what is left of it."""
    run = drive({"language_score": 1, "language_select": 1}, {"language_score": 450})
    silent = run.busy()
    run.environment[retries.LIMIT_VARIABLE] = "20"
    run.start()
    until("the task at work", lambda: run.working("language_score"))
    silent.touch()
    assert run.end(120) == 1
    said = [line for line in run.output.splitlines() if "SLURM did not answer for 20 s" in line]
    assert len(said) == 1, run.output
    assert "squeue: error: Unable to contact slurm controller" in said[0] and "nothing is lost" in said[0]
    assert "Error in rule" not in run.output and "Traceback" not in run.output
    orphans = run.queue()
    assert len(orphans) == 1, "the job keeps running"
    silent.unlink()
    run.start().finish()
    assert f"job {orphans[0]} (language_score main_00000, running) is left from a run that was killed" in run.output
    assert run.results() == unbroken(run)


@beside
def test_a_job_that_slurm_has_forgotten(drive: Make, cluster: Cluster, unbroken: Unbroken) -> None:
    """squeue lacks a job: what it left behind says whether it ended well; it is not waited for without end."""
    run = drive({"language_score": 2}, {"language_score": 40})
    run.busy()
    filtered = run.folder / "busy" / "squeue"
    filtered.unlink()
    filtered.write_text("""#!/bin/bash
case "$*" in *--states=all*) /usr/bin/squeue "$@" | grep -v -x -F -f "$FORGOTTEN" ;; *) exec /usr/bin/squeue "$@" ;; esac
true
""")
    filtered.chmod(0o755)
    forgotten = run.folder / "forgotten"
    forgotten.touch()
    run.environment["FORGOTTEN"] = str(forgotten)
    run.start()
    until("both tasks at work", lambda: run.working("language_score", 0) and run.working("language_score", 1))
    good, lost = run.fact("language_score", 0)["SLURM_JOB_ID"], run.fact("language_score", 1)["SLURM_JOB_ID"]
    states = ("RUNNING", "COMPLETING", "COMPLETED", "CANCELLED")
    forgotten.write_text("".join(f"{number}|{state}\n" for number in (good, lost) for state in states))
    slurm("scancel", lost)
    run.finish()
    assert f"SLURM does not know job {lost} any more, and it left no sign of a good end" in run.output
    assert f"SLURM does not know job {good}" not in run.output
    assert len(run.table("starts")) == 3 and len(run.table("ends")) == 2
    assert run.results() == unbroken(run)


def test_slurmctld_restarts(
    drive: Make, cluster: Cluster, unbroken: Unbroken, started: dict[str, Future[None]]
) -> None:
    """Away for three seconds in each phase of a run: no job fails, none is submitted twice."""
    wait(started.values())
    run = drive({"language_score": 2, "language_select": 1}, {"language_score": 20})
    run.start("--retries=0")
    phases = {
        "submitting": lambda: "Select jobs" in run.output,
        "starting": lambda: "RUNNING" in slurm("squeue", "-h", "-o", "%T"),
        "at work": lambda: run.working("language_score"),
        "ended": lambda: len(run.table("ends")) == 2,
        "submitting again": lambda: "rule language_select:" in run.output,
    }
    for phase, reached in phases.items():
        until(phase, reached)
        cluster.restart_controller(away=3)
    run.finish()
    assert run.results() == unbroken(run)
    assert run.once_each() and "Error in rule" not in run.output


def test_status(drive: Make, cluster: Cluster, unbroken: Unbroken, started: dict[str, Future[None]]) -> None:
    """Two tasks fill both nodes; the third waits for one of them, and fails once."""
    wait(started.values())
    run = drive({"evaluate_model": 3}, {"evaluate_model": 100})
    whole_node = ["evaluate_model:gres='gpu:h100:1'", "evaluate_model:card=1", "evaluate_model:cpus_per_task=96"]
    run.start("--set-resources", *whole_node)
    shown = ""

    def shows(*words: str) -> bool:
        nonlocal shown
        shown = "\n".join(status.status_lines(run.folder, lines=3))
        return all(word in shown for word in words)

    until(
        "two run, one waits",
        lambda: shows("running: 2 jobs, 2 GPUs", "waiting: 1 job") and shown.count("log's rate") == 2,
    )
    (run.folder / "fail-evaluate_model").touch()
    assert re.search(
        r"^  evaluate_model +main_0000\d +\d+ +1  h[12] +\d+s +1h00m  .*, in \d+s \(its log's rate\)$", shown, re.M
    )
    assert re.search(r"^  evaluate_model +1  pending: (Resources|Priority|None)", shown, re.M), shown
    assert "gave a sign of life" in shown and "not yet made good: 0 jobs" in shown
    until("a failure", lambda: shows("not yet made good: 1 job", "      error: evaluate_model was told to fail once"))
    hours = re.search(r"GPU-hours: ([\d.]+) \(from the jobs' logs; sacct does not answer\)", shown)
    assert hours and 0 <= float(hours[1]) < 0.1
    run.finish()
    assert run.results() == unbroken(run)
    after = "\n".join(status.status_lines(run.folder, lines=3))
    assert "4 of 4 tasks of the newest run are done (100 %)" in after and "not yet made good: 0 jobs" in after
    ends = {row[3]: float(row[0]) for row in run.table("ends")}
    spent = sum(ends[row[3]] - float(row[0]) for row in run.table("starts") if row[3] in ends)
    counted = status.hours_by_logs(run.folder, running=set())["evaluate_model"] * 3600
    assert spent < counted < spent + 4 * 45, "and the seconds in which a job starts and ends"


def test_what_the_cluster_cannot_give_is_refused_before_submission(drive: Make) -> None:
    """Every rule asks for something else; all of it is named at once."""
    asked = {
        "language_score:slurm_partition=gpux": (
            "language_score: partition 'gpux' does not exist; the cluster has cpu, fragile, h100, low"
        ),
        "pretrain_train:slurm_partition=h100 pretrain_train:gres='gpu:a100:4'": (
            "pretrain_train: asks for gres gpu:a100:4; nodes of partition h100 have gpu:h100:8"
        ),
        "finetune_train:slurm_partition=h100 finetune_train:runtime=3000": (
            "finetune_train: asks for 3000 min; partition h100 allows 1440 min"
        ),
        "evaluate_model:slurm_partition=h100 evaluate_model:nodes=3 evaluate_model:mem_mb=1000000": (
            "evaluate_model: asks for 3 nodes"
        ),
        "url_score:slurm_partition=cpu url_score:mem_mb=900000": (
            "url_score: asks for 900000 MB; the largest node of partition cpu has 128000 MB"
        ),
        "heuristics_score:runtime=3000": "heuristics_score: no partition of slurm-partition-config takes it",
    }
    run = drive(dict.fromkeys((option.split(":")[0] for option in asked), 1))
    run.start("--set-resources", *" ".join(asked).split())
    assert run.end() == 1
    for message in asked.values():
        assert message in run.output
    assert "has been submitted" not in run.output and not run.queue()


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 0, "preflight passed"),
        (
            ["--set-resources", "language_score:slurm_partition=gpux"],
            1,
            "error: language_score: partition 'gpux' does not exist",
        ),
    ],
)
def test_the_preflight_alone_submits_nothing(drive: Make, options: list[str], status: int, said: str) -> None:
    run = drive({"language_score": 1, "pretrain_train": 1})
    command = [sys.executable, "-m", "crawl2llm", "preflight", "--profile", str(run.profile)]
    done = subprocess.run(
        [*command, "--snakefile", str(run.snakefile), "--configfile", "config.yaml", *options],
        cwd=run.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status and said in done.stdout, done.stdout + done.stderr
    assert "pretrain_train            1  " in done.stdout
    assert not run.queue() and not run.results()
