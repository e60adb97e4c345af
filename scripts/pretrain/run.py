"""One run of pretrain.train on one process: its data, its model under DeepSpeed, and one step of it."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as functional

from scripts.common import cli
from scripts.common.fingerprint import canonical, digest
from scripts.common.manifest import Manifest
from scripts.pretrain import auto, checkpoint, data, engine, measures, model, plan

IGNORE = -100  # a target that does not count
REMEDY = "lower pretrain.train.learning_rate or lengthen pretrain.train.warmup; the newest checkpoint is from before it"


class Run:
    """One run: what is the same at every step, and what it does: a step, a validation, a checkpoint.

    Built by all processes together, and at once where `folder` holds a checkpoint: `done` is its step.
    """

    def __init__(self, args: argparse.Namespace, settings: dict[str, Any], folder: Path) -> None:
        self.args, self.folder = args, folder
        self.rank, self.processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.vocabulary, self.eos = model.load_tokenizer(args.tokenizer)
        self.stream = data.open_split(args.tokens, "train")
        self.settings = auto.resolve(settings, len(self.stream), self.vocabulary)
        self.resolved = auto.resolved(settings, self.settings)
        settings = self.settings
        self.plan = plan.plan(settings, len(self.stream))
        self.accumulation = plan.accumulation(self.plan, args.micro_batch, self.processes)
        shape = model.configuration(settings["model"], self.vocabulary, self.eos)
        self.device = engine.choose_device(args.device, int(os.environ["LOCAL_WORLD_SIZE"]))
        files = [[path.name, Manifest.read(path).files] for path in sorted(args.tokens)]
        self.tokens = digest(canonical(files))
        found = checkpoint.newest(folder, self.tokens)

        engine.start(self.device, settings["threads_per_process"])
        checkpoint.read_safely()
        checkpoint.agreed(found, self.device)
        if self.rank == 0:
            checkpoint.clean(folder)
        dist.barrier()
        convert = found is not None and settings["zero_stage"] > 0 and found.processes != self.processes
        if found is not None and convert:
            found = checkpoint.universal(found)
        self.model = model.build(shape, settings["seed"])
        if args.activation_checkpointing == "true":
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.parameters = model.parameters(self.model)
        heads = shape.num_attention_heads
        width = heads * (getattr(shape, "head_dim", None) or shape.hidden_size // heads)
        self.flops = measures.flops_per_token(
            self.parameters["multiplied"], shape.num_hidden_layers, width, self.plan.context
        )
        groups = model.groups(self.model, settings["weight_decay"])
        self.engine = engine.Engine(self.model, groups, settings, args.micro_batch, self.accumulation, convert)
        self.done = 0
        if found is not None:
            checkpoint.load(self.engine.engine, found)
            self.engine.loaded()
            self.done = found.step
        text, self.validation_bytes = data.validation_text(args.tokens, settings["validation_tokens"], settings["seed"])
        self.validation_tokens = len(text)
        self.validation = data.validation_windows(text, self.plan.context, self.eos, IGNORE)

    def batch(self, step: int) -> torch.Tensor:
        """This process's windows of a step: int64 [accumulation, micro_batch, context + 1], on the CPU."""
        chosen = data.windows_of_step(step, self.plan.sequences, self.plan.windows, self.settings["seed"])
        mine = data.share(chosen, self.rank, self.processes, self.args.micro_batch)
        tokens = data.read_windows(self.stream, mine, self.plan.context)
        if tokens.max() >= self.vocabulary:
            raise cli.InputError(
                f"the shards hold token {tokens.max()}, but {self.args.tokenizer} has {self.vocabulary} entries"
            )
        return torch.from_numpy(tokens)

    def step(self, step: int, batch: torch.Tensor, stopping: bool) -> tuple[float, bool]:
        """One optimizer update. Returns the global batch's mean loss in nats a token, and whether to stop."""
        self.engine.set_learning_rate(plan.learning_rate(step, self.plan.steps, self.settings))
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        total[1] = float(stopping)
        for number, tokens in enumerate(batch.to(self.device, non_blocking=True)):
            loss = self.loss(tokens[:, :-1], tokens[:, 1:], "mean")
            self.engine.backward(loss, last=number + 1 == len(batch))
            total[0] += loss.detach() / (len(batch) * self.processes)
        # One all-reduce carries the loss, and whether any process was told to stop, so that all stop together.
        dist.all_reduce(total)
        value, stop = total.tolist()
        if not math.isfinite(value):
            raise cli.InputError(f"the loss is {value} at step {step}: {REMEDY}")
        return value, stop > 0

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor, reduction: str) -> torch.Tensor:
        """Cross-entropy in nats of [batch, context] targets, a mean or a sum."""
        logits = self.engine.logits(inputs)
        return functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction=reduction
        )

    @torch.no_grad()
    def validate(self) -> tuple[float, float] | None:
        """Loss in nats a token, and bits per byte, over the validation text; None where there is none.

        The windows are dealt out in turn; every process runs as many forward passes as the others, as ZeRO 3 needs.
        """
        inputs, targets = (torch.from_numpy(part) for part in self.validation)
        if not len(inputs):
            return None
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        size = self.args.micro_batch
        self.model.eval()
        for turn in range(math.ceil(len(inputs) / (size * self.processes))):
            start = (turn * self.processes + self.rank) * size
            part, wanted = inputs[start : start + size], targets[start : start + size]
            if not len(part):
                part, wanted = inputs[:1], torch.full_like(targets[:1], IGNORE)
            total += self.loss(part.to(self.device), wanted.to(self.device), "sum").double()
        self.model.train()
        dist.all_reduce(total)
        nats = float(total)
        return nats / self.validation_tokens, measures.bits_per_byte(nats, self.validation_bytes)

    def save(self, step: int) -> None:
        """A checkpoint of all processes. InputError where the weights are no longer numbers: it would be of no use."""
        norm = self.engine.gradient_norm
        if norm is not None and not math.isfinite(norm):
            raise cli.InputError(f"the gradient's norm is {norm} at step {step}: {REMEDY}")
        stage, keep = self.settings["zero_stage"], self.args.keep_checkpoints
        with checkpoint.writing(self.folder):
            checkpoint.save(self.engine.engine, self.folder, step, self.tokens, stage, keep)
