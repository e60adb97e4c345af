"""A process of a training that hangs is named, with its host, its step and the place in the program: on one node and on two."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.unit.stages.pretrain.runs import finish, wait_for

pytestmark = (
    pytest.mark.slow
)  # starts trainings, and no copies: a process is found by its environment, and says its stack
SHORT = "--step-timeout=10"


def of_rank(launcher: subprocess.Popen[str], rank: int) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(launcher.pid).children(recursive=True)
        if child.environ().get("RANK") == str(rank)
    )


@pytest.mark.long
@pytest.mark.parametrize("engine", ["torch", "deepspeed"])
def test_one_that_sleeps_in_its_step(start: Any, tmp_path: Path, engine: str) -> None:
    log = tmp_path / "train.log"
    began = time.monotonic()
    options = [SHORT, "--log", str(log)]
    errors = finish(
        start(tmp_path, 2, {"engine": engine}, *options, program="tests.unit.stages.pretrain.hung", copied=False), 1
    )
    error = next(line for line in errors.splitlines() if line.startswith("error: "))
    found = re.match(
        r"error: rank 1 \(of 2 processes, on (\S+), process id \d+\) hangs in step 6 \(micro-batch 1 of", error
    )
    assert found, errors
    assert found[1] == socket.gethostname()
    assert "rank 0 on" in error
    assert "rank 0 (of" not in error  # which waits
    # Innermost first, and of the main thread alone.
    where = errors[errors.index("where rank 1 is") :].splitlines()
    assert re.search(r'hung\.py", line \d+ in waits_for_a_lock', where[1])
    assert any(re.search(r'train\.py", line \d+ in train', line) for line in where) and not any(
        "_beat" in line for line in where
    )
    assert "waits_for_a_lock" in log.read_text() and "hangs in step 6" in log.read_text()
    assert time.monotonic() - began < 90
    assert not list((tmp_path / "checkpoints").glob(".alive-*"))


def test_one_that_is_stopped(start: Any, tmp_path: Path) -> None:
    process = start(tmp_path, 2, {"engine": "torch"}, SHORT, copied=False)
    wait_for(process, tmp_path, "checkpoints/*/step-000005")
    of_rank(process, 0).send_signal(signal.SIGSTOP)
    error = finish(process, 1)
    assert re.search(r"error: rank 0 \(of 2 processes, .* hangs in step \d+ .*; it is stopped \(SIGSTOP\)", error)
    assert "where rank 0 is (most recent call first):" in error, error
    assert re.search(r'train\.py", line \d+ in', error), error


@pytest.mark.long
def test_the_launcher_of_its_node_says_it_on_two_nodes(start: Any, tmp_path: Path) -> None:
    """Two launchers, as srun starts them on two nodes; SLURM's two commands are scripts here."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("squeue", "echo node[1-2]"), ("scontrol", "echo 127.0.0.1; echo 127.0.0.1")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(stat.S_IRWXU)
    job = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0"}
    job["GLOO_SOCKET_IFNAME"] = "lo"
    launcher = ("--nodes", "2", "--on-a-node")
    first, second = (
        start(
            tmp_path, 1, {"engine": "torch"}, SHORT, program="tests.unit.stages.pretrain.hung", launcher=launcher,
            copied=False, **job, SLURM_PROCID=str(node),
        )
        for node in range(2)
    )  # fmt: skip
    errors = finish(second, 1)
    assert "error: rank 1 (of 2 processes" in errors and "waits_for_a_lock" in errors
    told = finish(first, 1)
    assert "error: ended, since rank 1 (of 2 processes" in told and "hangs in step 6" in told


@pytest.mark.long
def test_one_that_is_not_stopped_goes_on(start: Any, tmp_path: Path) -> None:
    """A pause shorter than the limit ends nothing."""
    process = start(tmp_path, 2, {"engine": "torch"}, SHORT, copied=False)
    wait_for(process, tmp_path, "checkpoints/*/step-000005")
    paused = of_rank(process, 1)
    paused.send_signal(signal.SIGSTOP)
    time.sleep(5)
    paused.send_signal(signal.SIGCONT)
    assert "hangs" not in finish(process)
