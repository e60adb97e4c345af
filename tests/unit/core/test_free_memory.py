"""How much memory is free below the limits of control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm.core.free_memory import OWN_CGROUP, available_bytes
from crawl2llm.core.root import ROOT


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(f"{content}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       64000000 kB\nMemFree: 1 kB\nMemAvailable:   40000000 kB\n")
    return path


def test_limits_of_version_2(tmp_path: Path, machine: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/user.slice/job\n")
    assert available_bytes(root, own, machine) == 40_960_000_000
    group(root / "user.slice/job", max="max", current=10**9, stat="inactive_file 5")
    assert available_bytes(root, own, machine) == 40_960_000_000
    group(
        root / "user.slice",
        max=8 * 10**9,
        current=3 * 10**9,
        stat="anon 1\ninactive_file 400000000\nactive_file 600000000",
    )
    assert (
        available_bytes(root, own, machine) == 6 * 10**9
    )  # the limit of the group above counts, its page cache does not, also what was read twice
    own.write_text("0::/../elsewhere\n")  # as in a container with a name space of its own
    group(root, max=2 * 10**9, current=10**9, stat="inactive_file 0")
    assert available_bytes(root, own, machine) == 10**9


def test_limits_of_version_1(tmp_path: Path, machine: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("5:devices:/\n4:cpu,memory:/slurm/job\n0::/\n")
    group(root / "memory", limit_in_bytes=2**63 - 4096, usage_in_bytes=5, stat="total_inactive_file 0")
    assert available_bytes(root, own, machine) == 40_960_000_000
    group(
        root / "memory/slurm/job",
        limit_in_bytes=4 * 10**9,
        usage_in_bytes=10**9,
        stat="total_inactive_file 7\ntotal_active_file 5",
    )
    assert available_bytes(root, own, machine) == 3 * 10**9 + 12


def test_a_real_control_group() -> None:
    name = f"crawl2llm-test-{os.getpid()}"
    lines = [line for line in OWN_CGROUP.read_text().splitlines() if ":memory:" in line]
    group = Path("/sys/fs/cgroup/memory") / lines[0].split(":", 2)[2].lstrip("/") / name if lines else Path("/nowhere")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(1 << 30))
    except OSError as error:
        pytest.skip(f"no control group of one's own can be made here: {error}")
    try:
        code = "from crawl2llm.core.free_memory import available_bytes; print(available_bytes())"
        enter = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -c '{code}'"
        out = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=True, cwd=ROOT)
        assert 0.9 * (1 << 30) < int(out.stdout) <= 1 << 30
    finally:
        group.rmdir()
