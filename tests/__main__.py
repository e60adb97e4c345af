"""Every test: `python -m tests [options of pytest]`.

By files, with a worker more than there are cores: tests wait for processes, servers and time to pass. The small chain on a SLURM
cluster mostly waits too, so a second pytest runs its tests beside the others. Those that train on the cluster come last there, when the
others, which begin with trainings, are at tests that take little. The complete run that many start from is made meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from crawl2llm.core.root import ROOT
from tests.conftest import END, FAILED, LEFT_OUT, SHARED, complete_in

SLURM = Path("tests/slurm")
WORKERS = str((os.cpu_count() or 1) + 1)
TRAINING = [SLURM / name for name in ("test_workflow.py", "test_busy.py")]

# What tests may write in the repository: caches, and what make installs.
CACHES = {
    ".git", ".venv", ".quantize", ".gguf", ".kenlm", ".cache",
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis",
}  # fmt: skip
RUN = {"results", "logs", "checkpoints", ".snakemake"}


def written(root: Path) -> dict[str, tuple[int, int]]:
    """(bytes, time of the last change in ns) of every file below `root`, by path; without caches and what make installs."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in CACHES and not name.endswith(".egg-info")]
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):  # an editor's, which it has just removed
                about = path.lstat()
                found[path.relative_to(root).as_posix()] = about.st_size, about.st_mtime_ns
    return found


def leftovers(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> list[str]:
    """The paths that are new, and those in the folders of a run that have changed or are gone; sources may be edited while tests run."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or (path.split("/")[0] in RUN and before[path] != after.get(path))
    )


def make_complete(shared: Path) -> None:
    """Make the complete run that many tests start from; those that ask before it is there wait for it."""
    try:
        complete_in(shared)
    except AssertionError as error:  # the tests that need it fail, and say so
        print(error, flush=True)


def main(options: list[str]) -> int:
    """Run all; returns 0 where all succeed."""
    begin, before = time.monotonic(), written(ROOT)
    files = [*(path for path in sorted(SLURM.glob("test_*.py")) if path not in TRAINING), *TRAINING]
    with tempfile.TemporaryDirectory(prefix="crawl2llm-tests-") as shared, Path(shared, "slurm").open("w+") as printed:
        os.environ[SHARED] = shared
        print(f"{SLURM} runs beside the other tests, and is shown after them", flush=True)
        beside = subprocess.Popen(
            [sys.executable, "-m", "pytest", *map(str, files), *options], stdout=printed, stderr=subprocess.STDOUT
        )
        complete = threading.Thread(target=make_complete, args=[Path(shared)])
        complete.start()  # now: the workers begin with tests that do not need it
        command = [sys.executable, "-m", "pytest"]
        # Tests of a file share what they start from. The order is that of conftest.py.
        shared_out = ["--numprocesses", WORKERS, "--dist", "loadfile", "--no-loadscope-reorder"]
        status = [
            subprocess.run([*command, "tests", f"--ignore={SLURM}", *shared_out, *options], check=False).returncode
        ]
        if status[0] == pytest.ExitCode.INTERRUPTED:
            beside.send_signal(signal.SIGINT)
        complete.join()
        status.append(beside.wait())
        left_out, failed = (
            path.read_text(encoding="utf-8").splitlines() if (path := Path(shared, name)).exists() else []
            for name in (LEFT_OUT, FAILED)
        )
        print(f"\n{SLURM}:\n{Path(printed.name).read_text(encoding='utf-8', errors='replace')}", flush=True)
    if left := leftovers(before, written(ROOT)):
        print(f"in {ROOT}, written while the tests ran, which write nothing there: {', '.join(left[:20])}")
        print(f"{len(left)} files; if they are yours (a run beside the tests, a new source), nothing is wrong")
        status.append(pytest.ExitCode.TESTS_FAILED)
    if left_out:
        print(f"{END} came first: {len(left_out)} tests were NOT run, among them {', '.join(left_out[:5])}")
    for line in failed[:30]:
        print(f"failed: {line}")
    if len(failed) > 30:
        print(f"and {len(failed) - 30} more, above")
    print(f"all tests: {time.monotonic() - begin:.0f} s, {'failed' if any(status) else 'passed'}")
    return max(status)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
