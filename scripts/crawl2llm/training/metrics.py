"""What a run shows while it trains: losses.jsonl, metrics.jsonl, Prometheus, TensorBoard and Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, TextIO

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import write_atomically
from crawl2llm.training.prometheus import Exporter, Labelled

Wandb = Literal["offline", "online", "disabled"]
LOSSES, METRICS = "losses.jsonl", "metrics.jsonl"
ROLL_BACK_KEY = "roll_back"  # in a row of losses.jsonl that says that the run went back: 1 for the first time
REMEDY = "put the file back as the run wrote it, or remove its folder and train from the beginning"


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file, without one at its end that was being written when the run was killed.

    Raises InputError for any other line that is no row.
    """
    rows, lines = [], path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise InputError(f"{path}, line {number} is not JSON: {REMEDY}") from None
    return rows


def keep_rows_until(path: Path, step: int) -> list[dict[str, Any]]:
    """Keep the rows of a JSON Lines file up to `step`, the checkpoint's, so that the curve continues without a double."""
    rows = [row for row in read(path) if row["step"] <= step] if path.is_file() else []
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
    return rows


def check_loss_rows(path: Path, rows: list[dict[str, Any]], begun: int, done: int) -> None:
    """InputError if losses.jsonl does not have a row for each step after `begun`, up to `done`."""
    steps = [row["step"] for row in rows if ROLL_BACK_KEY not in row and "bits_per_byte" not in row]
    if lost := sorted(set(range(begun + 1, done + 1)) - set(steps)):
        raise InputError(f"{path} lacks {len(lost):,} of {done - begun:,} steps, the first is {lost[0]:,}: {REMEDY}")


class Recorder:
    """Writes the rows of process 0 into the run's folder, from `step` on.

    begun: the step after which the run began, of another run that it is a branch of. project, config: for W&B, what decides the run's
    weights. port: for Prometheus, 0 for none. Raises InputError if rows before `step` are gone. In a `with` it is closed at the end,
    also after an error.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        begun: int,
        *,
        tensorboard: bool,
        wandb: Wandb,
        project: str,
        config: dict[str, Any],
        port: int = 0,
    ) -> None:
        self.exporter = Exporter(folder, port)
        self.folder, self.files = folder, dict[str, TextIO]()
        earlier: list[dict[str, Any]] = []
        for name in (LOSSES, METRICS):
            earlier = keep_rows_until(folder / name, step or -1)  # a run that begins has no row yet, not even of step 0
            if name == LOSSES:
                check_loss_rows(folder / name, earlier, begun, step)
            self.files[name] = (folder / name).open("a", encoding="utf-8", buffering=1)
        self.seconds = max((row.get("seconds", 0.0) for row in earlier), default=0.0)  # of the attempts before
        self.board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else 0)
        self.wandb = _start_wandb(folder, wandb, project, config)

    def write_loss(self, row: dict[str, Any]) -> None:
        """A row of losses.jsonl: what is the same in every run of this config."""
        self.files[LOSSES].write(json.dumps(row) + "\n")

    def write_metrics(self, row: dict[str, Any], processes: Labelled | None = None) -> None:
        """A row of metrics.jsonl, Prometheus, TensorBoard and W&B; values that are None are left out. processes: for Prometheus alone."""
        row = {key: value for key, value in row.items() if value is not None}
        self.exporter.publish_row(row, processes or [])
        self.files[METRICS].write(json.dumps(row) + "\n")
        for key, value in row.items():
            if self.board and key != "step":
                self.board.add_scalar(key, value, row["step"])
        if self.wandb:
            self.wandb.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])

    def write_table(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl alone, whose values are no numbers."""
        self.files[METRICS].write(json.dumps(row) + "\n")

    def write_validation(self, step: int, steps: int, scores: dict[str, Any], over: bool = False) -> None:
        """A row of both files of what `heldout.summarize_scores` found after a step of `steps`; of several sources, bits per byte of each
        too.

        over: whether the run stops early with it.
        """
        row = {"step": step, "validation_loss": scores["loss"], "bits_per_byte": scores["bits_per_byte"]}
        row |= {"stopped_early": True} if over else {}
        parts = {name: part["bits_per_byte"] for name, part in scores["by_source"].items()}
        several = len(parts) > 1
        self.write_loss(row | ({"bits_per_byte_by_source": parts} if several else {}))
        self.write_metrics(row | ({f"bits_per_byte/{name}": value for name, value in parts.items()} if several else {}))
        bits = [f"{scores['bits_per_byte'] or math.nan:.4f} bits per byte"]
        bits += [f"{name} {value or math.nan:.4f}" for name, value in parts.items()] if several else []
        log.info("step %s/%s, validation loss %.4f, %s", f"{step:,}", f"{steps:,}", scores["loss"], ", ".join(bits))

    def rewrite_rows(self, change_rows: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        """Put other rows in the place of those of losses.jsonl, and of metrics.jsonl, where steps were taken back.

        Curves in TensorBoard and W&B keep what they have shown.
        """
        for name, handle in self.files.items():
            handle.close()
            rows = change_rows(read(self.folder / name))
            text = "".join(json.dumps(row) + "\n" for row in rows)
            write_atomically(self.folder / name, text)
            self.files[name] = (self.folder / name).open("a", encoding="utf-8", buffering=1)

    def sync(self) -> None:
        """Force all rows to the disk, before a checkpoint counts that follows them."""
        for handle in self.files.values():
            handle.flush()
            os.fsync(handle.fileno())

    def add_seconds(self, seconds: float) -> None:
        """Add the seconds of a part of this attempt, from which a clock starts again."""
        self.seconds += seconds

    def close(self, failed: bool = False) -> None:
        """Flush everything, each thing also where another cannot be. failed: what W&B says of the run."""
        with contextlib.ExitStack() as ends:  # the last is called first
            if self.wandb:
                ends.callback(self.wandb.finish, exit_code=int(failed))
            if self.board:
                ends.callback(self.board.close)
            for handle in self.files.values():
                ends.callback(handle.close)
            ends.callback(self.sync)
            ends.callback(self.exporter.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close(failed=kind is not None and not issubclass(kind, SystemExit))
        except Exception as error:
            if kind is None:
                raise
            log.warning("what the run shows could not be closed: %s", error)  # and the error that ended it is told


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
