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

from crawl2llm.training import launch, processes


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """The launcher holds signals back, and what other tests start would inherit that."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, held)


def test_places() -> None:
    second = processes.environments(node=1, nodes=2, processes=2, address="h1", port=20001)
    assert [place["RANK"] for place in second] == ["2", "3"]
    assert [place["LOCAL_RANK"] for place in second] == ["0", "1"]
    assert {place["WORLD_SIZE"] for place in second} == {"4"}
    assert second[0]["MASTER_ADDR"] == "h1" and "GLOO_SOCKET_IFNAME" not in second[0]
    assert processes.environments(0, 1, 1, "127.0.0.1", 1)[0]["GLOO_SOCKET_IFNAME"] == "lo"


def test_statuses() -> None:
    assert processes.status_of([0, 0]) == 0
    assert processes.status_of([0, 85]) == 85
    assert processes.status_of([1, -signal.SIGKILL]) == 1
    assert processes.status_of([-signal.SIGKILL, 85]) == 137


@contextlib.contextmanager
def supervised(*programs: str) -> Iterator[subprocess.Popen[str]]:
    """A launcher of real Python processes; nothing of it is left behind, whatever the test finds."""
    commands = [([sys.executable, "-c", program], dict(os.environ)) for program in programs]
    code = f"from crawl2llm.training import processes as p; p.GRACE = 0.3; raise SystemExit(p.supervise({commands!r}))"
    root = Path(launch.__file__).resolve().parents[3]
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
        assert process.wait(timeout=900) == 3
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_passes_signals_on(number: signal.Signals) -> None:
    listen = (
        "import os, signal, sys; from crawl2llm.training.processes import on_stop_signal; on_stop_signal(lambda *_: sys.exit(85)); "
        "os.write(1, b'ready\\n'); signal.pause()"
    )
    with supervised(listen, listen) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
        process.send_signal(number)
        assert process.wait(timeout=900) == 85


def test_a_signal_waits_until_they_listen() -> None:
    late = (
        "import os, select, signal, sys; from crawl2llm.training.processes import on_stop_signal; os.write(1, b'starting\\n'); "
        "select.select([], [], [], 1); on_stop_signal(lambda *_: sys.exit(85)); signal.pause()"
    )
    with supervised(late) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        process.send_signal(signal.SIGUSR1)
        assert process.wait(timeout=900) == 85


def test_a_signal_from_before_the_processes_is_passed_on() -> None:
    listen = (
        "import sys, time; from crawl2llm.training.processes import on_stop_signal; "
        "on_stop_signal(lambda *_: sys.exit(85)); time.sleep(60)"
    )
    code = f"""if True:
        import os, signal, sys
        from crawl2llm.training import processes as p
        p.hold_signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        raise SystemExit(p.supervise([([sys.executable, "-c", {listen!r}], dict(os.environ))]))
    """
    root = Path(launch.__file__).resolve().parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=900, check=False).returncode == 85


def test_they_end_with_a_launcher_that_is_killed() -> None:
    with supervised("import os; os.write(1, b'%d\\n' % os.getpid()); import time; time.sleep(60)") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        end = time.monotonic() + 30
        while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < end
            time.sleep(0.05)


def test_several_nodes_need_slurm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert launch.main(["--nodes", "2", "crawl2llm.stages.pretrain.train", "--config", "x"]) == 1
    assert "has to be started by the script of a SLURM job" in capsys.readouterr().err


def test_only_the_script_of_a_job_goes_through_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.in_job_script({"SLURM_JOB_ID": "7"})
    assert not launch.in_job_script({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})
    assert not launch.in_job_script({})
    monkeypatch.setenv("PATH", "")  # inside an image
    assert not launch.in_job_script({"SLURM_JOB_ID": "7"})


def test_in_an_image() -> None:
    command = launch.program_command("crawl2llm.stages.pretrain.train", "/shared/crawl2llm.sif", "--bind '/a b'")
    assert command[1:5] == ["exec", "--home", str(Path.cwd()), "--nv"]
    assert command[5:] == ["--bind", "/a b", "/shared/crawl2llm.sif", "python", "-m", "crawl2llm.stages.pretrain.train"]
    assert launch.program_command("crawl2llm.stages.pretrain.train", None, "")[1:] == [
        "-m",
        "crawl2llm.stages.pretrain.train",
    ]


def test_what_slurm_says_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SLURM does not tell the job's nodes, its own words are in the log."""
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    log = tmp_path / "train.log"
    own = ["--nodes", "2", "--processes", "1", "--on-a-node", "crawl2llm.stages.pretrain.train", "--log", str(log)]
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert launch.main(own) == 1
    assert log.read_text().rstrip().endswith("Invalid job id specified")


@pytest.mark.parametrize(
    ("manifest", "group", "found"),
    [
        ("results/rate-0_1/pretrain/train/manifest.json", None, ("{here}", "rate-0_1")),
        ("results/main/finetune/train/sft.manifest.json", "rates", ("rates", "main sft")),
        ("results/main/pretrain/rung/rate-0_1-rung2.manifest.json", None, ("{here}", "rate-0_1")),
        ("/far/run7/results/main/pretrain/train/manifest.json", None, ("run7", "main")),
        ("elsewhere/pretrain/manifest.json", "rates", ("rates", None)),
        ("elsewhere/pretrain/manifest.json", None, (None, None)),
    ],
)
def test_wandb_is_told_the_group_and_the_variant(
    manifest: str, group: str | None, found: tuple[str | None, str | None]
) -> None:
    made = launch.wandb_variables(["--config", "{}", "--manifest", manifest], group)
    wanted = found[0] and found[0].format(here=Path.cwd().name)
    assert (made.get("WANDB_RUN_GROUP"), made.get("WANDB_NAME")) == (wanted, found[1])
