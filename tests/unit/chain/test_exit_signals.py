"""Programs that a signal ended are named, with what the machine says of memory: real kills, a real control group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl2llm.chain import exit_signals
from crawl2llm.training import launch

ROOT = Path(launch.__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("status", "number"), [(-9, 9), (137, 9), (-11, 11), (139, 11), (1, None), (255, None), (0, None)]
)
def test_a_signal_in_a_status(status: int, number: int | None) -> None:
    assert exit_signals.signal_of_status(status) == number


def test_a_kill_without_a_sign_of_memory_names_both_causes() -> None:
    said = exit_signals.signal_explanation(9, "pretrain.train", None)
    assert said.startswith("was ended by SIGKILL (signal 9): by a person or a batch system, or out of memory")
    assert "pretrain.train.micro_batch" in said


def test_other_signals_say_what_they_mean() -> None:
    assert "CPU lacks an instruction" in exit_signals.signal_explanation(signal.SIGILL, "ingest.extract", None)
    assert exit_signals.signal_explanation(signal.SIGSEGV, "ingest.extract", None) == "was ended by SIGSEGV (signal 11)"


def test_a_training_that_was_ended_says_how_it_goes_on() -> None:
    for step in exit_signals.MAKERS:
        for memory in (None, "the kernel says so"):
            assert exit_signals.signal_explanation(9, step, memory).endswith(exit_signals.RESUME_TEXT)
        assert (
            exit_signals.signal_explanation(signal.SIGSEGV, step, None)
            == f"was ended by SIGSEGV (signal 11). {exit_signals.RESUME_TEXT}"
        )
    assert "resume" not in exit_signals.signal_explanation(9, "evaluate.model", None)


def launched(folder: Path, *ranks: str, prefix: tuple[str, ...] = ()) -> tuple[str, str]:
    """(stderr, log) of the launcher with one process for each of `ranks`, a Python program of that rank."""
    module = folder / "rank.py"
    module.write_text(f"import os\nexec({list(ranks)!r}[int(os.environ['RANK'])])\n", encoding="utf-8")
    log = folder / "train.log"
    done = subprocess.run(
        [*prefix, sys.executable, "-c", "from crawl2llm.training import processes; processes.GRACE = 0.3\n"
         "from crawl2llm.training import launch; raise SystemExit(launch.main())",
         "--processes", str(len(ranks)), "rank", "--log", str(log), "--checkpoints", str(folder / "checkpoints")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    return done.stderr, log.read_text(encoding="utf-8") if log.exists() else ""


# One that is about to fail says so in a file: a process may take longer to start than the other to miss it.
GOES = "import pathlib; gone = pathlib.Path(__file__).with_name('gone')\n"
FIRST = GOES + "gone.touch()\n"
DIES_WITH_IT = f"""{GOES}import time
while not gone.exists():
    time.sleep(0.01)
time.sleep(0.1)
raise ConnectionError('closed by peer')
"""


def test_a_killed_rank_is_named_and_not_the_one_that_lost_it(tmp_path: Path) -> None:
    stderr, log = launched(tmp_path, DIES_WITH_IT, FIRST + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    last = log.splitlines()[-1]
    assert "error: rank 1 (of 2 processes, on " in last and "was ended by SIGKILL (signal 9)" in last
    assert "ConnectionError" in stderr
    assert stderr.splitlines()[-1].startswith("error: rank 1 ")


def test_the_first_error_is_named_with_its_traceback_in_the_log(tmp_path: Path) -> None:
    _, log = launched(tmp_path, DIES_WITH_IT, FIRST + "raise RuntimeError('boom')")
    assert log.splitlines()[-1].endswith("failed first: RuntimeError: boom")
    assert "Traceback (most recent call last):" in log and "ConnectionError: closed" not in log


def test_an_error_that_was_said_is_not_said_again(tmp_path: Path) -> None:
    said = "import sys; print('12:00:00 x: error: no such file', file=sys.stderr); sys.exit(1)"
    stderr, log = launched(tmp_path, said, "import time; time.sleep(60)")
    assert log == "" and stderr.count("error:") == 1


def test_a_rank_out_of_memory(tmp_path: Path, group: Callable[[int], tuple[str, ...]]) -> None:
    """The kernel ends a process that takes more than its control group has."""
    _, log = launched(tmp_path, "import time; time.sleep(60)", "bytearray(b'x' * 10**9)", prefix=group(200))
    assert "was ended by SIGKILL (signal 9), most likely out of memory: the kernel ended 1 process" in log
    assert log.rstrip().endswith("or give it more memory")


def test_a_process_of_the_group_is_not_said_to_be_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's counter counts those of its groups too."""
    group = next(iter(exit_signals.oom_kill_counts()), None)
    if group is None or group == exit_signals.VMSTAT:
        pytest.skip("this process's control group has no counter of its own")
    before = exit_signals.oom_kill_counts()
    monkeypatch.setattr(exit_signals, "oom_kill_counts", lambda: {file: number + 1 for file, number in before.items()})
    assert "of this control group for lack of memory" in str(exit_signals.lack_of_memory(before))
