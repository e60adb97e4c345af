"""Commands that only look start nothing and leave the folder of a run as it is, with and without a profile."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.crawl2llm import COMMANDS
from tests.workflow.conftest import ROOT, TINY, environment

# Caches of plans alone, and the folders that Snakemake makes for its records. No result depends on them.
CACHES = {"iocache/latest.pkl", "meanings.json", "models.json"}
LOCAL, SLURM = ["--profile", "profiles/local", "--cores", "2"], ["--profile", str(ROOT / "profiles/slurm")]
LOOKS = {  # command: its options in a folder of a run
    "plan": [[], SLURM],
    "preflight": [[], [*LOCAL, "-R", "ingest_extract"], [*SLURM, "--touch"], [*SLURM, "--delete-all-output"]],
    "status": [[]],
    "whatif": [[]],
    "verify": [[]],
    "compare": [["results/main", "results/main"]],
    "accept": [[]],
    "clean": [["-n"], ["--dry-run", "--yes"]],
    "export": [[]],
    "marks": [[]],
    "trace": [["https://example.com/"]],
    "who-wrote": [["a text"]],
    "forget": [["example.com"]],
}
WRITES = {"new", "report", "record", "decontaminate", "docs"}  # what they write is what they are for
TALKS = {"serve", "sample"}  # they load a model, and their own tests say what they do
CASES = [(command, options) for command, rows in LOOKS.items() for options in rows]


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time of change in ns and bytes of every file in the folder, without the caches of plans."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name.removeprefix(".snakemake/") not in CACHES:
            about = path.stat()
            found[name] = stat.S_IMODE(about.st_mode), about.st_mtime_ns, path.read_bytes()
    return found


def test_every_command_is_listed() -> None:
    assert LOOKS.keys() | WRITES | TALKS == COMMANDS.keys()


@pytest.mark.parametrize(
    ("command", "options"), CASES, ids=[" ".join([c, *o]).replace(str(ROOT), "") for c, o in CASES]
)
def test_a_command_that_only_looks_leaves_the_folder_as_it_is(tmp_path: Path, command: str, options: list[str]) -> None:
    (tmp_path / "config.yaml").write_bytes(TINY.read_bytes())
    results = tmp_path / "results" / "main" / "ingest" / "check"
    results.mkdir(parents=True)
    (results / "manifest.json").write_text("{}", encoding="utf-8")  # a damaged one is looked at, and left
    before = contents(tmp_path)
    path = os.pathsep.join([environment()["PATH"], str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "scripts.crawl2llm", command, *options],
        cwd=tmp_path,
        env={**environment(), "PATH": path, "PYTHONPATH": str(ROOT), "CRAWL2LLM_SLURM_PATIENCE": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert contents(tmp_path) == before, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    if command == "plan":
        assert done.returncode == 0 and "ingest.extract" in said, said
    refusals = {"-R": "executor of this profile is 'local'", "--delete-all-output": "it does no delete output"}
    for option in refusals.keys() & set(
        options
    ):  # the other plans end as the cluster of this machine, if there is one, says
        assert done.returncode and refusals[option] in said, said
