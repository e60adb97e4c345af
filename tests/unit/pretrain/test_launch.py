"""The launcher: places of the processes, exit statuses, signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.pretrain import launch, train


def test_places() -> None:
    second = launch.environments(node=1, nodes=2, processes=2, address="h1", port=20001)
    assert [place["RANK"] for place in second] == ["2", "3"]
    assert [place["LOCAL_RANK"] for place in second] == ["0", "1"]
    assert {place["WORLD_SIZE"] for place in second} == {"4"}
    assert second[0]["MASTER_ADDR"] == "h1" and "GLOO_SOCKET_IFNAME" not in second[0]
    assert launch.environments(0, 1, 1, "127.0.0.1", 1)[0]["GLOO_SOCKET_IFNAME"] == "lo"


def test_statuses() -> None:
    assert launch.status_of([0, 0]) == 0
    assert (
        launch.status_of([0, 85]) == launch.status_of([-signal.SIGUSR1, 85]) == 85 == train.RESUBMIT == launch.RESUBMIT
    )
    assert launch.status_of([1, -signal.SIGKILL]) == 1
    assert launch.status_of([-signal.SIGKILL, 85]) == 137


@contextlib.contextmanager
def supervised(*programs: str) -> Iterator[subprocess.Popen[str]]:
    """A launcher of real Python processes; nothing of it is left behind, whatever the test finds."""
    commands = [([sys.executable, "-c", program], dict(os.environ)) for program in programs]
    code = f"from scripts.pretrain import launch; launch.GRACE = 0.3; raise SystemExit(launch.supervise({commands!r}))"
    root = Path(launch.__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_one_failure_ends_the_others() -> None:
    begun = time.monotonic()
    with supervised("raise SystemExit(3)", "import time; time.sleep(60)") as process:
        assert process.wait(timeout=30) == 3
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_passes_signals_on(number: signal.Signals) -> None:
    listen = (
        "import os, signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(85)); "
        "os.write(1, b'ready\\n'); signal.pause()"
    )
    with supervised(listen, listen) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
        process.send_signal(number)
        assert process.wait(timeout=30) == 85


def test_several_nodes_need_slurm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert launch.main(["--nodes", "2", "--config", "x"]) == 1
    assert "need a SLURM job" in capsys.readouterr().err
