"""Cores beside a GPU, by files as the kernel's below /sys, and the affinity of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crawl2llm.core.root import ROOT
from crawl2llm.training import numa

GPU = "0000:1b:00.0"
# Binds itself, with a thread that is there before, and shows the cores of both.
BINDS = """
import os, sys, threading
from pathlib import Path
from crawl2llm.training import numa
done = threading.Event()
other = threading.Thread(target=done.wait, daemon=True)
other.start()
near = numa.bind_to_node(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
print(sorted(near), sorted(os.sched_getaffinity(0)), sorted(os.sched_getaffinity(other.native_id)))
"""


def system(root: Path, node: int, listed: str) -> Path:
    device, folder = root / "bus/pci/devices" / GPU, root / f"devices/system/node/node{node}"
    for made in (device, folder):
        made.mkdir(parents=True)
    (device / "numa_node").write_text(f"{node}\n")
    (folder / "cpulist").write_text(f"{listed}\n")
    return root


def test_lists_of_the_kernel() -> None:
    assert numa.parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert numa.parse_cpu_list("5") == {5} and numa.parse_cpu_list("\n") == set()


def test_cores_of_a_gpus_node(tmp_path: Path) -> None:
    system(tmp_path, 1, "32-63,96-127")
    assert numa.cores_near(GPU, tmp_path) == set(range(32, 64)) | set(range(96, 128))
    assert numa.cores_near("0000:99:00.0", tmp_path) == set()


def test_a_kernel_that_does_not_say(tmp_path: Path) -> None:
    system(tmp_path, -1, "0-3")
    assert numa.cores_near(GPU, tmp_path) == set()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.parametrize(
    ("cores", "threads", "bound"), [(1, 1, True), (1, 2, False), (2, 1, False), (0, 1, False)]
)  # fewer than its threads; all that it has; none of those it may use
def test_a_process_is_bound(tmp_path: Path, cores: int, threads: int, bound: bool) -> None:
    own = sorted(os.sched_getaffinity(0))[:2]
    listed = ",".join(map(str, own[:cores])) or "4096"
    root = system(tmp_path, 1, listed)
    command = [sys.executable, "-c", BINDS, GPU, str(threads), str(root)]
    out = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, own),
    ).stdout.strip()  # fmt: skip
    near = own[:cores]
    assert out == (f"{near} {near} {near}" if bound else f"[] {own} {own}")


def test_a_cpu_and_a_person_who_does_not_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> set[int]:
        raise AssertionError

    monkeypatch.setattr(numa, "bind_to_node", fail)
    numa.bind_to(torch.device("cpu"), True, 1)
    numa.bind_to(torch.device("cuda", 0), False, 1)
