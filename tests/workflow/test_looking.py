"""Commands that only look start nothing and leave the folder of a run as it is, with and without a profile."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm import __main__
from crawl2llm.__main__ import COMMANDS
from tests.workflow import forked
from tests.workflow.conftest import ROOT, TINY, environment

# Caches of plans alone, and the folders that Snakemake makes for its records. No result depends on them.
CACHES = {"iocache/latest.pkl", "meanings.json", "models.json"}
LOCAL, SLURM = ["--profile", "profiles/local", "--cores", "2"], ["--profile", str(ROOT / "profiles/slurm")]
LOOKS = {  # command: its options in a folder of a run
    "plan": [[], LOCAL, SLURM],
    "preflight": [[], [*LOCAL, "-R", "ingest_extract"], [*SLURM, "--touch"], [*SLURM, "--delete-all-output"]],
    "status": [[]],
    "whatif": [["quality.select.keep_fraction=0.5"]],
    "verify": [[]],
    "compare": [["results/main", "results/main"]],
    "accept": [[]],
    "clean": [["-n"], ["--dry-run", "--yes"]],
    "export": [[]],
    "marks": [["marks.jsonl"]],
    "trace": [["https://example.com/"]],
    "who-wrote": [["a text"]],
    "forget": [["--domain", "example.com"]],
    "record": [[]],
    "keys": [[], ["seed"]],
}
WRITES = {"new", "report", "decontaminate", "docs", "fetch-model"}  # what they write is what they are for
TALKS = {"serve", "sample", "gpu-check", "tune"}  # they load a model, and their own tests say what they do
CASES = [(command, options) for command, rows in LOOKS.items() for options in rows]


def contents(folder: Path, left_out: set[str] = CACHES) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time of change in ns and bytes of every file in the folder, without `left_out` in .snakemake."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name.removeprefix(".snakemake/") not in left_out:
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
        [sys.executable, "-m", "crawl2llm", command, *options],
        cwd=tmp_path,
        env={**environment(), "PATH": path, "PYTHONPATH": str(ROOT), "CRAWL2LLM_SLURM_PATIENCE": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert contents(tmp_path) == before, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "Traceback" not in said and "usage:" not in said, said
    if command == "plan":
        assert done.returncode == 0 and "ingest.extract" in said, said
    refusals = {"-R": "executor of this profile is 'local'", "--delete-all-output": "it does no delete output"}
    for option in refusals.keys() & set(
        options
    ):  # the other plans end as the cluster of this machine, if there is one, says
        assert done.returncode and refusals[option] in said, said


@pytest.mark.parametrize("profile", [[], ["--profile", str(ROOT / "profiles/local")]], ids=["without", "local"])
def test_a_plan_of_snakemake_leaves_the_folder_as_it_is(tmp_path: Path, profile: list[str]) -> None:
    (tmp_path / "config.yaml").write_bytes(TINY.read_bytes())
    before = contents(tmp_path)
    done = forked.snakemake(
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--cores",
        "1",
        *profile,
        "--dry-run",
        cwd=tmp_path,
        env=environment(),
        merge=True,
    )
    assert done.returncode == 0 and contents(tmp_path) == before, done.stdout


def test_what_looks_at_a_complete_run_leaves_it_as_it_is(
    complete: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that needs no cluster, one after another in this process."""
    monkeypatch.chdir(complete)
    monkeypatch.setenv("CRAWL2LLM_SLURM_PATIENCE", "0")
    left_out = CACHES | {
        "contents.json"
    }  # the digests of contents, which tests that start from this run write meanwhile
    before = contents(complete, left_out)
    config = ["--configfile", str(TINY)]
    for command, rows in LOOKS.items():
        if command in ("plan", "preflight", "status", "marks"):
            continue
        more = [] if command in ("verify", "export", "keys") else config
        for options in rows:
            __main__.main([command, *options, *more])
            said = capsys.readouterr()
            assert "No such file" not in said.err, (command, said.err)
            changed = contents(complete, left_out)
            assert changed.keys() == before.keys(), (command, changed.keys() ^ before.keys())
            assert changed == before, command
