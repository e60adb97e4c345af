"""What runs on this machine alone asks SLURM nothing, where its commands are installed and nobody answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.slurm import hook, unasked


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the names of SLURM's commands that were called; the commands end without an answer."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    calls.touch()
    for name in ("squeue", "scontrol", "sinfo", "sacct", "sbatch"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{calls}"\nexit 1\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("squeue") == str(folder / "squeue")
    return calls


def test_a_run_with_another_executor_asks_nothing(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hook.before_submission(SimpleNamespace(executor_plugin=SimpleNamespace(name="local")))
    assert calls.read_text() == ""


def test_a_folder_of_which_slurm_got_jobs_is_looked_up(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRAWL2LLM_SLURM_PATIENCE", "0")
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/slurm-submitted").touch()
    with pytest.raises(Exception, match="nothing was submitted: SLURM did not answer"):
        hook.before_submission(SimpleNamespace(executor_plugin=SimpleNamespace(name="local")))
    assert "squeue" in calls.read_text() and (tmp_path / ".snakemake/slurm-submitted").exists()


def test_a_plan_does_not_ask_when_the_executor_is_imported(calls: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*unasked.command(), "--version"], cwd=tmp_path, env=unasked.environment(), capture_output=True, check=False
    )
    assert done.returncode == 0 and "scontrol" not in calls.read_text()
    asks = [sys.executable, "-m", "snakemake", "--version"]  # or this test would see nothing
    subprocess.run(asks, cwd=tmp_path, env=unasked.environment(), capture_output=True, check=False)
    assert "scontrol show config" in calls.read_text()
