"""What a run shows while it trains: losses.jsonl, metrics.jsonl, TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TextIO

from scripts.workflow.console import log
from scripts.workflow.manifest import write_atomically

Wandb = Literal["offline", "online", "disabled"]
LOSSES, METRICS = "losses.jsonl", "metrics.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file, up to one that was being written when the run was killed."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def cut(path: Path, step: int) -> list[dict[str, Any]]:
    """Keep the rows of a JSON Lines file up to `step`, the checkpoint's, so that the curve continues without a double."""
    kept = [row for row in read(path) if row["step"] <= step] if path.is_file() else []
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))
    return kept


class Recorder:
    """Writes the rows of process 0 into the run's folder, from `step` on."""

    def __init__(
        self, folder: Path, step: int, tensorboard: bool, wandb: Wandb, project: str, config: dict[str, Any]
    ) -> None:
        self.folder, self.files = folder, dict[str, TextIO]()
        earlier: list[dict[str, Any]] = []
        for name in (LOSSES, METRICS):
            earlier = cut(folder / name, step)
            self.files[name] = (folder / name).open("a", encoding="utf-8", buffering=1)
        self.seconds = max((row.get("seconds", 0.0) for row in earlier), default=0.0)  # of the attempts before
        self.board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        self.wandb = _start_wandb(folder, wandb, project, config)

    def loss(self, row: dict[str, Any]) -> None:
        """A row of losses.jsonl: what is the same in every run of this config."""
        self.files[LOSSES].write(json.dumps(row) + "\n")

    def metrics(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl, of TensorBoard and of W&B; values that are None are left out."""
        row = {key: value for key, value in row.items() if value is not None}
        self.files[METRICS].write(json.dumps(row) + "\n")
        for key, value in row.items():
            if self.board and key != "step":
                self.board.add_scalar(key, value, row["step"])
        if self.wandb:
            self.wandb.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])

    def rewrite(self, of: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        """Put other rows in the place of those of losses.jsonl, and of metrics.jsonl, where steps were taken back.

        Curves in TensorBoard and W&B keep what they have shown.
        """
        for name, handle in self.files.items():
            handle.close()
            rows = of(read(self.folder / name))
            text = "".join(json.dumps(row) + "\n" for row in rows)
            write_atomically(self.folder / name, text)
            self.files[name] = (self.folder / name).open("a", encoding="utf-8", buffering=1)

    def sync(self) -> None:
        """Force all rows to the disk, before a checkpoint counts that follows them."""
        for handle in self.files.values():
            handle.flush()
            os.fsync(handle.fileno())

    def close(self) -> None:
        """Flush everything."""
        self.sync()
        for handle in self.files.values():
            handle.close()
        if self.board:
            self.board.close()
        if self.wandb:
            self.wandb.finish()


def run_id(folder: Path) -> str:
    """The W&B run's id: the folder's name, so that attempts continue it, with a number where earlier runs were moved out of the folder."""
    earlier = sum(path.is_dir() for path in folder.parent.glob(f"{folder.name}-*"))
    return f"{folder.name}-{earlier}" if earlier else folder.name


def _start_wandb(folder: Path, mode: Wandb, project: str, config: dict[str, Any]) -> Any:
    """The W&B run; None when disabled or not to be had."""
    if mode == "disabled":
        return None
    try:
        import wandb

        quiet = wandb.Settings(silent=True, console="off")
        name = run_id(folder)
        return wandb.init(
            project=project, id=name, resume="allow", mode=mode, dir=str(folder), config=config, settings=quiet
        )
    except Exception as error:  # a training run must not end because its dashboard is not there
        log.warning("W&B is left out: %s", error)
        return None
