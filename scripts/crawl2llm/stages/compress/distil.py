"""Distil: train a small model to give each next token the probability that a larger one of the same tokenizer gives it.

Writes `<model>/model/` (safetensors, config.json and tokenizer) and `<model>/losses.jsonl`. The held-out cross-entropy before and after is
in the manifest, in nats a token. Started by crawl2llm.training.launch; an interrupted run resumes from its newest checkpoint in
`<checkpoints>/<digest of settings and inputs>/`, as a fine-tuning does.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import DISTIL_STEP
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import masks, retrain
from crawl2llm.stages.compress.distilling_engine import DistillingEngine, Lesson, engine_class
from crawl2llm.stages.compress.divergence import Divergence
from crawl2llm.stages.compress.settings import DistilSettings
from crawl2llm.stages.compress.teacher import (
    NoTeacher,
    Teacher,
    WholeTeacher,
    WrittenTeacher,
    check_same_tokens,
    load_teacher,
)
from crawl2llm.training import memory, metrics, model, program, quantized_weights, text_run
from crawl2llm.training.compressible_layers import linear_layers, weight_bytes
from crawl2llm.training.engine import Engine, Job, Update
from crawl2llm.training.model_loading import model_folder, model_name, verify_weights
from crawl2llm.training.pair_batches import deal_micro_batches
from crawl2llm.training.tuning import remove_checkpoints, train_and_measure


class Distillation(retrain.Run):
    """A training on windows of text by what a teacher says of them. source: the folder of the student."""

    where = DISTIL_STEP
    program = "crawl2llm.stages.compress.distil"
    tokens_key = "tokens"
    settings: DistilSettings  # type: ignore[assignment] # it has no pairs
    engine: DistillingEngine

    def build_engine(self, job: Job) -> Engine:
        """The engine with the student's weights, and the teacher beside it."""
        built_engine = engine_class(self.kind)(job)
        masks.keep_zeros(built_engine.model, self.zeroed)
        self.teacher = self.find_teacher(job.config)
        built_engine.distil_by(self.teacher.loss_of_piece, self.where)
        return built_engine

    def memory_shape(self, config: Any) -> memory.Shape:
        """As `Run.memory_shape`, with a teacher beside it."""
        shape = super().memory_shape(config)
        if self.settings.text_share == 1 or self.settings.top_k:
            return shape
        folder = model_folder(self.args.teacher) / model.FOLDER
        teacher = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return replace(
            shape, teacher=memory.shape_of_config(teacher, model.count_parameters(teacher), self.max_row_tokens())
        )

    def find_teacher(self, config: Any) -> Teacher:
        """The teacher on this process's device. config: of the student."""
        settings = self.settings
        divergence = Divergence(settings.divergence == "reverse", settings.temperature, settings.text_share)
        if settings.text_share == 1:
            return NoTeacher(divergence)
        folder = model_folder(self.args.teacher) / model.FOLDER
        check_same_tokens(folder, self.source, self.where)
        if settings.top_k:
            taught = Manifest.read(self.args.taught[0])
            return WrittenTeacher(taught, settings, divergence, self.batches.windows, self.where)
        teacher = load_teacher(folder, config, settings.precision, self.device, self.where)
        return WholeTeacher(teacher, divergence, self.where)

    def update_by(self, step: int, batch: Any) -> Update:
        """As `Run.update_by`, with what the teacher says of each micro-batch."""
        self.engine.lessons = self.lessons(step, batch)
        return super().update_by(step, batch)

    def lessons(self, step: int, batch: Any) -> Iterator[Lesson]:
        """Those of this process's micro-batches of a step, each made when it is asked for."""
        turns = deal_micro_batches(self.batches.step_indices(step), self.processes, self.batches.size)
        for (inputs, *_), turn in zip(batch, turns, strict=True):
            yield self.teacher.lesson(inputs.to(self.device), turn[self.rank])


def zeroed_weights(student: Manifest, folder: Path) -> list[str]:
    """The names of the weights whose zeros stay: of a student that compress.prune made by zeroing weights, those of its linear layers.

    It may have been distilled since.
    """
    if student.step not in ("compress.prune", DISTIL_STEP) or not student.summary.get("zeros"):
        return []
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return [f"{layer.name}.weight" for layer in linear_layers(config) if not layer.output]


def body(args: argparse.Namespace, settings: DistilSettings, manifest: Manifest) -> list[Path]:
    """Train and write the results; returns the manifest's files on process 0 and nothing on the others."""
    signals = program.begin_training(settings.device)
    folder, first = command_line.checkpoint_folder(args), os.environ["RANK"] == "0"
    # Process 0 compares checksums; if it fails, the launcher ends the others.
    source = verify_weights(args.model)[1] if first else model_folder(args.model) / model.FOLDER
    if quantized_weights.is_quantized(source):
        raise InputError(f"{source} is quantized; {DISTIL_STEP} takes a student whose weights are not")
    zeroed = zeroed_weights(Manifest.read(args.model), source)
    if not first:
        train_and_measure(Distillation(args, settings, folder, source, zeroed), None, signals)
        return []
    verify_weights(args.teacher)
    with checkpoint_folders.claim_folder(folder, args.manifest, manifest.fingerprint):
        run = Distillation(args, settings, folder, source, zeroed)
        tensors, made_on = text_run.train_with_rows(run, folder, signals)
        manifest.run |= made_on
        return write_results(run, tensors, manifest)


def write_results(run: Distillation, tensors: dict[str, torch.Tensor], manifest: Manifest) -> list[Path]:
    """Write model/ and losses.jsonl, and fill the manifest's summary; the files to list."""
    out, settings = model_folder(run.args.manifest), run.settings
    files = text_run.export_results(run, tensors, out)
    losses = [row["loss"] for row in metrics.read(out / metrics.LOSSES) if "loss" in row]
    manifest.summary = {
        **(
            {"teacher": model_name(run.args.teacher), "divergence": settings.divergence}
            if settings.text_share < 1
            else {}
        ),
        "parameters": run.size,
        "bytes": weight_bytes(out / model.FOLDER),
        "student_loss_before": round(run.before["heldout_loss"], 6),
        "student_loss_after": round(run.after["heldout_loss"], 6),
        **({"zeros": Manifest.read(run.args.model).summary["zeros"]} if run.zeroed else {}),
        **text_run.training_facts(run, losses),
    }
    return [*files, out / metrics.LOSSES]


main = program.TrainingProgram(DISTIL_STEP, __doc__, DistilSettings, body, after=remove_checkpoints)


if __name__ == "__main__":
    raise SystemExit(main())
