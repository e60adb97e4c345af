"""Which GPUs a job has: real processes and the kernel's locks; no GPU is needed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from crawl2llm.chain import gpu_slots, steps
from crawl2llm.core import devices
from crawl2llm.core.root import ROOT
from crawl2llm.workflow import rule_parts

TWO = ["GPU-1", "GPU-2"]
# Takes GPUs, says so, and holds them for a while, or until it is ended.
JOB = """
import os, sys, time
from crawl2llm.chain import gpu_slots
locks = gpu_slots.take_gpus(int(sys.argv[1]))
begun = time.monotonic()
print(os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
if sys.argv[3:]:
    import subprocess
    print(subprocess.Popen(["sleep", "60"], pass_fds=locks, stdout=subprocess.DEVNULL).pid, flush=True)
time.sleep(float(sys.argv[2]))
print(begun, time.monotonic(), flush=True)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """start(number, seconds, …): a job of a run that has TWO."""
    monkeypatch.delenv(devices.VISIBLE_VARIABLE, raising=False)
    monkeypatch.setenv(gpu_slots.VARIABLE, "")  # is taken away again at the end
    gpu_slots.announce_gpus(TWO, tmp_path / "gpus")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def job(*words: float | str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", JOB, *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    return job


def line(job: subprocess.Popen[str]) -> str:
    assert job.stdout
    return job.stdout.readline().strip()


def free(folder: Path) -> list[str]:
    """The GPUs that nobody holds."""
    for number in (2, 1):
        if held := gpu_slots.lock_free_gpus(folder, TWO, number):
            for _, handle in held:
                handle.close()
            return [name for name, _ in held]
    return []


def test_jobs_never_share_a_gpu(start: Start) -> None:
    """Six jobs of a run with two GPUs, one of which wants both: every time of a GPU is one job's alone."""
    jobs = [start(number, 0.3) for number in (1, 1, 2, 1, 1, 1)]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in TWO}
    for job in jobs:
        names = line(job).split(",")
        begun, ended = map(float, line(job).split())
        for name in names:
            times[name].append((begun, ended))
        assert job.wait() == 0
    assert sum(map(len, times.values())) == 7 and all(len(of) > 1 for of in times.values())
    for of in times.values():
        of.sort()
        assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(of))


def test_two_jobs_that_need_both_do_not_wait_for_one_another(start: Start) -> None:
    jobs = [start(2, 0.1) for _ in range(3)]
    assert [line(job) for job in jobs] == ["GPU-1,GPU-2"] * 3
    assert [job.wait(timeout=900) for job in jobs] == [0, 0, 0]


def test_a_killed_job_leaves_its_gpu_free(start: Start, tmp_path: Path) -> None:
    first, second = start(1, 60), start(1, 60)
    assert {line(first), line(second)} == set(TWO)
    assert free(tmp_path / "gpus") == []
    waits = start(1, 0)
    time.sleep(0.5)
    assert waits.poll() is None
    first.kill()
    assert line(waits) in TWO
    second.kill()
    for job in (first, second, waits):
        job.wait()
    assert free(tmp_path / "gpus") == TWO


def test_a_gpu_is_held_while_a_process_of_the_job_lives(start: Start, tmp_path: Path) -> None:
    """The launcher is killed, and a process that it started still has the GPU."""
    job = start(2, 60, "starts another")
    assert line(job) == "GPU-1,GPU-2"
    child = int(line(job))
    job.kill()
    job.wait()
    assert free(tmp_path / "gpus") == []
    os.kill(child, signal.SIGKILL)
    for _ in range(6000):
        if free(tmp_path / "gpus"):
            break
        time.sleep(0.05)
    assert free(tmp_path / "gpus") == TWO


def test_a_job_that_wants_more_gets_all_and_one_outside_a_run_none(start: Start) -> None:
    many = start(4, 0)
    assert line(many) == "GPU-1,GPU-2" and many.wait() == 0
    gpu_slots.announce_gpus([])
    outside = start(1, 0)
    assert line(outside) == "None" and outside.wait() == 0


def test_a_run_that_may_have_fewer_gives_a_job_no_more(start: Start, tmp_path: Path) -> None:
    """`--resources card=1` on a machine with two GPUs: the other may be somebody else's. With `card=0` jobs see none."""
    gpu_slots.announce_gpus(TWO, tmp_path / "gpus", most=1)
    many = start(2, 60)
    assert line(many) == "GPU-1" and free(tmp_path / "gpus") == ["GPU-2"]
    many.kill()
    many.wait()
    gpu_slots.announce_gpus(TWO, tmp_path / "gpus", most=0)
    none = start(1, 0)
    assert line(none) == "" and none.wait() == 0
    gpu_slots.announce_gpus(TWO, tmp_path / "gpus", most=8)
    both = start(8, 0)
    assert line(both) == "GPU-1,GPU-2" and both.wait() == 0


