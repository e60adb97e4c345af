"""A training of a model that is there on windows of the training text, by the engines and checkpoints of every training."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from crawl2llm.chain.config_schema import given_settings
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint, data, heldout, metrics, model, pair_run, stream_documents
from crawl2llm.training.batch import IGNORE
from crawl2llm.training.model_loading import context_of
from crawl2llm.training.pair_batches import Cuts, MicroBatch, deal_micro_batches
from crawl2llm.training.schedule import Plan
from crawl2llm.training.shared_settings import TextTrainingSettings
from crawl2llm.training.tuning import train_and_measure
from crawl2llm.training.window_readers import StreamReader, WindowReader


class Windows:
    """The batches of a training on `processes` processes, of windows of the training text as in pre-training.

    `size` is that of a micro-batch: at most that of the settings, and all of a step alike; `rounds` are the micro-batches of a process.
    """

    rows_each = 1  # rows of a micro-batch for each of its windows

    def __init__(
        self,
        tokens: list[Path],
        settings: TextTrainingSettings,
        context: int,
        end: int,
        processes: int,
        where: str,
        training_tokens: int = 0,
    ) -> None:
        self.settings, self.where = settings, where
        self.tokens, self.stream = tokens, data.open_split(tokens, "train")
        self.seed, self.context, self.end, self.processes = settings.seed, context, end, processes
        self.windows = data.count_windows(self.stream, context)
        if settings.batch_tokens % context:
            raise InputError(
                f"{where}.batch_tokens is {settings.batch_tokens}; it must be a multiple of the model's context, {context} tokens"
            )
        self.sequences = settings.batch_tokens // context
        self.steps = math.ceil(training_tokens / settings.batch_tokens)
        self.reader = self.open_reader(Plan(self.steps, self.sequences, context, self.windows))
        self.rounds = math.ceil(self.sequences / (processes * settings.micro_batch))
        self.size = math.ceil(self.sequences / (processes * self.rounds))

    def open_reader(self, plan: Plan) -> WindowReader:
        """What reads the windows, in the order of the seed."""
        return StreamReader(self.stream, plan, self.seed)

    def step_indices(self, step: int) -> data.Tokens:
        """The windows of a step, of all processes."""
        return self.reader.windows_at((step - 1) * self.sequences, self.sequences)

    def ids(self, step: int) -> list[str]:
        """The ids of the documents of a step, of all processes."""
        return stream_documents.document_ids(self.tokens, self.reader.places(self.step_indices(step)))

    def micro_batches(self, step: int, rank: int) -> list[MicroBatch]:
        """A process's micro-batches of a step; every process has as many."""
        return [
            self.micro_batch(turn[rank])
            for turn in deal_micro_batches(self.step_indices(step), self.processes, self.size)
        ]

    def micro_batch(self, windows: Iterable[int]) -> MicroBatch:
        """Inputs and targets of windows; of none, a row in which no target counts."""
        indices = np.asarray(list(windows), np.int64)
        if not len(indices):
            row = torch.full((1, 2), self.end)
            return row, torch.full_like(row, IGNORE)
        tokens = torch.from_numpy(self.reader.read(indices[None])[0].astype(np.int64))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Run(pair_run.Run):
    """A training whose batches are windows of text. source: the folder of the model that it begins with."""

    tokens_key = "tokens"  # of its section, how many it trains on
    kind_of_windows = Windows
    settings: TextTrainingSettings  # type: ignore[assignment] # it has no pairs
    batches: Windows  # type: ignore[assignment]

    def __init__(self, args: argparse.Namespace, settings: TextTrainingSettings, folder: Path, source: Path) -> None:
        self.context = self.window_tokens(source, settings)
        super().__init__(args, settings, folder, source)  # type: ignore[arg-type]

    def window_tokens(self, source: Path, settings: TextTrainingSettings) -> int:
        """The tokens of a window: the context of the model."""
        return context_of(AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False))

    def read_batches(self) -> Any:
        """The windows to train on; reads the held-out documents too."""
        end = self.tokenizer.eos_token_id
        documents, _ = heldout.choose_documents(self.args.tokens, self.settings.validation_tokens, self.settings.seed)
        pieces = heldout.scoring_pieces(documents, end, self.context, heldout.CARRY)
        self.heldout = sorted(pieces, key=lambda piece: len(piece[0]))  # so that a batch needs little padding
        self.heldout_tokens = sum(scored for _, scored, _ in self.heldout)
        training_tokens = getattr(self.settings, self.tokens_key)
        return self.kind_of_windows(
            self.args.tokens, self.settings, self.context, end, self.processes, self.where, training_tokens
        )

    def check_settings(self, config: Any) -> None:
        """InputError for more processes than a batch has windows."""
        check_processes(self.settings, self.batches.sequences, self.processes, self.where)

    def max_row_tokens(self) -> int:
        """The tokens of a window."""
        return self.context

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """Windows are not cut."""
        return Cuts(0, 0, 0), Cuts(0, 0, 0)

    def companions(self) -> list[Path]:
        """The files of the tokenizer beside the weights."""
        return companion_files(self.source)


def companion_files(source: Path) -> list[Path]:
    """The files of the tokenizer, and the chat template, of a model's folder."""
    return [path for name in model.COMPANIONS if (path := source / name).is_file()]


def check_processes(settings: TextTrainingSettings, sequences: int, processes: int, where: str) -> None:
    """InputError for more processes than a batch has windows."""
    if processes > sequences:
        raise InputError(
            f"{where}.batch_tokens is {settings.batch_tokens}, {sequences} windows, fewer than the {processes} processes: raise it"
        )


def train_with_rows(run: Run, folder: Path, signals: list[int]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """`train_and_measure` on process 0, which writes rows and says what it does."""
    log.info(
        "%s parameters, %s steps of %s tokens", f"{run.size:,}", f"{run.steps:,}", f"{run.settings.batch_tokens:,}"
    )
    if done := run.state.done:
        log.info("%s", checkpoint_folders.resume_line(folder / f"step-{done:06d}", done, run.steps))
    with metrics.Recorder(
        folder,
        run.state.done,
        0,
        tensorboard=False,
        wandb="disabled",
        project="",
        config=given_settings(run.where, run.settings),
    ) as recorder:
        return train_and_measure(run, recorder, signals)


def export_results(run: Run, tensors: dict[str, torch.Tensor], out: Path) -> list[Path]:
    """Write model/, losses.jsonl and metrics.jsonl into `out`, which is made; the files of the model."""
    out.mkdir(exist_ok=True)
    for name in (metrics.LOSSES, metrics.METRICS):
        (out / name).write_bytes((run.folder / name).read_bytes())
    with checkpoint.detect_full_disk(out):
        return model.export(tensors, run.engine.model.config, run.save_dtype, run.companions(), out / model.FOLDER)


def training_facts(run: Run, losses: list[float]) -> dict[str, Any]:
    """What a manifest's summary says of the training. losses: of its steps."""
    return {
        "steps": run.steps,
        "tokens": run.steps * run.settings.batch_tokens,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "validation_tokens": run.heldout_tokens,
        "skipped_steps": run.state.skipped,
        "notes": checkpoint_folders.code_change_notes(list(run.changed)),
    }
