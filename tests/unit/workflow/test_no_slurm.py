"""What runs on this machine alone asks SLURM nothing, where its commands are installed and nobody answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawl2llm.core import retries
from crawl2llm.slurm import crawl2llm_unasked, hook, local_plugin


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
    with pytest.raises(
        Exception, match=r"nothing was started: .* is left: SLURM did not answer .*rm .*slurm-submitted"
    ):
        hook.before_submission(SimpleNamespace(executor_plugin=SimpleNamespace(name="local")))
    assert "squeue" in calls.read_text() and (tmp_path / ".snakemake/slurm-submitted").exists()


def test_a_controller_that_hangs_is_waited_for_two_seconds(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "bin" / "squeue"
    squeue.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/slurm-submitted").touch()
    monkeypatch.delenv(retries.LIMIT_VARIABLE, raising=False)
    begin = time.monotonic()
    with pytest.raises(Exception, match=r"nothing was started: .*did not answer for 2 s .*CRAWL2LLM_SLURM_PATIENCE=60"):
        hook.before_submission(SimpleNamespace(executor_plugin=SimpleNamespace(name="local")))
    assert time.monotonic() - begin < 30  # half of what squeue takes


def test_a_folder_without_jobs_in_the_queue_is_looked_up_once(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "squeue").write_text(f'#!/bin/sh\necho squeue >> "{calls}"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/slurm-submitted").touch()
    monkeypatch.setenv(retries.LIMIT_VARIABLE, "60")  # a loaded machine may take seconds to start squeue
    for _ in range(2):
        hook.before_submission(SimpleNamespace(executor_plugin=SimpleNamespace(name="local")))
    assert calls.read_text() == "squeue\n" and not (tmp_path / ".snakemake/slurm-submitted").exists()


@pytest.mark.parametrize(
    "command",
    [
        local_plugin.module_command(),
        [sys.executable, "-m", "snakemake"],
        [str(Path(sys.executable).with_name("snakemake"))],
    ],
    ids=["plan", "module", "bare"],
)
def test_snakemake_does_not_ask_when_the_executor_is_imported(calls: Path, tmp_path: Path, command: list[str]) -> None:
    """`python -m snakemake` is also what each job on a node starts."""
    installed = Path(sysconfig.get_path("purelib"), "crawl2llm_unasked.py")
    current = Path(crawl2llm_unasked.__file__).read_bytes()
    assert installed.is_file() and installed.read_bytes() == current, "run `make install`"
    done = subprocess.run(
        [*command, "--help"],
        cwd=tmp_path,
        env=local_plugin.project_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "--slurm-partition" in done.stdout and calls.read_text() == ""


def test_pandas_is_imported_by_the_report_that_needs_it_alone(calls: Path, tmp_path: Path) -> None:
    """The report is the executor's own: without an answer of sacct it has no rows, and says so."""
    does = (
        "import snakemake.cli, sys, logging, snakemake_executor_plugin_slurm as plugin; assert 'pandas' not in sys.modules; "
        "plugin.create_efficiency_report(0.8, 'a-run', None, logging.getLogger()); assert 'pandas' in sys.modules; "
        "print(sys.modules['snakemake_executor_plugin_slurm.efficiency_report'].__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", does],
        cwd=tmp_path,
        env=local_plugin.project_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.strip().endswith("efficiency_report.py"), done.stderr
    assert "sacct" in calls.read_text()


def test_libraries_of_remote_files_are_imported_when_a_path_names_one(tmp_path: Path) -> None:
    """And all that smart_open registers by itself is there then."""
    by_itself = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if f.__module__ != 'crawl2llm_unasked']; "
    does = (
        "import sys, smart_open; from smart_open import transport; "
        "assert smart_open.parse_uri('/a/b').uri_path == '/a/b' and 'requests' not in sys.modules; "
        "assert smart_open.parse_uri('https://a/b').scheme == 'https' and 'requests' in sys.modules; "
    )
    shown = "from smart_open import transport; print(transport.SUPPORTED_SCHEMES, sorted(transport._ERRORS))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code + shown], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for code in (does, by_itself)
    ]
    assert "https" in printed[0] and printed[0] == printed[1]


def test_the_executor_asks_by_itself(calls: Path, tmp_path: Path) -> None:
    """Without this the test above would see nothing."""
    asks = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if f.__module__ != 'crawl2llm_unasked']; "
        "import snakemake_executor_plugin_slurm"
    )
    subprocess.run([sys.executable, "-c", asks], cwd=tmp_path, env=local_plugin.project_environment(), check=True)
    assert "scontrol show config" in calls.read_text()
