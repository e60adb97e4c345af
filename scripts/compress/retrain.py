"""Training on of a pruned model, on one process: windows of the training text, by the engines and checkpoints of pre-training."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from scripts.compress import masks
from scripts.finetune import run as finetune
from scripts.finetune.batches import MicroBatch, dealt
from scripts.models.load import load_tokenizer
from scripts.pretrain import (
    beside,
    checkpoint,
    checks,
    damage,
    data,
    engine,
    group,
    heldout,
    initial,
    model,
    room,
    start_from,
)
from scripts.pretrain.batch import IGNORE
from scripts.training import memory
from scripts.workflow.config import completed
from scripts.workflow.errors import InputError
from scripts.workflow.fingerprint import code
from scripts.workflow.manifest import canonical, digest

WHERE = "compress.prune"


def whole(settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` of compress.prune, with pretrain.train's defaults for what they do not name. The learning rate ends at 0."""
    return {**completed("pretrain.train", {}), "min_learning_rate_ratio": 0.0, **completed(WHERE, settings)}


class Windows:
    """The batches of a retraining on `processes` processes, of windows of the training text as in pre-training.

    `size` is that of a micro-batch: at most that of the settings, and all of a step alike; `rounds` are the micro-batches of a process.
    """

    def __init__(self, tokens: list[Path], settings: dict[str, Any], context: int, end: int, processes: int) -> None:
        self.tokens, self.stream = tokens, data.open_split(tokens, "train")
        self.seed, self.context, self.end, self.processes = settings["seed"], context, end, processes
        self.windows = (len(self.stream) - 1) // context
        if self.windows < 1:
            raise InputError(
                f"the training shards hold {len(self.stream):,} tokens, too few for one window of {context}"
            )
        if settings["batch_tokens"] % context:
            raise InputError(
                f"{WHERE}.batch_tokens is {settings['batch_tokens']}; it must be a multiple of the model's context, {context} tokens"
            )
        self.sequences = settings["batch_tokens"] // context
        self.steps = math.ceil(settings["retrain_tokens"] / settings["batch_tokens"])
        self.rounds = math.ceil(self.sequences / (processes * settings["micro_batch"]))
        self.size = math.ceil(self.sequences / (processes * self.rounds))

    def order(self, step: int) -> data.Tokens:
        """The windows of a step, of all processes."""
        return data.windows_from((step - 1) * self.sequences, self.sequences, self.windows, self.seed)

    def first(self, tokens: int) -> torch.Tensor:
        """Windows of the training text to calibrate on, of about so many tokens: int64 [n, context]."""
        number = max(1, min(tokens // self.context, self.windows))
        chosen = data.windows_from(0, number, self.windows, self.seed)
        return torch.from_numpy(data.read_windows(self.stream, chosen[None], self.context)[0][:, :-1].astype(np.int64))

    def ids(self, step: int) -> list[str]:
        """The ids of the documents of a step, of all processes."""
        return data.documents(self.tokens, self.order(step), self.context)

    def of(self, step: int, rank: int) -> list[MicroBatch]:
        """A process's micro-batches of a step; every process has as many."""
        return [self.micro_batch(turn[rank]) for turn in dealt(self.order(step), self.processes, self.size)]

    def micro_batch(self, windows: Iterable[int]) -> MicroBatch:
        """Inputs and targets of windows; of none, a row in which no target counts."""
        chosen = np.asarray(list(windows), np.int64)
        if not len(chosen):
            row = torch.full((1, 2), self.end)
            return row, torch.full_like(row, IGNORE)
        found = torch.from_numpy(data.read_windows(self.stream, chosen[None], self.context)[0].astype(np.int64))
        return found[:, :-1].contiguous(), found[:, 1:].contiguous()


class Run(finetune.Run):
    """A fine-tuning whose batches are windows of text, and whose zeroed weights stay zero.

    source: the folder of the pruned model. zeroed: names of its parameters with zeros to keep.
    """

    def __init__(
        self, args: argparse.Namespace, settings: dict[str, Any], folder: Path, source: Path, zeroed: list[str]
    ) -> None:
        self.args, self.folder, self.source, self.settings = args, folder, source, whole(settings)
        self.rank, self.processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.tokenizer = load_tokenizer(source)
        config = AutoConfig.from_pretrained(source, local_files_only=True)
        context = context_of(config)
        self.batches: Any = Windows(args.tokens, settings, context, self.tokenizer.eos_token_id, self.processes)
        self.steps, self.size = self.batches.steps, model.size(config)
        self.save_dtype = next((name for name, dtype in model.DTYPES.items() if dtype == config.dtype), "fp32")
        check(settings, self.batches.sequences, self.processes, bool(zeroed))
        checks.saving({**self.settings, "async_checkpoints": False}, WHERE)
        self.device = group.choose_device(args.device, int(os.environ["LOCAL_WORLD_SIZE"]), WHERE)
        place = {
            "micro_batch": self.batches.size,
            "processes": self.processes,
            "activation_checkpointing": args.activation_checkpointing,
            "async_checkpoints": False,
            "largest": self.batches.sequences,
        }
        shape, cuda = memory.shape_of_config(config, self.size, context), self.device.type == "cuda"
        self.estimated = room.check(shape, self.settings, place, cuda, WHERE)
        self.room = partial(room.enough, shape=shape, settings=self.settings, placement=place, cuda=cuda, where=WHERE)
        self.kind = self.settings["engine"]
        group.start(self.kind, self.device, settings["threads"])
        self.code = code("scripts.compress.prune")
        self.mark = digest(canonical([settings, self.steps]))
        found = checkpoint.agreed(folder, self.code, self.mark, self.steps, self.device)
        self.done, self.skipped = (found.step, list(found.skipped)) if found else (0, [])
        self.changed = found.changed if found else ()
        stored = start_from.check_weights(initial.empty(config), source, source / "tokenizer.json", WHERE)
        job = engine.Job(
            config=config,
            settings=self.settings,
            device=self.device,
            micro_batch=self.batches.size,
            accumulation=self.batches.rounds,
            recomputed=args.activation_checkpointing,
            values=partial(start_from.weights, stored, partial(initial.values, config, settings["seed"])),
            where=WHERE,
        )
        self.beside: beside.Beside | None = None
        try:
            self.engine = engine.kind(self.kind)(job)
            masks.hold(self.engine.model, zeroed)
            if found:
                with damage.named(found.path, folder):
                    self.engine.load(found, folder)
        except InputError as error:  # the same on every process
            raise checkpoint.Told(str(error)) from error
        documents, _ = heldout.choose(args.tokens, settings["validation_tokens"], settings["seed"])
        pieces = heldout.pieces(documents, self.tokenizer.eos_token_id, context, heldout.CARRY)
        self.heldout = sorted(pieces, key=lambda piece: len(piece[0]))  # so that a batch needs little padding
        self.heldout_tokens = sum(scored for _, scored, _ in self.heldout)
        self.before = found.before if found else self.heldout_loss()
        self.after: float | None = None

    def check_skipped(self) -> None:
        """Told, the error of all processes, where more steps were skipped than `max_skipped_steps`."""
        if len(self.skipped) > self.args.max_skipped_steps:
            raise checkpoint.Told(
                f"the loss or the gradient was not finite in {len(self.skipped)} steps, the last is step {self.skipped[-1]}; "
                f"{WHERE}.max_skipped_steps is {self.args.max_skipped_steps}. Lower {WHERE}.learning_rate"
            )

    def companions(self) -> list[Path]:
        """The files of the tokenizer beside the weights."""
        return companions(self.source)


def companions(source: Path) -> list[Path]:
    """The files of the tokenizer, and the chat template, of a model's folder."""
    return [path for name in model.COMPANIONS if (path := source / name).is_file()]


def context_of(config: Any) -> int:
    """The longest text of a model in tokens; 2,048 where its configuration names none."""
    return int(getattr(config, "max_position_embeddings", None) or 2048)


def check(settings: dict[str, Any], sequences: int, processes: int, masked: bool) -> None:
    """InputError for more processes than a batch has windows, and for zeros that an engine's shards would not keep."""
    if processes > sequences:
        raise InputError(
            f"{WHERE}.batch_tokens is {settings['batch_tokens']}, {sequences} windows, fewer than the {processes} processes: raise it"
        )
    if masked and settings["zero_stage"]:
        raise InputError(
            f"{WHERE}.zero_stage is {settings['zero_stage']}; zeros of method {settings['method']!r} stay zero under stage 0 alone"
        )
