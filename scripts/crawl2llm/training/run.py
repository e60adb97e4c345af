"""One run of pretrain.train on one process: its data, its engine, and one step of it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedConfig

from crawl2llm.chain import config_schema, placement_options
from crawl2llm.chain.fingerprint import code
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical, digest
from crawl2llm.training import (
    async_checkpoints,
    auto,
    average,
    checkpoint,
    checkpoint_integrity,
    checkpoint_state,
    checks,
    compiler,
    data,
    engine,
    group,
    heldout,
    initial,
    loss_scale,
    machine,
    measures,
    memory,
    memory_guard,
    mix_reader,
    model,
    mup,
    numa,
    offload,
    parallel,
    resource_plan,
    rollback,
    saving,
    schedule,
    skips,
    start_from,
)

STEP = "pretrain.train"
Room = Callable[[str], contextlib.AbstractContextManager[None]]  # see memory_guard.enough
REMEDY = "lower pretrain.train.learning_rate or lengthen pretrain.train.warmup"


class Run:
    """One run: what is the same at every step, and what it does: a step, a validation, a checkpoint.

    Built by all processes together, and at once where `folder` holds a checkpoint: `done` is its step.
    """

    def __init__(self, args: argparse.Namespace, settings: dict[str, Any], folder: Path) -> None:
        self.args, self.folder = args, folder
        self.rank, self.processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        settings, placement = config_schema.completed(STEP, settings), placement_options.given(args, STEP)
        degrees = parallel.Degrees(**placement["parallel"])
        checks.check(settings | placement, self.processes)
        self.place = parallel.Place(self.rank, self.processes, degrees)
        self.vocabulary, self.eos = model.vocabulary_of(args.tokenizer)
        self.stream = data.open_split(args.tokens, "train")
        self.settings = auto.resolve(settings, len(self.stream), self.vocabulary)
        self.resolved = auto.resolved(settings, self.settings)
        # What a digest and a record have of them: a key that is added later changes neither.
        self.tracked = config_schema.pruned(STEP, self.settings)
        self.plan = schedule.plan(self.settings, len(self.stream))
        if settings["global_batch_tokens"] == auto.AUTO:
            wanted, args.micro_batch = args.micro_batch, schedule.fitting(self.plan, args.micro_batch, self.place.data)
            if args.micro_batch != wanted and self.rank == 0:
                log.info("micro_batch %d → %d, which divides the batch that auto chose", wanted, args.micro_batch)
        settings = self.settings
        self.mix = mix_reader.Mixed(args.mix, self.stream, self.plan, settings["seed"]) if args.mix else None
        self.accumulation = schedule.accumulation(self.plan, args.micro_batch, self.place.data)
        chosen = {key.removeprefix("model.") for key in self.resolved}
        shape = model.configuration(settings["model"], self.vocabulary, self.eos, chosen)
        parallel.check_model(degrees, shape, self.plan.context, self.accumulation)
        if degrees and self.rank == 0:
            log.info("shared out: %s; %d of %d processes read different data", degrees, self.place.data, self.processes)
        self.device = group.choose_device(args.device, int(os.environ["LOCAL_WORLD_SIZE"]))
        if settings["compile_layers"]:
            compiler.check(self.device.type)
        numa.bind_to(self.device, args.numa_binding, settings["threads"])
        self.estimated, self.room = self.check_memory(shape)

        self.kind = settings["engine"]
        group.start(self.kind, self.device, settings["threads"])
        self.code = code("crawl2llm.stages.pretrain.train")
        self.mark = digest(canonical([self.tracked, self.plan.steps]))
        found = checkpoint.agreed(folder, self.code, self.mark, self.plan.steps, self.device)
        made = initial.empty(shape)
        values: Callable[[], initial.Weights] = partial(initial.values, shape, settings["seed"])
        if (wide := mup.factor(settings)) != 1:
            values = partial(mup.values, shape, settings["seed"], wide)
        if found is None and settings["start_from"] is not None:
            path, tokenizer = Path(settings["start_from"]), model.tokenizer_file(args.tokenizer)
            chosen = settings["model"]["overrides"]
            found, values = start_from.begin(path, made, tokenizer, self.plan, self.code, values, chosen)
        self.parameters = model.parameters(made)
        across, _ = memory.attention_widths(shape)
        self.flops = measures.flops_per_token(
            self.parameters["multiplied"], shape.num_hidden_layers, across, self.plan.context
        )
        job = engine.Job(
            config=shape,
            settings=settings | {offload.PATH: placement[offload.PATH]},
            device=self.device,
            micro_batch=args.micro_batch,
            accumulation=self.accumulation,
            recomputed=args.activation_checkpointing,
            selective=args.selective_checkpointing,
            values=values,
            parallel=degrees,
        )
        self.changed = found.changed if found else ()
        self.ema = settings["ema"]
        self.spiked = False  # whether the last step was left out as a spike
        self.beside = async_checkpoints.Beside(folder) if args.async_checkpoints else None
        self.begun = found.begun if found else 0  # the step after which a branch of another run begins
        try:
            self.engine = engine.kind(self.kind)(job)
            self.restore(found)
        except InputError as error:  # the same on every process
            raise checkpoint.Told(str(error)) from error
        documents, _ = heldout.choose(args.tokens, settings["validation_tokens"], settings["seed"])
        self.heldout = documents
        scored = heldout.sizes(documents)
        self.validation_documents, self.validation_tokens = scored["documents"], scored["tokens"]
        self.validation_bytes = scored["bytes"]
        pieces = list(heldout.pieces(documents, self.eos, self.plan.context, heldout.CARRY))
        self.validation = sorted(pieces, key=lambda piece: len(piece[0]))  # so that a batch needs little padding

    def restore(self, found: checkpoint.Checkpoint | None) -> None:
        """Be where a checkpoint is; None: at the beginning. A collective call."""
        self.done, self.skipped = (found.step, list(found.skipped)) if found else (0, [])
        self.overflows, self.overflowed = (found.overflows if found else 0), False
        self.lowest, self.stale = (found.lowest, found.stale) if found else (None, 0)
        # Steps: of an early stop, and whose weights were taken then.
        self.stopped, self.best = found.stopped if found else 0, 0
        self.spikes = skips.spikes(self.settings, found.recent if found else ())
        self.ahead, self.rolled = (found.ahead, list(found.rolled)) if found else (0, [])
        if found is not None:
            with checkpoint_integrity.named(found.path, self.folder):
                self.engine.load(found, self.folder)
            loss_scale.restore(self.engine, found)

    @property
    def keeps_best(self) -> bool:
        """Whether the checkpoint of the best validation stays, whatever its age."""
        return self.args.keep_best or bool(self.settings["early_stop"])

    def wants_validation(self, step: int) -> bool:
        """Whether the run validates after this step."""
        every = self.settings["validate_every"]
        return step == self.plan.steps or bool(every and step % every == 0)

    def wants_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due after this step, whatever came of it."""
        every = (self.args.checkpoint_every, self.args.keep_every, rollback.point_every(self.settings))
        return step == self.plan.steps or any(step % each == 0 for each in every if each)

    def check_memory(self, config: PreTrainedConfig) -> tuple[int, Room]:
        """The estimated bytes of a process, and what turns a lack of memory in a part of the run into an error that helps.

        InputError, with what to change, where this node or its GPUs have too little memory for the run.
        """
        args = self.args
        summary = {"shape": {**self.settings["model"], "vocabulary": self.vocabulary}}
        shape = resource_plan.shape_as_built(summary, self.settings["optimizer"], config, model.size(config))
        placement = {
            "micro_batch": args.micro_batch,
            "processes": self.processes,
            "parallel": asdict(self.place.degrees),
            "activation_checkpointing": args.activation_checkpointing,
            "selective_checkpointing": args.selective_checkpointing,
            "async_checkpoints": args.async_checkpoints,
            "sequences": self.plan.unit,
            "largest": self.plan.sequences,
        }
        cuda = self.device.type == "cuda"
        enough = partial(memory_guard.enough, shape=shape, settings=self.settings, placement=placement, cuda=cuda)
        return memory_guard.check(shape, self.settings, placement, cuda), enough

    def batch(self, step: int) -> torch.Tensor:
        """This process's windows of a step: int64 [accumulation, micro_batch, context + 1], on the CPU."""
        mine = data.share(self.windows(step), self.place.data_rank, self.place.data, self.args.micro_batch)
        tokens = self.mix.read(mine) if self.mix else data.read_windows(self.stream, mine, self.plan.context)
        if tokens.max() >= self.vocabulary:
            raise InputError(
                f"the shards hold token {tokens.max()}, but {self.args.tokenizer} has {self.vocabulary} entries"
            )
        return torch.from_numpy(tokens)

    def windows(self, step: int) -> data.Tokens:
        """The windows of a step's global batch, the same for any number of processes."""
        first, sequences = self.plan.span(step)
        if self.mix:
            return self.mix.windows(first + self.ahead, sequences)
        return data.windows_from(first + self.ahead, sequences, self.plan.windows, self.settings["seed"])

    def step(self, step: int, batch: torch.Tensor, stopping: bool) -> tuple[float, bool]:
        """One optimizer update. Returns the global batch's mean loss in nats a token, and whether to stop.

        Where the loss or the gradient is not finite or a spike the update is left out, on every process, and `skipped` ends
        with this step. An update that is left out for fp16's loss scale is counted in `overflows` instead. After either the learning
        rate and the data move on as if the step had been taken.
        """
        if self.beside:
            self.beside.failed()
        rate = schedule.learning_rate(step, self.plan.steps, self.settings)
        fits = partial(skips.fits, self) if self.spikes else None
        scale = self.engine.loss_scale()
        self.update = self.engine.step(batch.to(self.device, non_blocking=True), rate, fits)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        total[0], total[1] = self.update.loss / self.processes, float(stopping)
        # One all-reduce carries the loss, and whether any process was told to stop, so that all stop together.
        dist.all_reduce(total)
        value, stop = total.tolist()
        finite = math.isfinite(value) and self.update.norm is not None and math.isfinite(self.update.norm)
        self.spiked = not self.update.applied and finite
        if self.update.applied and self.ema:
            self.engine.follow(average.weight(self.ema, step))
        self.overflowed = loss_scale.overflowed(scale and scale[0], value, self.update.norm, self.update.applied)
        self.overflows += self.overflowed
        if not self.update.applied and not self.overflowed:
            self.skipped.append(step)
        elif not math.isfinite(value):
            raise RuntimeError(f"step {step} was taken with a loss of {value}")  # see Engine.step
        return value, stop > 0

    def check_skipped(self, most: int) -> None:
        """Told, the error of all processes, where more than `most` steps were skipped."""
        if len(self.skipped) > most:
            raise checkpoint.Told(
                f"the loss or the gradient was not finite{' or a spike' * bool(self.spikes)} in {len(self.skipped)} steps, the last is "
                f"step {self.skipped[-1]}; pretrain.train.max_skipped_steps is {most}. {REMEDY.capitalize()}; "
                "skipped steps and the ids of their documents are in "
                f"{self.folder / 'losses.jsonl'}. A larger max_skipped_steps resumes from the newest checkpoint"
            )

    def nats(self, batch: list[heldout.Piece]) -> torch.Tensor:
        """The summed loss of each of a batch of held-out windows, float64 [n]."""
        inputs, targets = map(torch.from_numpy, heldout.padded(batch, self.eos))
        return self.engine.evaluate(inputs.to(self.device), targets.to(self.device))

    def rehearse(self) -> None:
        """The largest batch of a validation, before the first step: all that comes later than a second step is then known to have room."""
        if self.validation_tokens:
            self.nats(self.validation[-self.args.micro_batch :])

    def validate(self) -> dict[str, Any] | None:
        """`heldout.scores` of the validation documents; None where there are none.

        The windows are dealt out in turn; every process runs as many forward passes as the others, as ZeRO 3 needs.
        """
        if not self.validation_tokens:
            return None
        total = torch.zeros(len(heldout.sources(self.heldout)), dtype=torch.float64, device=self.device)
        size = self.args.micro_batch
        parts, rank = self.place.data, self.place.data_rank
        with self.engine.averaged() if self.ema else contextlib.nullcontext():
            for turn in range(math.ceil(len(self.validation) / (size * parts))):
                start = (turn * parts + rank) * size
                batch = self.validation[start : start + size] or [(self.validation[0][0], 0, 0)]
                sources = torch.tensor([number for *_, number in batch], device=self.device)
                total.index_add_(0, sources, self.nats(batch))
        dist.all_reduce(total)
        found = heldout.scores(self.heldout, (total / self.place.degrees.copies).tolist())
        if not math.isfinite(found["loss"]):
            raise checkpoint.Told(
                f"the validation loss is {found['loss']}: the weights are no longer usable. {REMEDY.capitalize()}"
            )
        better = self.lowest is None or found["loss"] < self.lowest
        self.lowest, self.stale = (found["loss"], 0) if better else (self.lowest, self.stale + 1)
        return found

    def weights(self) -> initial.Weights:
        """Each parameter's name and whole weights, of the model that the run makes. A collective call, to be run to its end."""
        return self.engine.mean() if self.ema else self.engine.weights()

    def machine(self) -> dict[str, Any]:
        """What the run trained on, for its record. A collective call."""
        return {
            **machine.described(self.device),
            **({"parallel": asdict(self.place.degrees)} if self.place.degrees else {}),
            "estimated_memory_bytes": self.estimated,
        }

    def save(self, step: int, validation: float | None = None, end: bool = True) -> None:
        """A checkpoint of all processes; `validation`: the loss of one after this very step. The rest: see `saving.save`."""
        made, tokenizer = (
            checkpoint_state.described(self, step, validation),
            partial(model.companions, self.args.tokenizer),
        )
        saving.save(self, made, checkpoint_state.kept(self), self.settings["save_dtype"], tokenizer, end)
