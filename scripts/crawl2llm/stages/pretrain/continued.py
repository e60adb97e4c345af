"""Train a model of the run on: its pre-training continued, on the corpus in its own tokens, with a learning rate that rises again.

Writes `<model>/model/` (safetensors, config.json and tokenizer) and `<model>/losses.jsonl`. The held-out loss before and after is in the
manifest, in nats a token. Started by crawl2llm.training.launch; an interrupted run resumes from its newest checkpoint in
`<checkpoints>/<digest of settings and inputs>/`, as a fine-tuning does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import CONTINUE_STEP
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.stages.pretrain import longer_model
from crawl2llm.stages.pretrain.mix_parts import Parts, add_by_source
from crawl2llm.stages.pretrain.settings import ContinueSettings
from crawl2llm.training import checkpoint, metrics, mix_reader, mixture, model, program, quantized_weights, text_run
from crawl2llm.training.mix_order import MixOrder
from crawl2llm.training.mix_shares import SHARE_TOLERANCE, Group, Phase
from crawl2llm.training.model_loading import model_folder, verify_weights
from crawl2llm.training.run_state import RunState
from crawl2llm.training.schedule import Plan
from crawl2llm.training.tuning import remove_checkpoints, train_and_measure
from crawl2llm.training.window_readers import WindowReader

START = "start"  # in the folder of the checkpoints: the model to begin with, where it is not its parent


class Windows(text_run.Windows):
    """Windows by the shares of sources, where the settings have any."""

    settings: ContinueSettings

    def open_reader(self, plan: Plan) -> WindowReader:
        """See text_run.Windows."""
        shares = self.settings.shares
        if not shares:
            return super().open_reader(plan)
        with tempfile.TemporaryDirectory() as aside:
            parts = Parts(Path(aside))
            add_by_source(self.tokens, parts)
            groups, span_counts = parts.write(Path(aside) / mix_reader.SPANS, self.context)
            spans = np.load(Path(aside) / mix_reader.SPANS)
        phase = Phase(0, plan.steps * plan.sequences, tuple(group_shares(shares, groups, self.where)))
        names = [group.name for group in groups]
        order = MixOrder([phase], names, [group.windows for group in groups], self.seed)
        return mix_reader.GroupReader(self.stream, self.context, order, names, spans, span_counts)


def group_shares(shares: dict[str, float], groups: list[Group], where: str) -> list[float]:
    """The share of each source; those that are not named have what is left, by their tokens. Sources without a window have nothing.

    Raises InputError for a source that has too few tokens, and where nobody has what is left.
    """
    sizes = {group.name: group.tokens for group in groups if group.windows}
    if few := sorted(name for name, share in shares.items() if share and name not in sizes):
        raise InputError(
            f"{where}.shares names {few[0]!r}, whose training text has no window; those that have are {', '.join(sizes) or 'none'}"
        )
    left, others = 1 - sum(shares.values()), sum(size for name, size in sizes.items() if name not in shares)
    if left > SHARE_TOLERANCE and not others:
        raise InputError(f"{where}.shares add up to {1 - left:g}, not to 1, and the training text has no other source")
    out = [shares.get(group.name, max(left, 0.0) * sizes.get(group.name, 0) / max(others, 1)) for group in groups]
    return [share / sum(out) for share in out]


class Run(text_run.Run):
    """A continued pre-training. source: the folder of the model that it begins with."""

    where = CONTINUE_STEP
    program = "crawl2llm.stages.pretrain.continue"
    kind_of_windows = Windows
    settings: ContinueSettings

    def window_tokens(self, source: Path, settings: Any) -> int:
        """The tokens of a window: `context`, or the model's."""
        return settings.context or super().window_tokens(source, settings)

    def take_step(self, state: RunState, batch: Any) -> None:
        """See pair_run.Run; a row has the tokens of each source, too, where there are shares."""
        super().take_step(state, batch)
        if isinstance(reader := self.batches.reader, mix_reader.GroupReader):
            state.row |= reader.loss_row(self.batches.step_indices(state.step))


def start_folder(source: Path, settings: ContinueSettings, folder: Path, name: str) -> Path:
    """The folder of the model to begin with: `source`, or folder/start, which process 0 writes and the others wait for.

    Raises InputError if it is not there in `step_timeout` seconds.
    """
    if not longer_model.is_changed(source, settings):
        return source
    start = folder / START
    if os.environ["RANK"] == "0" and not start.is_dir():
        with checkpoint.detect_full_disk(folder):
            longer_model.write_model(source, settings, start, name)
    end = time.monotonic() + settings.step_timeout
    while not start.is_dir():
        if time.monotonic() > end:
            raise InputError(
                f"the model to begin with is not in {start} after {settings.step_timeout} s ({CONTINUE_STEP}.step_timeout)"
            )
        time.sleep(0.05)
    return start


def body(args: argparse.Namespace, settings: ContinueSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    signals = program.begin_training(settings.device)
    folder, first, name = command_line.checkpoint_folder(args), os.environ["RANK"] == "0", task_of(args.manifest)
    # Process 0 compares checksums; if it fails, the launcher ends the others.
    parent = verify_weights(args.model)[1] if first else model_folder(args.model) / model.FOLDER
    if quantized_weights.is_quantized(parent):
        raise InputError(f"models.{name}.from: the weights in {parent} are quantized and cannot be trained")
    if not first:
        train_and_measure(Run(args, settings, folder, start_folder(parent, settings, folder, name)), None, signals)
        return []
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = Run(args, settings, folder, start_folder(parent, settings, folder, name))
        for words in mixture.report_notes(run.engine.model.config):
            log.warning("%s", words)
        tensors, made_on = text_run.train_with_rows(run, folder, signals)
        manifest.run |= made_on
        return write_results(run, tensors, manifest)


def write_results(run: Run, tensors: dict[str, torch.Tensor], manifest: Manifest) -> list[Path]:
    """Write model/ and losses.jsonl, and fill the manifest's summary; the files to list."""
    out = model_folder(run.args.manifest)
    files = text_run.export_results(run, tensors, out)
    rows = metrics.read(out / metrics.LOSSES)
    before, after = (measures.get("heldout_loss") for measures in (run.before, run.after))
    reader = run.batches.reader
    mix = reader if isinstance(reader, mix_reader.GroupReader) else None
    manifest.summary = {
        "trained": True,
        "parameters": run.size,
        "vocabulary": run.engine.model.config.vocab_size,
        "context": run.context,
        **text_run.training_facts(run, [row["loss"] for row in rows if "loss" in row]),
        **mix_reader.manifest_summary(mix, rows, run.steps),
        "validation_loss_before": before and round(before, 6),
        "validation_loss_after": after and round(after, 6),
    }
    return [*files, out / metrics.LOSSES]


def clear_checkpoints(args: argparse.Namespace) -> None:
    """Remove a finished run's checkpoints, and the model that it began with beside them."""
    folder = command_line.checkpoint_folder(args)
    shutil.rmtree(folder / START, ignore_errors=True)
    remove_checkpoints(args)


main = program.TrainingProgram(CONTINUE_STEP, __doc__, ContinueSettings, body, after=clear_checkpoints)
