"""The Makefile's targets that concern a run take its folder, DIRECTORY, alike."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from crawl2llm.core.root import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="no make")
# As typed into a shell: `make test` is a make too, and those below it would say which folder they are in.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
RUNS = ("demo", "plan", "dag", "status", "report", "serve", "sample", "clean")


def commands(target: str, *more: str) -> list[str]:
    """The lines that `make` would run for a target in an installed checkout."""
    run = ["make", "--dry-run", "--old-file=.venv/.compiled", target, *more]
    shown = subprocess.run(run, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    return [line for line in shown.replace("\\\n", "").splitlines() if "pip install" not in line]


@pytest.mark.parametrize("target", RUNS)
def test_every_target_of_a_run_takes_its_folder(target: str) -> None:
    given, without = commands(target, "DIRECTORY=/tmp/my run"), commands(target)
    assert given and len(given) == len(without)
    assert all('"/tmp/my run"' in line for line in given), "a command that answers for the folder here instead"
    assert not any("DIRECTORY" in line or "--directory" in line for line in without)


@pytest.mark.parametrize("target", ["demo", "plan", "dag", "report"])
def test_the_config_is_that_of_this_folder_unless_another_is_named(target: str) -> None:
    (command,) = (line for line in commands(target, "DIRECTORY=/tmp/run") if "--profile" in line)
    assert "--configfile config.yaml" in command
    (command,) = (line for line in commands(target, "DIRECTORY=/tmp/run", "CONFIG=mine.yaml") if "--profile" in line)
    assert "--configfile mine.yaml" in command


def test_a_variants_results_can_be_named_as_before() -> None:
    for target in ("serve", "sample"):
        (command,) = commands(target, "RESULTS=other/results/warm", "DIRECTORY=/tmp/run")
        assert "--results other/results/warm" in command


def test_clean_removes_what_is_in_the_folder_of_the_run_alone(tmp_path: Path) -> None:
    here, run = tmp_path / "here", tmp_path / "my run"
    for folder in (here, run):
        (folder / "results").mkdir(parents=True)
        (folder / "plan.html").touch()
    command = ["make", "--file", str(ROOT / "Makefile"), "clean", f"DIRECTORY={run}"]
    done = subprocess.run(command, cwd=here, env=ENVIRONMENT, input="y\n", capture_output=True, text=True, check=True)
    assert f"{run}" in done.stdout and done.stdout.endswith("removed\n")
    assert (here / "results").is_dir() and (here / "plan.html").exists()
    assert not list(run.iterdir())
    missing = subprocess.run(
        [*command[:-1], f"DIRECTORY={tmp_path / 'none'}"],
        cwd=here,
        env=ENVIRONMENT,
        input="y\n",
        capture_output=True,
        text=True,
    )
    assert missing.returncode and "none" in missing.stderr and (here / "results").is_dir()


def test_help_names_the_folder_for_every_target_that_takes_it() -> None:
    said = subprocess.run(
        ["make", "help"], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True
    ).stdout
    (line,) = (line for line in said.splitlines() if "DIRECTORY=" in line)
    assert all(target in line for target in RUNS)
