"""Which checkpoint a run goes on from, where code or the values of `auto` changed: on folders, without a training."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.command_line import LOG
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.atomic_folder import seal_folder, sync_folder
from crawl2llm.core.root import ROOT
from crawl2llm.training import checkpoint
from crawl2llm.training.checkpoint import (
    FACTS,
    Checkpoint,
    KeepPolicy,
    checkpoint_to_resume,
    complete_checkpoints,
    move_run,
    partial_folder,
    repair_folder,
    seal_and_prune,
)
from crawl2llm.training.processes import free_port

STEPS = 40
ONE, OTHER = {"scripts/a.py": "1"}, {"scripts/a.py": "2"}


def made(folder: Path, step: int, code: dict[str, str] = ONE, settings: str = "s") -> Path:
    path = folder / f"step-{step:06d}"
    path.mkdir(parents=True)
    (path / "weights").write_text(str(code))
    facts = asdict(Checkpoint(path=path, step=step, processes=1, zero_stage=1, settings=settings, code=code))
    seal_folder(path, FACTS, {name: value for name, value in facts.items() if name != "path"}, sync_folder(path))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "0123"
    checkpoint_folders.write_pointer(place, Path("results/main/pretrain/train/manifest.json"), "mark")
    for name in (LOG, ".lock", "losses.jsonl"):
        (place / name).write_text(name)
    return place


def test_the_same_code_goes_on(folder: Path) -> None:
    made(folder, 10)
    made(folder, STEPS)
    found = checkpoint_to_resume(folder, ONE, "s", STEPS)
    assert found is not None and found.step == STEPS and found.changed == ()


def test_a_checkpoint_from_before_there_were_two_engines_is_deepspeeds(folder: Path) -> None:
    path = made(folder, 10)
    facts = json.loads((path / FACTS).read_text())
    for name in ("engine", "validation", "lowest"):
        del facts[name]
    (path / FACTS).write_text(json.dumps(facts))
    (found,) = complete_checkpoints(folder)
    assert (found.step, found.engine, found.lowest) == (10, "deepspeed", None)


@pytest.mark.parametrize(
    ("kept", "steps"),
    [
        (KeepPolicy(2), [40, 50]),
        (KeepPolicy(1, interval=20), [20, 40, 50]),
        (KeepPolicy(1, best=True), [30, 50]),
        (KeepPolicy(2, interval=15, best=True), [30, 40, 50]),
        (KeepPolicy(9), [10, 20, 30, 40, 50]),
        (KeepPolicy(1, points=(20, 25)), [20, 40, 50]),
        (KeepPolicy(1, points=(20, 9)), [40, 50]),
        (KeepPolicy(1, best=True, points=(20, 25)), [10, 20, 30, 40, 50]),  # 10 was the best until 20
    ],
)
def test_which_checkpoints_stay(kept: KeepPolicy, steps: list[int]) -> None:
    losses = {10: 3.0, 30: 2.0, 40: 2.5}
    found = [
        Checkpoint(
            path=Path(str(n)), step=n, processes=1, zero_stage=1, settings="s", code=ONE, validation=losses.get(n)
        )
        for n in range(10, 51, 10)
    ]
    assert [one.step for one in kept.checkpoints_to_keep(found)] == steps


def test_other_code_goes_on_with_what_is_not_finished(folder: Path) -> None:
    made(folder, 10)
    found = checkpoint_to_resume(folder, OTHER, "s", STEPS)
    assert found is not None and found.step == 10 and found.code == OTHER
    assert found.changed == ({"step": 10, "modules": {"scripts/a.py": ["1", "2"]}},)


@pytest.mark.parametrize(("step", "settings"), [(STEPS, "s"), (10, "auto stood for something else")])
def test_what_is_none_of_this_codes_work_is_moved_away(folder: Path, step: int, settings: str) -> None:
    made(folder, 5, settings=settings)
    made(folder, step, settings=settings)
    assert checkpoint_to_resume(folder, OTHER, "s", STEPS) is None
    assert {path.name for path in folder.iterdir()} == {LOG, ".lock", checkpoint_folders.POINTER}
    (apart,) = [path for path in folder.parent.iterdir() if path != folder]
    assert [one.step for one in complete_checkpoints(apart)] == [5, step] and (apart / "losses.jsonl").exists()
    assert [place for place, _, _ in checkpoint_folders.trainings_below(folder.parent)] == [folder]


def test_a_kill_while_it_is_moved_is_made_good(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was moved before the kill: the newest checkpoint still says that other code finished the run."""
    made(folder, 5)
    last = made(folder, STEPS)
    rename, moved = Path.rename, list[Path]()

    def killed(path: Path, target: Path) -> Path:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(path)
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        move_run(folder, folder.with_name("apart"), last)
    assert last.exists() and last not in moved
    assert checkpoint_to_resume(folder, OTHER, "s", STEPS) is None and not complete_checkpoints(folder)


