"""Training on of a smaller model, on one process: windows of the training text, by the engines and checkpoints of pre-training."""

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
from crawl2llm.stages.compress import calibration, masks
from crawl2llm.stages.compress.settings import RetrainSettings
from crawl2llm.training import data, engine, heldout, metrics, model, stream_documents
from crawl2llm.training import pair_run as finetune
from crawl2llm.training.batch import IGNORE
from crawl2llm.training.model_loading import context_of
from crawl2llm.training.pair_batches import Cuts, MicroBatch, deal_micro_batches
from crawl2llm.training.tuning import train_and_measure

WHERE = "compress.prune"


class Windows:
    """The batches of a retraining on `processes` processes, of windows of the training text as in pre-training.

    `size` is that of a micro-batch: at most that of the settings, and all of a step alike; `rounds` are the micro-batches of a process.
    """

    rows_each = 1  # rows of a micro-batch for each of its windows

    def __init__(
        self,
        tokens: list[Path],
        settings: RetrainSettings,
        context: int,
        end: int,
        processes: int,
        where: str = WHERE,
        training_tokens: int = 0,
    ) -> None:
        self.tokens, self.stream = tokens, data.open_split(tokens, "train")
        self.seed, self.context, self.end, self.processes = settings.seed, context, end, processes
        self.windows = calibration.count_windows(self.stream, context)
        if settings.batch_tokens % context:
            raise InputError(
                f"{where}.batch_tokens is {settings.batch_tokens}; it must be a multiple of the model's context, {context} tokens"
            )
        self.sequences = settings.batch_tokens // context
        self.steps = math.ceil(training_tokens / settings.batch_tokens)
        self.rounds = math.ceil(self.sequences / (processes * settings.micro_batch))
        self.size = math.ceil(self.sequences / (processes * self.rounds))

    def step_indices(self, step: int) -> data.Tokens:
        """The windows of a step, of all processes."""
        return data.windows_from((step - 1) * self.sequences, self.sequences, self.windows, self.seed)

    def calibration_windows(self, tokens: int) -> torch.Tensor:
        """Windows of the training text to calibrate on, of about so many tokens: int64 [n, context]."""
        return torch.from_numpy(calibration.first_windows(self.stream, self.context, tokens, self.seed))

    def ids(self, step: int) -> list[str]:
        """The ids of the documents of a step, of all processes."""
        places = data.window_places(self.step_indices(step), self.context)
        return stream_documents.document_ids(self.tokens, places)

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
        tokens = torch.from_numpy(data.read_windows(self.stream, indices[None], self.context)[0].astype(np.int64))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Run(finetune.Run):
    """A fine-tuning whose batches are windows of text, and whose zeroed weights stay zero.

    source: the folder of the smaller model. zeroed: names of its parameters with zeros to keep.
    """

    where = WHERE
    program = "crawl2llm.stages.compress.prune"
    tokens_key = "retrain_tokens"  # of its section, how many it trains on
    settings: RetrainSettings  # type: ignore[assignment] # it has no pairs

    def __init__(
        self, args: argparse.Namespace, settings: RetrainSettings, folder: Path, source: Path, zeroed: list[str]
    ) -> None:
        self.zeroed = zeroed
        self.context = context_of(AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False))
        super().__init__(args, settings, folder, source)  # type: ignore[arg-type]

    def read_batches(self) -> Any:
        """The windows to train on; reads the held-out documents too."""
        end = self.tokenizer.eos_token_id
        documents, _ = heldout.choose_documents(self.args.tokens, self.settings.validation_tokens, self.settings.seed)
        pieces = heldout.scoring_pieces(documents, end, self.context, heldout.CARRY)
        self.heldout = sorted(pieces, key=lambda piece: len(piece[0]))  # so that a batch needs little padding
        self.heldout_tokens = sum(scored for _, scored, _ in self.heldout)
        training_tokens = getattr(self.settings, self.tokens_key)
        return Windows(self.args.tokens, self.settings, self.context, end, self.processes, self.where, training_tokens)

    def check_settings(self, config: Any) -> None:
        """InputError for settings that cannot go with the windows, the processes or the zeros."""
        check_retraining(self.settings, self.batches.sequences, self.processes, bool(self.zeroed), self.where)

    def max_row_tokens(self) -> int:
        """The tokens of a window."""
        return self.context

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """Windows are not cut."""
        return Cuts(0, 0, 0), Cuts(0, 0, 0)

    def build_engine(self, job: engine.Job) -> engine.Engine:
        """The engine, with the pruned model, whose zeros it keeps."""
        built_engine = super().build_engine(job)
        masks.keep_zeros(built_engine.model, self.zeroed)
        return built_engine

    def companions(self) -> list[Path]:
        """The files of the tokenizer beside the weights."""
        return companion_files(self.source)


def companion_files(source: Path) -> list[Path]:
    """The files of the tokenizer, and the chat template, of a model's folder."""
    return [path for name in model.COMPANIONS if (path := source / name).is_file()]


def check_retraining(
    settings: RetrainSettings, sequences: int, processes: int, masked: bool, where: str = WHERE
) -> None:
    """InputError for more processes than a batch has windows, and for zeros that an engine's shards would not keep."""
    if processes > sequences:
        raise InputError(
            f"{where}.batch_tokens is {settings.batch_tokens}, {sequences} windows, fewer than the {processes} processes: raise it"
        )
    if masked and settings.zero_stage:
        raise InputError(
            f"{where}.zero_stage is {settings.zero_stage}; zeros of method 'magnitude' or '2:4' stay zero under stage 0 alone"
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
