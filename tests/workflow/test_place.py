"""A folder in which no run can work: one clear line with the way out, also of a plan; nothing is a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from crawl2llm.commands.watch.handler import plain_error
from crawl2llm.core import run_folder
from tests.workflow import forked
from tests.workflow.conftest import ROOT, environment

MINE = """
crawl: {render: {files: 1, standard_library: false, packages: [attr]}}
ingest: {extract: {shards: 1}}
"""
TARGET = "results/main/crawl/render/manifest.json"


@cache
def can_mount() -> bool:
    """Whether this machine lets a process mount for itself alone (root, Linux)."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True, check=False).returncode


def run_in(folder: Path, *options: str, before: str = ":", first: tuple[str, ...] = ()) -> tuple[int, str]:
    """Status and output of a run in a folder. before: a line for the shell, of mounts that the run alone sees. first: words before it."""
    if not (folder / "mine.yaml").exists():
        (folder / "mine.yaml").write_text(MINE)
    program = [
        "-m",
        "snakemake",
        TARGET,
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--profile",
        str(ROOT / "profiles/local"),
    ]
    command = [
        *first,
        sys.executable,
        *program,
        "--configfile",
        str(folder / "mine.yaml"),
        "--directory",
        str(folder),
        *options,
    ]
    line = ["unshare", "--mount", "sh", "-c", f'{before} && exec "$@"', str(folder), *command]
    done = subprocess.run(
        line if before != ":" else command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def one_line(text: str) -> str:
    """The only line that is an error; there is no traceback beside it."""
    assert "Traceback" not in text and 'File "' not in text, text
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_read_only_folder(tmp_path: Path, options: tuple[str, ...]) -> None:
    if not can_mount():
        pytest.skip("nothing can be mounted here")
    status, text = run_in(tmp_path, *options, before='mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"')
    assert status and one_line(text) == f"error: {run_folder.errno_line(30, tmp_path / '.snakemake')}"
    assert "--directory DIR" in text


@pytest.mark.slow
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """root may write everywhere, except if it gives its capabilities away."""
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("only root has folders of others here")
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "mine.yaml").write_text(MINE)
    folder.chmod(0o555)
    bare = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
    status, text = run_in(folder, "--dry-run", first=bare)
    assert status and one_line(text) == f"error: {run_folder.errno_line(13, folder / '.snakemake')}"


@pytest.mark.slow
@pytest.mark.parametrize(("size", "options"), [("4k", ("--dry-run",)), ("1m", ())])
def test_a_full_disk(tmp_path: Path, size: str, options: tuple[str, ...]) -> None:
    if not can_mount():
        pytest.skip("nothing can be mounted here")
    folder = tmp_path / "disk"
    folder.mkdir()
    status, text = run_in(
        tmp_path, "--directory", str(folder), *options, before=f"mount -t tmpfs -o size={size} none {folder}"
    )
    assert status and one_line(text).endswith(run_folder.errno_line(28, "")) and str(folder) in one_line(text)


@pytest.mark.slow
def test_no_locks(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    status, text = run_in(tmp_path, first=(sys.executable, str(Path(__file__).with_name("without_locks.py"))))
    if status == 77:
        pytest.skip("this kernel lets no process take its locks away")
    assert status and one_line(text) == f"error: .snakemake/run.lock: {run_folder.NO_LOCKS} (No locks available)"
    assert not (tmp_path / "results").exists()


def test_a_manifest_of_a_newer_version(tmp_path: Path) -> None:
    """It is no damaged one that is made again: the newer result would be lost."""
    path = tmp_path / TARGET
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"step": "crawl.render", "fingerprint": "0" * 16, "counts": {}, "files": {}, "signed": "x"})
    )
    before = path.read_bytes()
    (tmp_path / "mine.yaml").write_text(MINE)
    line = [
        TARGET,
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--profile",
        str(ROOT / "profiles/local"),
        "--configfile=mine.yaml",
        "--dry-run",
    ]
    done = forked.snakemake(*line, cwd=tmp_path, env=environment())
    assert done.returncode and one_line(done.stdout) == (
        f"error: {TARGET}: a newer version of crawl2llm wrote it (this one does not know its keys signed): update this one "
        "(`git pull && make install`), or start in another folder (--directory DIR)"
    )
    assert path.read_bytes() == before


TRACEBACK = """Traceback (most recent call last):

  File "snakemake/persistence/__init__.py", line 832, in save_iocache
    with open(self._iocache_filename, "wb") as handle:

OSError: [Errno {number}] {words}{name}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            TRACEBACK.format(number=28, words="No space", name=": '/run/.snakemake/x'"),
            f"error: {run_folder.errno_line(28, '/run/.snakemake/x')}",
        ),
        (TRACEBACK.format(number=122, words="Disk quota exceeded", name=""), f"error: {run_folder.errno_line(122, '{here}')}"),
        (
            'OSError in file "a", line 4:\n[Errno 30] Read-only file system: \'b\'\n  File "a", line 4',
            f"error: {run_folder.errno_line(30, 'b')}",
        ),
        (
            "Error recording metadata for finished job ([Errno 28] No space left on device). Please ensure write permissions for /x",
            f"error: {run_folder.errno_line(28, '{here}')}",
        ),
        (TRACEBACK.format(number=2, words="No such file or directory", name=": 'b'"), ""),
    ],
)  # fmt: skip
def test_what_snakemake_says_of_a_disk(text: str, line: str) -> None:
    assert plain_error(text) == (line.format(here=Path.cwd()) or text)
