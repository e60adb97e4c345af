"""What a person sees of a run of the real Snakemake: few lines, one live screen, a failure as the last words.

The workflow is a small one (watched/Snakefile), so that each way to end takes seconds. Where a new version of Snakemake breaks
one of these, the test's name says what broke.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

import pytest

from crawl2llm.commands.plan import dryrun
from crawl2llm.commands.watch import handler
from tests.workflow.conftest import ROOT
from tests.workflow.forked import snakemake

SNAKEFILE = Path(__file__).with_name("watched") / "Snakefile"
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78=>])")
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def command(folder: Path, *options: str, how: dict[str, str] | None = None) -> list[str]:
    """Snakemake on the small workflow, in `folder`."""
    (folder / "config.json").write_text(json.dumps({"how": how or {}}), encoding="utf-8")
    return [
        sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--directory", str(folder), "--cores", "2",
        "--configfile", str(folder / "config.json"), *options,
    ]  # fmt: skip


def variables(**more: str) -> dict[str, str]:
    """The environment of a run, without what a person may have set."""
    left = {
        key: value for key, value in os.environ.items() if key not in (handler.SCREEN_VARIABLE, "NO_COLOR", "COLUMNS")
    }
    return {**left, **more}


def printed(
    folder: Path, *options: str, how: dict[str, str] | None = None, prefix: tuple[str, ...] = (), **more: str
) -> list[str]:
    """The lines of a run without a terminal."""
    line = command(folder, *options, how=how)
    if not prefix:
        return snakemake(*line[3:], cwd=ROOT, env=variables(**more), seconds=120).stdout.splitlines()
    done = subprocess.run(
        [*prefix, *line], cwd=ROOT, env=variables(**more), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False,
    )  # fmt: skip
    return done.stdout.splitlines()


def snakemake_log(folder: Path) -> str:
    """The newest log of Snakemake's."""
    return max((folder / ".snakemake/log").glob("*.log")).read_text(encoding="utf-8")


