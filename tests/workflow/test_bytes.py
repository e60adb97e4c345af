"""The same bytes after being killed in the middle of a stage, and with tasks of other sizes; at any worker count: test_frozen.py."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl2llm.commands import partial_report
from tests.workflow.conftest import ROOT, TINY, can_be_alone, command, differences, environment, run, snapshot
from tests.workflow.test_matrix import checkout, downstream

# Where each kill strikes, in the order of the run: a file that says that the step is at work.
KILLS = {
    "pretrain.train": "checkpoints/*/step-*",
}
MORE_KILLS = {
    "ingest.extract": "logs/main/ingest/extract/00000.log",
    "dedup.verify": "logs/main/dedup/verify/000.log",
    "quality.train": "logs/main/quality/train.log",
    "tokenize.encode": "logs/main/tokenize/encode/00000.log",
    "pretrain.train": "checkpoints/*/step-*",
    "finetune.train": "logs/main/finetune/train/sft.log",
    "evaluate.model": "logs/main/evaluate/model/sft.log",
}


def kill_when(folder: Path, sign: str, *options: str, config: Path = TINY) -> None:
    """Start a run, and kill -9 it with all its children as soon as a file is there that matches `sign`."""
    process = subprocess.Popen(
        command(folder, *options, config=config), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(), cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 900
        while not any(folder.glob(sign)):
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline, "the step to be killed never began"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def forget(folder: Path, step: str) -> None:
    """Remove the results and logs of a step and of all after it, as before their first run."""
    for later in {name.split("[")[0] for name in downstream(step)}:
        stage, name = later.split(".")
        for path in (folder / "results" / "main" / stage / name, folder / "logs" / "main" / stage / name):
            shutil.rmtree(path, ignore_errors=True)
        (folder / "logs" / "main" / stage / f"{name}.log").unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [KILLS, pytest.param(MORE_KILLS, marks=pytest.mark.long)], ids=["some", "more"])
def test_killed_in_the_middle_of_stage_after_stage(
    complete: Path, copy_of: Callable[[], Path], capsys: pytest.CaptureFixture[str], kills: dict[str, str]
) -> None:
    """One run, killed again and again and started again: the bytes of a run that nothing happened to. Killed once, to the pre-training."""
    folder = copy_of()
    forget(folder, next(iter(kills)))
    shutil.rmtree(folder / "checkpoints")
    for step, sign in kills.items():
        assert not list(folder.glob(sign)), f"{step} was at work before its turn"
        kill_when(folder, sign)
        assert not (folder / "results/main/report/render/manifest.json").exists()
        if step == "pretrain.train":
            assert not (folder / "results/main/pretrain/train/manifest.json").exists()
            assert partial_report.main(["--results", str(folder / "results/main"), "--configfile", str(TINY)]) == 0
            assert "missing     pretrain.train: in training, or interrupted in it; step " in capsys.readouterr().out
    run(folder, *(["--until", "pretrain_train"] if kills is KILLS else []))
    log = (folder / "logs/main/pretrain/train.log").read_text()
    assert "resuming after step" in log, log
    made = snapshot(folder)
    wanted = {path: body for path, body in snapshot(complete).items() if path in made or kills is MORE_KILLS}
    assert "results/main/pretrain/train/model/model.safetensors" in made
    assert differences(made, wanted) == []


def test_no_network_is_needed(complete: Path) -> None:
    if not can_be_alone():
        pytest.skip("a process cannot be given a network of its own here")
    (interface,) = (complete / "network").read_text(encoding="utf-8").splitlines()
    assert interface.startswith("1: lo:")


def test_second_run_does_nothing(complete: Path) -> None:
    assert "Nothing to be done" in run(complete)


def test_two_runs_in_one_folder_are_refused(copy_of: Callable[[], Path]) -> None:
    from crawl2llm.core import run_lock

    folder = copy_of()
    (folder / "results/main/report/render/manifest.json").unlink()
    run_lock.take_lock(folder / ".snakemake" / "run.lock")
    done = subprocess.run(command(folder), capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
    assert done.returncode != 0
    assert f"another run (process {os.getpid()})" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_tasks_of_several_shards(complete: Path, tmp_path: Path) -> None:
    """With as many tasks as shards the data is the same, byte for byte."""
    with checkout(tmp_path) as root:
        steps = root / "scripts/crawl2llm/chain/steps.py"
        text = steps.read_text(encoding="utf-8")
        steps.write_text(text.replace("AT_ONCE = 8", "AT_ONCE = 1"), encoding="utf-8")
        assert steps.read_text(encoding="utf-8") != text
        folder = tmp_path / "run"
        options = [
            str(root / "Snakefile") if option == str(ROOT / "Snakefile") else option for option in command(folder)
        ]
        done = subprocess.run(
            [*options, "--until", "tokenize_encode"],
            capture_output=True,
            text=True,
            env=environment(),
            cwd=root,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert not (folder / "logs/main/language/score/00001.log").exists()
    # Manifests and records name the code, which differs.
    mine = {
        path: body
        for path, body in snapshot(folder).items()
        if not path.endswith(("manifest.json", "run.json", "manifest.copy"))
    }
    assert len(mine) > 30
    assert differences(mine, {path: body for path, body in snapshot(complete).items() if path in mine}) == []
