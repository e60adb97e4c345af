"""Seconds that SLURM and Snakemake add to a task, against the same tasks started by hand.

    python -m benchmarks.slurm_overhead                    # 20 minutes, most of it sleep; writes benchmarks/results/slurm_overhead.json

On the cluster of tests/slurm, with profiles/slurm at its own pace. A task is the stand-in of tests/slurm/task.py, which
sleeps for its seconds. By hand is the same command started without Snakemake. For each job on the cluster:

- queue: submission to the job's start, by SLURM
- start: the job's start to the program's first line (Snakemake starts once inside a job)
- end: the program's last line to the job's end
- notice: the job's end to Snakemake's `Finished jobid`

`node` (start + end) is what an allocation pays, `all` what the run's clock pays. SLURM counts whole seconds. Groups: the
same small tasks of dedup_band, a job for each, and eight in a job.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import processor, versions
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import HERE, PROFILE, ROOT, slurm

RESULT = ROOT / "benchmarks" / "results" / "slurm_overhead.json"
PAUSE = 0.2  # seconds of a task's step


def by_hand(folder: Path, rule: str, tasks: int, steps: int, together: int) -> float:
    """Seconds that the tasks take when they are started without Snakemake, `together` at a time."""
    folder.mkdir()

    def one(number: int) -> None:
        command = [sys.executable, str(HERE / "task.py"), "--rule", rule, "--shard", f"{number:05d}"]
        command += ["--steps", str(steps), "--pause", str(PAUSE)]
        command += ["--manifest", f"{number:05d}.manifest.json", "--log", f"{number:05d}.log"]
        subprocess.run(command, cwd=folder, check=True)

    begun = time.monotonic()
    with ThreadPoolExecutor(together) as pool:
        list(pool.map(one, range(tasks)))
    return time.monotonic() - begun


def on_the_cluster(folder: Path, rule: str, tasks: int, steps: int, together: int, *options: str) -> float:
    """Seconds of the run of the same tasks with the profile; its output is in out.txt."""
    folder.mkdir()
    config = {"chain": {rule: tasks}, "steps": {rule: steps}, "pause": PAUSE}
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(HERE / "Snakefile"), "--configfile=config.yaml"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    begun = time.monotonic()
    with (folder / "out.txt").open("w") as log:
        subprocess.run(
            [*command, "--profile", str(PROFILE), "--jobs", str(together), *options],
            cwd=folder,
            stdout=log,
            stderr=log,
            check=True,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        )
    return time.monotonic() - begun


def table(path: Path) -> dict[str, float]:
    """Job → time, of starts.tsv or ends.tsv."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {job: float(moment) for moment, _, _, job in rows}


def seconds(text: str, form: str = "%Y-%m-%dT%H:%M:%S") -> float:
    return datetime.strptime(text, form).timestamp()


def parts(folder: Path) -> list[dict[str, float]]:
    """The four parts of the overhead, for each job of a run."""
    output = (folder / "out.txt").read_text(encoding="utf-8")
    finished = {
        number: seconds(when, "%a %b %d %H:%M:%S %Y")
        for when, number in re.findall(r"^\[(.+)\]\nFinished jobid: (\d+)", output, re.MULTILINE)
    }
    starts, ends = table(folder / "starts.tsv"), table(folder / "ends.tsv")
    found = []
    for number, job in re.findall(r"^Job (\d+) has been submitted with SLURM jobid (\d+)", output, re.MULTILINE):
        facts = slurm("scontrol", "show", "job", job)
        submit, start, end = (
            seconds(re.search(rf"{name}Time=(\S+)", facts)[1])  # type: ignore[index]
            for name in ("Submit", "Start", "End")
        )
        found.append(
            {
                "queue": start - submit,
                "start": starts[job] - start,
                "end": end - ends[job],
                "notice": finished[number] - end,
            }
        )
    return found


def share(added: float, task: float = 600) -> float:
    """What `added` seconds are of a task of ten minutes and themselves."""
    return round(added / (task + added), 4)


def measured(base: Path, rule: str, length: float, tasks: int, together: int) -> dict[str, Any]:
    """One row: `tasks` tasks of `length` seconds, `together` at a time."""
    steps = round(length / PAUSE)
    folder = base / f"{rule}-{length:g}"
    with ThreadPoolExecutor(1) as pool:  # at the same time: the tasks sleep
        waiting = pool.submit(by_hand, base / f"hand-{rule}-{length:g}", rule, tasks, steps, together)
        cluster, hand = on_the_cluster(folder, rule, tasks, steps, together), waiting.result()
    jobs = parts(folder)
    median = {name: round(statistics.median(job[name] for job in jobs), 1) for name in jobs[0]}
    node = statistics.mean(job["start"] + job["end"] for job in jobs)
    everything = statistics.mean(sum(job.values()) for job in jobs)
    return {
        "seconds_of_a_task": length,
        "tasks": tasks,
        "at_a_time": together,
        "by_hand_seconds": round(hand, 1),
        "cluster_seconds": round(cluster, 1),
        "median_by_part": median,
        "node_seconds_added_per_task": round(node, 1),
        "all_seconds_added_per_task": round(everything, 1),
        "share_of_a_ten_minute_task": {"node": share(node), "all": share(everything)},
    }


def grouped(base: Path, tasks: int, together: int, each: int) -> dict[str, Any]:
    """The same tasks of a second, a job for each, and `each` in a job."""
    steps = round(1 / PAUSE)
    rule = "dedup_band"
    options = ["--groups", f"{rule}={rule}", "--group-components", f"{rule}={each}"]
    row: dict[str, Any] = {"tasks": tasks, "seconds_of_a_task": 1, "at_a_time": together, "tasks_of_a_group": each}
    row["by_hand_seconds"] = round(by_hand(base / "hand-grouped", rule, tasks, steps, together), 1)
    for name, extra in (("jobs_of_one", []), ("groups", options)):
        folder = base / name
        row[f"{name}_seconds"] = round(on_the_cluster(folder, rule, tasks, steps, together, *extra), 1)
        output = (folder / "out.txt").read_text(encoding="utf-8")
        row[f"{name}_jobs"] = len(re.findall("has been submitted", output))
    return row


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[5, 60, 600], help="lengths of the tasks")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--at-a-time", type=int, default=4)
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args(argv)
    with Cluster(), tempfile.TemporaryDirectory() as name:
        base = Path(name)
        rows = [measured(base, "language_score", length, args.tasks, args.at_a_time) for length in args.seconds]
        groups = grouped(base, 16, 4, 8)
        version = subprocess.run(["sinfo", "-V"], capture_output=True, text=True, check=True).stdout.strip()
    result = {
        "versions": versions("snakemake", "snakemake-executor-plugin-slurm") | {"slurm": version.split()[-1]},
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
        "tasks": rows,
        "groups": groups,
    }
    args.result.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