def holds_back(pid: int, number: int) -> bool:
    """Whether a process catches or blocks a signal."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return any(int(facts[mask], 16) >> (number - 1) & 1 for mask in ("SigCgt", "SigBlk"))


def test_a_signal_that_is_held_back_ends_the_wait(start: Start, tmp_path: Path) -> None:
    """The launcher holds signals back: it would wait on while Snakemake wants it to end."""
    other = start(2, 1000)  # longer than the wait below may take: only the signal can end it
    line(other)
    end = time.monotonic() + 900
    waits = subprocess.Popen(
        [sys.executable, "-m", "crawl2llm.training.launch", "--processes", "1", "platform"], cwd=ROOT, stderr=subprocess.DEVNULL
    )  # fmt: skip
    while not holds_back(waits.pid, signal.SIGTERM):  # it is still being started
        assert waits.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(2)
    assert waits.poll() is None
    waits.send_signal(signal.SIGTERM)
    assert waits.wait(timeout=60) == 85
    other.kill()
    other.wait()


@pytest.mark.parametrize(
    ("options", "expected"), [([], {"GPU-1,GPU-2"}), (["--device=cpu"], {"None"}), (["--device", "cpu"], {"None"})]
)
def test_the_processes_of_a_training_see_its_gpus(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: set[str]
) -> None:
    (tmp_path / "shown.py").write_text(
        "import os\nos.write(1, f\"{os.environ.get('CUDA_VISIBLE_DEVICES')}\\n\".encode())\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    command = [sys.executable, "-m", "crawl2llm.training.launch", "--processes", "2", "shown", *options]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert set(out.split()) == expected and len(out.split()) == 2


def test_an_evaluation_takes_one_and_another_step_none(start: Start) -> None:
    program = "import os, sys\nfrom crawl2llm.chain import gpu_slots\ngpu_slots.take_for_step(*sys.argv[1:])\n"
    program += "print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    for words, expected in (
        (("evaluate.model",), "GPU-1"),
        (("quality.transformers", "cpu"), "None"),
        (("dedup.band",), "None"),
    ):
        out = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True).stdout
        assert out.strip() == expected


def test_who_needs_how_many(start: Start) -> None:
    assert gpu_slots.gpus_needed("pretrain.train", {"device": "auto", "processes": 4}) == 4
    assert gpu_slots.gpus_needed("pretrain.train", {"device": "cpu", "processes": 4}) == 0
    assert gpu_slots.gpus_needed("evaluate.public", {}) == 1
    assert gpu_slots.gpus_needed("quality.transformers", {"device": "cpu"}) == 0
    assert gpu_slots.gpus_needed("dedup.band", {}) == 0
    gpu_slots.announce_gpus([])
    assert gpu_slots.gpus_needed("pretrain.train", {"device": "auto", "processes": 4}) == 0


def test_every_rule_that_takes_a_gpu_on_a_cluster_takes_one_here() -> None:
    """The rules that the SLURM profile gives `card` are those of this machine, with align.pairs, whose model is small."""
    here = {steps.rule_of(step) for step in steps.STEPS if rule_parts.takes_gpus(step)}
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    there = {rule for rule, wants in profile["set-resources"].items() if "card" in wants}
    assert here == there | {"align_pairs"}


def test_torchs_allocator_grows_its_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (gpu_slots.ALLOCATION, "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert gpu_slots.allocator_variables(tmp_path) == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert gpu_slots.allocator_variables(tmp_path / "no driver") == {}
    for name in (gpu_slots.ALLOCATION, "PYTORCH_CUDA_ALLOC_CONF"):
        with monkeypatch.context() as own:
            own.setenv(name, "max_split_size_mb:64")
            assert gpu_slots.allocator_variables(tmp_path) == {}


def test_the_folder_is_the_runs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_slots.VARIABLE, "")
    gpu_slots.announce_gpus(TWO, tmp_path / "gpus")
    assert (tmp_path / "gpus").stat().st_mode & 0o077 == 0
    assert json.loads(os.environ[gpu_slots.VARIABLE])["names"] == TWO and gpu_slots.gpus_of_run() == (
        tmp_path / "gpus",
        TWO,
        2,
    )
