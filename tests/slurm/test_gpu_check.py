"""gpu-check as a job of two nodes: one table, one status, and a job that SLURM does not take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT


def run_gpu_check(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crawl2llm", "gpu-check", "--slurm", "--tiny", *options]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/scripts", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, env=environment)


def test_two_nodes_give_one_table(cluster: Cluster, tmp_path: Path) -> None:
    """Each node starts a process, and they find each other."""
    done = run_gpu_check(tmp_path, "--nodes", "2", "--json", "a.json", "--only", "machine", "links")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is submitted" in done.stderr
    assert "| machine | GPUs, driver and versions of 2 nodes | the same | the same | ok |" in done.stdout
    body = json.loads((tmp_path / "a.json").read_text())
    assert (body["nodes"], body["processes"]) == (2, 2)
    values = {line["what"]: line.get("values", {}) for line in body["lines"]}
    assert values["GPUs, driver and versions of 2 nodes"]["nodes"] == ["cpu1", "cpu2"]
    assert "all-reduce between nodes, 2 processes, 1 MiB" in values


@pytest.mark.long
def test_the_death_of_all_processes_is_followed_by_a_load_in_new_ones(cluster: Cluster, tmp_path: Path) -> None:
    done = run_gpu_check(tmp_path, "--nodes", "2", "--only", "load")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| resume | first loss after the load | ±0.0e+00 nats" in done.stdout


def test_a_job_that_slurm_does_not_take_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    done = run_gpu_check(tmp_path, "--sbatch=--partition=nowhere")
    assert done.returncode == 1
    assert "error: SLURM does not take the job" in done.stderr and "partition" in done.stderr
