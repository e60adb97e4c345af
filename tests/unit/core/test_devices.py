"""GPUs of a machine, by a pretended nvidia-smi and pretended files of the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm.core import devices
from crawl2llm.core.root import ROOT

TWO = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-aaaa-bbbb-cccc-000000000001)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-22222222-aaaa-bbbb-cccc-000000000002)
"""
CUT = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-aaaa-bbbb-cccc-000000000001)
  MIG 3g.20gb     Device  0: (UUID: MIG-5d5ba0d6-0001)
  MIG 3g.20gb     Device  1: (UUID: MIG-5d5ba0d6-0002)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-22222222-aaaa-bbbb-cccc-000000000002)
"""
OLD_SLICE = """GPU 0: A100-SXM4-40GB (UUID: GPU-11111111)
  MIG 1g.5gb Device 0: (UUID: MIG-GPU-11111111/7/0)
"""
FIRST, SECOND = "GPU-11111111-aaaa-bbbb-cccc-000000000001", "GPU-22222222-aaaa-bbbb-cccc-000000000002"


def pretend(folder: Path, listed: str, driver: str = "580.65.06", status: int = 0) -> Path:
    """A folder for PATH with an nvidia-smi that lists this and names this driver."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "listed").write_text(listed, encoding="utf-8")
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\n[ {status} = 0 ] || exit {status}\n"
        f'case "$1" in -L) cat {folder}/listed;; --query-gpu=driver_version) echo {driver};; *) exit 6;; esac\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH, and no variable of a person's own."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(devices.VISIBLE_VARIABLE, raising=False)
    return tmp_path / "bin"


@pytest.mark.parametrize(
    ("listed", "given", "expected"),
    [
        (TWO, None, [FIRST, SECOND]),
        (TWO, "1,0", ["1", "0"]),
        (TWO, "1", ["1"]),
        (TWO, " 0 , 1 ", ["0", "1"]),
        (TWO, "0,2,1", ["0"]),  # what follows an entry that names no GPU is not seen
        (TWO, "-1", []),
        (TWO, "", []),
        (TWO, "NoDevFiles", []),
        (TWO, "0,0", []),
        (TWO, "GPU-2222", ["GPU-2222"]),
        (TWO, "GPU-3333", []),
        (CUT, None, ["MIG-5d5ba0d6-0001", "MIG-5d5ba0d6-0002", SECOND]),
        (CUT, "MIG-5d5ba0d6-0002", ["MIG-5d5ba0d6-0002"]),
        (CUT, "MIG-other", []),
        (OLD_SLICE, None, ["MIG-GPU-11111111/7/0"]),
    ],
)
def test_gpus_that_programs_see(
    machine: Path, monkeypatch: pytest.MonkeyPatch, listed: str, given: str | None, expected: list[str]
) -> None:
    pretend(machine, listed)
    if given is not None:
        monkeypatch.setenv(devices.VISIBLE_VARIABLE, given)
    assert devices.visible_gpus(root=machine / "none") == expected


def test_without_nvidia_smi_the_drivers_files_tell(machine: Path, tmp_path: Path) -> None:
    pretend(machine, "", status=9)  # as if it could not talk to the driver
    for number, uuid in enumerate((FIRST, SECOND)):
        folder = tmp_path / f"driver/gpus/0000:{number}7:00.0"
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n"
        (folder / "information").write_text(text, encoding="utf-8")
    (tmp_path / "driver/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: gcc 12.3.0\n"
    )
    assert devices.visible_gpus(root=tmp_path / "driver") == [FIRST, SECOND]
    assert devices.driver_version(tmp_path / "driver") == "570.86.15"
    (folder / "information").write_text("Model: \t A100\nGPU UUID: \t GPU-????????-????-????-????-????????????\n")
    assert devices.visible_gpus(root=tmp_path / "driver") == ["0", "1"]


def test_a_machine_without_gpus(machine: Path, tmp_path: Path) -> None:
    assert devices.visible_gpus(root=tmp_path) == [] and devices.driver_version(tmp_path) == ""
    assert devices.why_gpus_unseen(devices.WHEEL_CUDA, tmp_path) == ""


@pytest.mark.parametrize(
    ("driver", "cuda", "expected"),
    [
        ("580.65.06", 13, ""),
        ("615.10", 13, ""),
        ("570.86.15", 13, "570.86.15 is too old for torch built with CUDA 13, which needs 580"),
        ("570.86.15", 12, ""),
        ("470.42.01", 12, "needs 525"),
        ("580.65.06", 0, "built without CUDA"),
        ("470.42.01", None, ""),
    ],
)
def test_a_driver_too_old_for_a_wheel_is_named(machine: Path, driver: str, cuda: int | None, expected: str) -> None:
    pretend(machine, TWO, driver)
    line = devices.why_gpus_unseen(cuda, machine / "none")
    assert expected in line and bool(line) == bool(expected)


def test_before_the_install_one_line_says_it(machine: Path) -> None:
    """With an interpreter that has no package, as at the first `make install`."""
    pretend(machine, TWO, "535.104.05")
    command = [sys.executable, "-S", "-m", "crawl2llm.core.devices"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.count("\n") == 1 and "535.104.05 is too old" in out.stdout and not out.stderr
    pretend(machine, TWO, "580.65.06")
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == ""