def test_few_lines_without_a_terminal(tmp_path: Path) -> None:
    """Snakemake's events, the order of its messages, and where it writes its log are as expected."""
    lines = printed(tmp_path)
    shown = [line for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert len(lines) < 8, lines
    assert re.search(
        rf"3 tasks of 2 steps; everything they say: {tmp_path}/\.snakemake/log/.*\.snakemake\.log$", shown[0]
    )
    assert re.search(r"language\.score +2 tasks +\d+s  16 of 20 kept$", shown[1])
    assert re.search(r"language\.select +1 task +\d+s  8 of 10 kept$", shown[2])
    assert re.fullmatch(r"3 of 3 tasks done in \d+s", lines[-1])
    log = snakemake_log(tmp_path)
    assert log.count("a library's own words") == 3 and log.count("12/40 documents") == 3
    assert "Finished jobid: 0 (Rule: all)" in log


def test_the_whole_chain_takes_few_lines(complete: Path) -> None:
    """A line for each step, and one a minute where nothing ends. The demo has more tasks, in as many steps."""
    text = (complete / "printed").read_text(encoding="utf-8")
    planned = re.search(r"(\d+) tasks of (\d+) steps; everything they say", text)
    assert planned
    lines = text.splitlines()
    complete_steps = [line for line in lines if re.match(r"\d\d:\d\d:\d\d [a-z]+\.[a-z]+ +\d+ tasks? ", line)]
    assert len(complete_steps) == int(planned.group(2)) > 20
    assert len(lines) < 80, lines
    assert re.fullmatch(rf"{planned.group(1)} of {planned.group(1)} tasks done in \S+", lines[-2])
    assert lines[-1] == f"report: {complete / 'results/main/report/render/report.html'}"


def test_nothing_to_do_is_said(tmp_path: Path) -> None:
    printed(tmp_path)
    assert "Nothing to be done (all requested files are present and up to date)." in printed(tmp_path)


def test_a_failure_is_the_last_thing(tmp_path: Path) -> None:
    lines = printed(tmp_path, how={"language_select": "error"})
    assert lines[-4:] == [
        "language.select failed:",
        "  error: the file .warc.gz is no archive",
        "  write another",
        f"  log: {tmp_path}/logs/main/language/select.log",
    ]
    assert re.search(r"language\.score +2 tasks", lines[-5])
    assert "CalledProcessError" in snakemake_log(tmp_path)


def test_an_unexpected_error_is_one_line_and_a_traceback_in_the_log(tmp_path: Path) -> None:
    lines = printed(tmp_path, how={"language_select": "exception"})
    assert lines[-3:-1] == ["language.select failed:", "  error: ZeroDivisionError: nothing to divide by"]
    assert not any("Traceback" in line for line in lines)
    assert "Traceback (most recent call last)" in (tmp_path / "logs/main/language/select.log").read_text("utf-8")


def test_several_failures_are_each_shown_once(tmp_path: Path) -> None:
    lines = printed(tmp_path, "--keep-going", "--retries=1", how={"language_score": "error"})
    for shard in ("00000", "00001"):
        assert lines.count(f"language.score {shard} failed:") == 1
        assert lines.count(f"  error: the file {shard}.warc.gz is no archive") == 1
    assert lines[-1].startswith(f"  log: {tmp_path}/logs/main/language/score/0000")
    assert any(line.startswith("failed: language.score 0000") and "the run continues" in line for line in lines)


def test_a_task_that_says_nothing(tmp_path: Path) -> None:
    lines = printed(tmp_path, how={"language_select": "silent"})
    assert lines[-2] == "  (no error in its log, which ends:) 12/40 documents, 3.0/s, 9s left"


def test_a_task_that_is_killed_is_named_with_its_signal(tmp_path: Path) -> None:
    """Snakemake's words about a command's exit status are as expected."""
    lines = printed(tmp_path, how={"language_select": "kill"})
    assert lines[-3] == "language.select failed:"
    assert lines[-2].startswith("  the program was ended by SIGKILL (signal 9)")
    assert not any("None" in line for line in lines)


def test_a_task_out_of_memory(tmp_path: Path, group: Callable[[int], tuple[str, ...]]) -> None:
    """A real one: the kernel ends the largest process of a control group, which is the task's."""
    lines = printed(tmp_path, how={"language_select": "memory"}, prefix=group(500))
    assert "SIGKILL (signal 9), most likely out of memory: the kernel ended 1 process" in lines[-2]
    assert "ingest.extract.shards" in lines[-2]


def test_warnings_are_shown_once_and_progress_is_not(tmp_path: Path) -> None:
    lines = printed(tmp_path, how={"language_select": "warn"})
    assert lines.count("language.select: warning: one file is odd") == 1
    assert not any("12/40" in line for line in lines)


def test_an_error_without_a_task_is_the_last_thing(tmp_path: Path) -> None:
    """Snakemake reports what is wrong with the workflow itself as events or errors that are recognised."""
    lines = printed(tmp_path, "results/none.json")
    assert "results/none.json" in "\n".join(lines[-3:])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--dry-run",), "rule language_select:"),
        (("--printshellcmds",), "step.py language.select"),
        (("--verbose",), "Ready jobs: "),
        (("--summary",), "output_file"),
    ],
)
def test_options_of_snakemake_keep_their_output(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    assert expected in "\n".join(printed(tmp_path, *options))


def test_snakemakes_own_output_on_request(tmp_path: Path) -> None:
    lines = printed(tmp_path, how={"language_select": "error"}, **{handler.SCREEN_VARIABLE: "snakemake"})
    assert "Error in rule language_select:" in lines and any("12/40" in line for line in lines)
    assert lines[-1] == f"  log: {tmp_path}/logs/main/language/select.log"


def test_quiet(tmp_path: Path) -> None:
    lines = printed(tmp_path, "--quiet", "rules", how={"language_select": "error"})
    assert not any(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    assert lines[-1] == f"  log: {tmp_path}/logs/main/language/select.log"
    assert "failed" not in "\n".join(printed(tmp_path, "--quiet", "all", how={"language_select": "silent"}))


def test_a_wrong_choice_is_refused(tmp_path: Path) -> None:
    assert "CRAWL2LLM_SCREEN is 'tv'; allowed are live, lines, snakemake" in "\n".join(
        printed(tmp_path, **{handler.SCREEN_VARIABLE: "tv"})
    )


def start(folder: Path, how: dict[str, str], *options: str) -> subprocess.Popen[str]:
    """A run in a session of its own that hears Ctrl-C, whatever the shell of these tests does."""
    return subprocess.Popen(
        command(folder, *options, how=how), cwd=ROOT, env=variables(), text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def stopped(process: subprocess.Popen[str], ready: Path, wait: float, by: int = signal.SIGINT) -> str:
    """The output of a run that gets Ctrl-C, or another signal, so many seconds after a file is there."""
    try:
        end = time.monotonic() + 900
        while not ready.exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(wait)
        os.killpg(process.pid, by)
        output, _ = process.communicate(timeout=900)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0
    return output


def test_ctrl_c_is_one_line_and_the_run_can_be_started_again(tmp_path: Path) -> None:
    output = stopped(start(tmp_path, {"language_select": "slow"}), tmp_path / "logs/main/language/select.log", 1)
    last = output.splitlines()[-1]
    assert re.fullmatch(
        r"stopped by Ctrl-C, 2 of 3 tasks done in \d+s, and kept; start the same command again to resume", last
    )
    assert "failed" not in output and "Traceback" not in output
    assert printed(tmp_path)[-1].startswith("1 of 1 task done")


@pytest.mark.parametrize(("by", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, r"SIGTERM \(signal 15\)")])
def test_a_training_that_is_stopped_has_not_failed(tmp_path: Path, by: int, name: str) -> None:
    """It says which step its checkpoint is of, as its log does. SIGTERM: of a batch system, `timeout` or `kill`."""
    process = start(tmp_path, {"language_select": "training"})
    output = stopped(process, tmp_path / "logs/main/language/select.log", 1, by)
    *_, last, left = output.splitlines()
    assert re.fullmatch(rf"stopped by {name}, 2 of 3 tasks done in \d+s, and kept; start the same .*", last), output
    assert left == "language.select: stopped by a signal after step 36; the checkpoint is in checkpoints/a"
    assert "failed" not in output and "Traceback" not in output and process.returncode == 1


def test_ctrl_c_while_the_workflow_is_read(tmp_path: Path) -> None:
    output = stopped(start(tmp_path, {}, "--config", "pause=30"), tmp_path / "reading", 0)
    assert output.splitlines()[-1] == "stopped by Ctrl-C, before a task was started"
    assert "Traceback" not in output


def on_a_terminal(folder: Path, columns: int, how: dict[str, str] | None = None, **more: str) -> str:
    """Everything that a run writes to a terminal of so many columns."""
    mine, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command(folder, how=how), cwd=ROOT, env=variables(**{"TERM": "xterm-256color", **more}),
        stdin=its, stdout=its, stderr=its, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    found, end = b"", time.monotonic() + 900
    try:
        while time.monotonic() < end:
            if select.select([mine], [], [], 1)[0]:
                try:
                    found += os.read(mine, 65536)
                except OSError:  # the terminal's last user is gone
                    break
    finally:
        if process.poll() is None and time.monotonic() >= end:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(mine)
    return found.decode()


@pytest.mark.parametrize("columns", [80, 200])
def test_a_live_screen_on_a_terminal(tmp_path: Path, columns: int) -> None:
    output = on_a_terminal(tmp_path, columns, how={"language_select": "seconds"})
    assert "\x1b[1A" in output, "nothing was drawn over"
    lines = [line.rstrip() for line in ESCAPE.sub("", output).replace("\r", "\n").split("\n")]
    assert max(map(len, lines[2:])) <= columns
    assert any(re.match(r"language +\S+ +2/3 +\d+s select: 12/40 documents, 3\.0/s, 9s left", line) for line in lines)
    assert "8 of 20 documents kept after language.select" in lines
    assert not any("a library's own words" in line for line in lines)
    assert re.fullmatch(r"3 of 3 tasks done in \d+s", [line for line in lines if line][-1])


def test_a_failure_on_a_terminal_leaves_only_itself(tmp_path: Path) -> None:
    output = on_a_terminal(tmp_path, 400, how={"language_select": "error"})
    last = [line.strip() for line in ESCAPE.sub("", output.split("\x1b[2K")[-1]).splitlines() if line.strip()]
    assert last[-4:] == [
        "language.select failed:",
        "error: the file .warc.gz is no archive",
        "write another",
        f"log: {tmp_path}/logs/main/language/select.log",
    ]


def test_no_color(tmp_path: Path) -> None:
    colors = {
        code for code in COLOR.findall(on_a_terminal(tmp_path, 80, NO_COLOR="1")) if re.search(r"[34]\d|9\d", code)
    }
    assert colors == set()


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path: Path) -> None:
    output = on_a_terminal(tmp_path, 80, TERM="dumb")
    assert "\x1b[1A" not in output and "3 tasks of 2 steps" in output


def test_snakemake_has_what_the_handler_takes_hold_of() -> None:
    """The name of its handler, its events and their fields, its messages that are hidden or shown."""
    import snakemake
    from snakemake_interface_logger_plugins.common import LogEvent

    assert {event.value for event in LogEvent} >= {
        "workflow_started", "run_info", "job_started", "job_info", "job_finished", "job_error", "group_error", "error",
    }  # fmt: skip
    folder = Path(snakemake.__file__).parent
    sources = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    for words in (
        handler.DEFAULT_HANDLER,
        *handler.GENERAL_MESSAGES,
        *handler.SHOWN_MESSAGES,
        *dryrun.COMPLETE_MESSAGES,
    ):
        assert any(words in text for text in sources.values()), f"Snakemake no longer says {words!r}"
    text = sources["jobs.py"]
    executor = folder.parent / "snakemake_executor_plugin_slurm" / "__init__.py"
    for words in ("SLURM-job '{j.external_jobid}' failed", "SLURM status is: "):
        assert words in executor.read_text(encoding="utf-8"), f"the executor no longer says {words!r}"
    for field in ("jobid", "rule_name", "rule_msg", "log", "output", "wildcards", "shellcmd"):
        assert re.search(rf"\b{field}=", text), f"events of jobs no longer have {field}"
