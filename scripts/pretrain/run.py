"""One run of pretrain.train on one process: its data, its engine, and one step of it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from scripts.pretrain import (
    auto,
    average,
    beside,
    checkpoint,
    checks,
    data,
    engine,
    group,
    heldout,
    initial,
    measures,
    model,
    parallel,
    placed,
    rollback,
    room,
    schedule,
    skips,
    start_from,
    width,
)
from scripts.training import machine, sealed
from scripts.workflow import config as configuration
from scripts.workflow import options
from scripts.workflow.console import log
from scripts.workflow.errors import InputError
from scripts.workflow.fingerprint import code
from scripts.workflow.manifest import canonical, digest

STEP = "pretrain.train"
REMEDY = "lower pretrain.train.learning_rate or lengthen pretrain.train.warmup"


class Run:
    """One run: what is the same at every step, and what it does: a step, a validation, a checkpoint.

    Built by all processes together, and at once where `folder` holds a checkpoint: `done` is its step.
    """

    def __init__(self, args: argparse.Namespace, settings: dict[str, Any], folder: Path) -> None:
        self.args, self.folder, self.estimated = args, folder, 0
        self.rank, self.processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        settings, placement = configuration.completed(STEP, settings), options.given(args, STEP)
        degrees = parallel.Degrees(**placement["parallel"])
        checks.check(settings | placement, self.processes)
        self.place = parallel.Place(self.rank, self.processes, degrees)
        self.vocabulary, self.eos = model.load_tokenizer(args.tokenizer)
        self.stream = data.open_split(args.tokens, "train")
        self.settings = auto.resolve(settings, len(self.stream), self.vocabulary)
        self.resolved = auto.resolved(settings, self.settings)
        # What a digest and a record have of them: a key that is added later changes neither.
        self.tracked = configuration.pruned(STEP, self.settings)
        self.plan = schedule.plan(self.settings, len(self.stream))
        if settings["global_batch_tokens"] == auto.AUTO:
            args.micro_batch = schedule.fitting(self.plan, args.micro_batch, self.place.data)
        settings = self.settings
        self.accumulation = schedule.accumulation(self.plan, args.micro_batch, self.place.data)
        chosen = {key.removeprefix("model.") for key in self.resolved}
        shape = model.configuration(settings["model"], self.vocabulary, self.eos, chosen)
        parallel.check_model(degrees, shape, self.plan.context, self.accumulation)
        if degrees and self.rank == 0:
            log.info("shared out: %s; %d of %d processes read different data", degrees, self.place.data, self.processes)
        self.device = group.choose_device(args.device, int(os.environ["LOCAL_WORLD_SIZE"]))
        self.check_memory(model.size(shape))

        self.kind = settings["engine"]
        group.start(self.kind, self.device, settings["threads"])
        self.code = code("scripts.pretrain.train")
        self.mark = digest(canonical([self.tracked, self.plan.steps]))
        found = checkpoint.agreed(folder, self.code, self.mark, self.plan.steps, self.device)
        made = initial.empty(shape)
        values: Callable[[], initial.Weights] = partial(initial.values, shape, settings["seed"])
        if (wide := width.factor(settings)) != 1:
            values = partial(width.values, shape, settings["seed"], wide)
        if found is None and settings["start_from"] is not None:
            found, values = self.started(Path(settings["start_from"]), made, values)
        self.parameters = model.parameters(made)
        heads = getattr(shape, "num_attention_heads", 0)  # none without attention
        across = heads * (getattr(shape, "head_dim", None) or shape.hidden_size // heads) if heads else 0
        self.flops = measures.flops_per_token(
            self.parameters["multiplied"], shape.num_hidden_layers, across, self.plan.context
        )
        job = engine.Job(
            config=shape,
            settings=settings,
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
        self.beside = beside.Beside(folder) if args.async_checkpoints else None
        self.begun = found.begun if found else 0  # the step after which a branch of another run begins
        try:
            self.engine = engine.kind(self.kind)(job)
            self.restore(found)
        except InputError as error:  # the same on every process
            raise checkpoint.Told(str(error)) from error
        documents, _ = heldout.choose(args.tokens, settings["validation_tokens"], settings["seed"])
        self.heldout = documents
        self.validation_documents = len(documents)
        self.validation_tokens = sum(document.tokens for document in documents)
        self.validation_bytes = sum(document.bytes for document in documents)
        pieces = list(heldout.pieces(documents, self.eos, self.plan.context, heldout.CARRY))
        self.validation = sorted(pieces, key=lambda piece: len(piece[0]))  # so that a batch needs little padding

    def restore(self, found: checkpoint.Checkpoint | None) -> None:
        """Be where a checkpoint is; None: at the beginning. A collective call."""
        self.done, self.skipped = (found.step, list(found.skipped)) if found else (0, [])
        self.lowest, self.stale = (found.lowest, found.stale) if found else (None, 0)
        # Steps: of an early stop, and whose weights were taken then.
        self.stopped, self.best = found.stopped if found else 0, 0
        self.spikes = skips.spikes(self.settings, found.recent if found else ())
        self.ahead, self.rolled = (found.ahead, list(found.rolled)) if found else (0, [])
        if found is not None:
            self.engine.load(found, self.folder)

    def started(
        self, path: Path, made: PreTrainedModel, values: Callable[[], initial.Weights]
    ) -> tuple[checkpoint.Checkpoint | None, Callable[[], initial.Weights]]:
        """The checkpoint at `path` from which the run continues, None for a model; the values to begin with. A collective call."""
        found, wrong = None, ""
        try:
            found = start_from.checkpoint_of(path, self.plan.steps)
            if found is None:
                files = start_from.check_weights(made, path, model.tokenizer_file(self.args.tokenizer))
                values = partial(start_from.weights, files, values)
        except InputError as error:  # it may be there on some nodes alone
            wrong = str(error)
        checkpoint.tell(wrong)
        if self.rank == 0:
            log.info("starting from %s%s", path, f", after step {found.step:,}" if found else "")
        if found:
            # The branch's own steps would begin elsewhere in the data, where its batches or its ramp are others.
            seen = found.ahead if found.seen is None else found.seen - self.plan.span(found.step + 1)[0]
            found = replace(
                found,
                ahead=seen,
                code=self.code,
                changed=(),
                skipped=(),
                rolled=(),
                lowest=None,
                stale=0,
                stopped=0,
                begun=found.step,
            )
        return found, values

    @property
    def keeps_best(self) -> bool:
        """Whether the checkpoint of the best validation stays, whatever its age."""
        return self.args.keep_best or bool(self.settings["early_stop"])

    def check_memory(self, parameters: int) -> None:
        """InputError, with what to change, where this node or its GPUs have too little memory for the run."""
        args = self.args
        summary = {"shape": {**self.settings["model"], "vocabulary": self.vocabulary}}
        shape = replace(placed.shape_of(summary, self.settings["optimizer"]), parameters=parameters)
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
        self.room = partial(
            room.enough, shape=shape, settings=self.settings, placement=placement, cuda=self.device.type == "cuda"
        )
        self.estimated = room.check(shape, self.settings, placement, self.device.type == "cuda")

    def batch(self, step: int) -> torch.Tensor:
        """This process's windows of a step: int64 [accumulation, micro_batch, context + 1], on the CPU."""
        mine = data.share(self.windows(step), self.place.data_rank, self.place.data, self.args.micro_batch)
        tokens = data.read_windows(self.stream, mine, self.plan.context)
        if tokens.max() >= self.vocabulary:
            raise InputError(
                f"the shards hold token {tokens.max()}, but {self.args.tokenizer} has {self.vocabulary} entries"
            )
        return torch.from_numpy(tokens)

    def windows(self, step: int) -> data.Tokens:
        """The windows of a step's global batch, the same for any number of processes."""
        first, sequences = self.plan.span(step)
        return data.windows_from(first + self.ahead, sequences, self.plan.windows, self.settings["seed"])

    def step(self, step: int, batch: torch.Tensor, stopping: bool) -> tuple[float, bool]:
        """One optimizer update. Returns the global batch's mean loss in nats a token, and whether to stop.

        Where the loss or the gradient is not finite or a spike the update is left out, on every process, and `skipped` ends
        with this step. After that the learning rate and the data move on as if the step had been taken.
        """
        if self.beside:
            self.beside.failed()
        rate = schedule.learning_rate(step, self.plan.steps, self.settings)
        fits = partial(skips.fits, self) if self.spikes else None
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
        if not self.update.applied:
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
        return self.engine.evaluate(inputs.to(self.device), targets.to(self.device), heldout.IGNORE)

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
        """Those of the model that the run makes: a collective call, to be run to its end."""
        return self.engine.mean() if self.ema else self.engine.weights()

    def machine(self) -> dict[str, Any]:
        """What the run trained on. A collective call."""
        return {
            **machine.described(self.device),
            **({"parallel": asdict(self.place.degrees)} if self.place.degrees else {}),
            "estimated_memory_bytes": self.estimated,
        }

    def save(self, step: int, validation: float | None = None, end: bool = True) -> None:
        """A checkpoint of all processes. validation: the loss of one after this step. end: return when it is whole, also where it is
        written beside the training.
        """
        made = checkpoint.Checkpoint(
            path=self.folder / f"step-{step:06d}",
            step=step,
            processes=self.processes,
            zero_stage=self.settings["zero_stage"],
            settings=self.mark,
            code=self.code,
            skipped=tuple(self.skipped),
            changed=self.changed,
            engine=self.kind,
            validation=validation,
            lowest=self.lowest,
            recent=tuple(self.spikes.recent) if self.spikes else (),
            ahead=self.ahead,
            seen=self.plan.span(step + 1)[0] + self.ahead,
            rolled=tuple(self.rolled),
            stale=self.stale,
            stopped=self.stopped,
            begun=self.begun,
        )
        points = rollback.kept_points(self.settings)
        kept = checkpoint.Kept(self.args.keep_checkpoints, self.args.keep_every, self.keeps_best, points)
        if self.beside:
            self.beside.wait()
            with group.patience():
                written = self.engine.staged()
            self.beside.save(partial(self.write, written), made, kept)
            if end:
                self.beside.wait()
            return
        with group.patience(), checkpoint.writing(self.folder):
            checkpoint.save(partial(self.write, self.engine.save), made, kept)

    def write(self, save: Callable[[Path], list[str] | None], folder: Path) -> list[str]:
        """The engine's files, and what the weights need to be a model: its configuration and tokenizer. The names of those that are known.

        save: Engine.save, or what Engine.staged returned.
        """
        names = save(folder) or []
        if self.rank == 0:
            described = folder / model.FOLDER
            model.describe(self.engine.model.config, self.settings["save_dtype"], described)
            for path in model.companions(self.args.tokenizer):
                shutil.copyfile(path, described / path.name)
            names += [f"{model.FOLDER}/{name}" for name in sealed.synced(described)]
        return names