@pytest.mark.parametrize("calls", range(6))
def test_a_kill_while_a_checkpoint_takes_the_place_of_another_loses_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """As a run that goes back writes it. At every moment one of them is there, also after what comes at the next start."""
    path = made(folder, 10)
    again = Checkpoint(path=path, step=10, processes=1, zero_stage=1, settings="s", code=ONE, ahead=48)
    partial_folder(again).mkdir()
    (partial_folder(again) / "weights").write_text("others")
    left = calls

    def killing(of: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return of(*arguments, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killing(Path.rename))
        patch.setattr(checkpoint.shutil, "rmtree", killing(checkpoint.shutil.rmtree))
        with contextlib.suppress(KeyboardInterrupt):
            seal_and_prune(again, KeepPolicy(2), sync_folder(partial_folder(again)))
    repair_folder(folder)
    (found,) = complete_checkpoints(folder)
    assert (found.step, found.ahead) == (10, 48 if calls > 2 else 0) and not list(folder.glob(".step-*"))


def test_one_process_at_a_time(folder: Path) -> None:
    with (
        checkpoint_folders.hold_folder(folder),
        pytest.raises(checkpoint_folders.FolderInUseError, match="already being trained"),
        checkpoint_folders.hold_folder(folder),
    ):
        pass


def test_a_lock_that_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened its file before another process ended and removed it locks the new one, as everybody after it."""
    place, opened = tmp_path / "0123", Path.open

    def slow(path: Path, *arguments: Any) -> Any:
        handle = opened(path, *arguments)
        monkeypatch.setattr(Path, "open", opened)
        with checkpoint_folders.hold_folder(place):
            pass
        checkpoint_folders.remove_if_empty(place)
        return handle

    monkeypatch.setattr(Path, "open", slow)
    with checkpoint_folders.hold_folder(place):
        assert (place / ".lock").exists()
        with pytest.raises(checkpoint_folders.FolderInUseError), checkpoint_folders.hold_folder(place):
            pass


TELL = """
import sys, torch.distributed as dist
from crawl2llm.training import checkpoint
rank, port, error = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
try:
    checkpoint.raise_on_every_process(error)
except checkpoint.CollectiveError as told:
    print(told)
"""


@pytest.mark.slow  # starts torch twice
@pytest.mark.parametrize(
    ("errors", "said"),
    [(("", "no file"), "process 1 on .*: no file"), (("no file", "none"), "no file"), (("", ""), "")],
)
def test_an_error_of_one_process_is_told_by_all(errors: tuple[str, str], said: str) -> None:
    """Else the others, process 0 among them, would wait for it, and nobody would say why."""
    port = str(free_port())
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TELL, str(rank), port, error], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for rank, error in enumerate(errors)
    ]
    for process in started:
        assert re.fullmatch(said, process.communicate(timeout=900)[0].strip())
