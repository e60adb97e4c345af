"""One run of pretrain.train on one process: its data, its engine, and what it does at a step, a validation and a checkpoint."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedConfig

from crawl2llm.chain import config_schema
from crawl2llm.chain.fingerprint import code_hashes
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json, digest
from crawl2llm.core.settings import AUTO
from crawl2llm.training import (
    async_checkpoints,
    auto,
    checkpoint,
    checkpoint_integrity,
    checks,
    compiler,
    data,
    engine,
    float8,
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
    packed_windows,
    parallel,
    resource_plan,
    saving,
    schedule,
    spikes,
    start_from,
    stream_documents,
    window_readers,
)
from crawl2llm.training.batch import pin_for
from crawl2llm.training.callback import Callback
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines.by_name import ENGINES
from crawl2llm.training.loop import Room, all_reduce_loss, reduce_loss
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.run_state import RunState

STEP = "pretrain.train"
REMEDY = "lower pretrain.train.learning_rate or lengthen pretrain.train.warmup"


class Run:
    """One run: what is the same at every step, and what it does: a step, a validation, a checkpoint.

    All processes build it together. It resumes from the newest checkpoint in `folder`, after step `state.done`.
    """

    def __init__(self, args: argparse.Namespace, settings: TrainSettings, folder: Path) -> None:
        self.args, self.folder, self.state = args, folder, RunState()
        self.rank, self.processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        degrees = parallel.Degrees.of_settings(settings)
        checks.check_settings(settings, self.processes)
        self.place = parallel.Place(self.rank, self.processes, degrees)
        self._plan_batches(settings)
        shape = self._model_config()
        parallel.check_model(degrees, shape, self.plan.context, self.accumulation)
        if degrees and self.rank == 0:
            log.info(
                "shared out: %s; %d of %d processes read different data",
                degrees,
                self.place.data_processes,
                self.processes,
            )
        self.device = group.choose_device(settings.device, int(os.environ["LOCAL_WORLD_SIZE"]))
        if settings.compile_layers:
            compiler.check_compiler(self.device.type)
        if settings.precision == checks.FP8:
            float8.check_device(self.device)
        numa.bind_to(self.device, settings.numa_binding, settings.threads)
        self.estimated, self.room = self.memory_and_room(shape)
        self.kind = settings.engine
        group.join_group(self.device, settings.threads)
        self._build_engine(shape, degrees)
        documents, _ = heldout.choose_documents(args.tokens, self.settings.validation_tokens, settings.seed)
        self.heldout, self.heldout_sizes = documents, heldout.count_sizes(documents)
        pieces = list(heldout.scoring_pieces(documents, self.eos, self.plan.context, heldout.CARRY))
        self.validation = sorted(pieces, key=lambda piece: len(piece[0]))  # so that a batch needs little padding

    def _plan_batches(self, settings: TrainSettings) -> None:
        """Which tokens there are, and which of them a step reads."""
        args = self.args
        self.vocabulary, self.eos = model.vocabulary_of(args.tokenizer)
        self.stream = data.open_split(args.tokens, "train")
        self.settings = auto.resolve(settings, len(self.stream), self.vocabulary)
        self.resolved = auto.resolved_values(settings, self.settings)
        # What a digest and a record have of them: a key that is added later changes neither.
        self.tracked = config_schema.prune_settings(STEP, self.settings.model_dump(by_alias=True))
        packs = [*args.mix, *args.packs] if settings.packing == packed_windows.BEST_FIT else []
        # One process of a node reads the files whole, for their checksums.
        self.packed = packed_windows.read_totals(
            packs, self.settings.model.context, verify=os.environ["LOCAL_RANK"] == "0"
        )
        self.plan = schedule.make_plan(self.settings, len(self.stream), self.packed.get("windows"))
        self.micro_batch = settings.micro_batch
        if settings.global_batch_tokens == AUTO:
            self.micro_batch = schedule.fitting_micro_batch(self.plan, settings.micro_batch, self.place.data_processes)
            if self.micro_batch != settings.micro_batch and self.rank == 0:
                log.info(
                    "micro_batch %d → %d, which divides the batch that auto chose",
                    settings.micro_batch,
                    self.micro_batch,
                )
        self.engine_settings = EngineSettings.of_pretraining(self.settings)
        self.reader = window_readers.open_reader(
            settings.packing, self.stream, self.plan, settings.seed, args.mix, args.packs
        )
        self.mix = self.reader if isinstance(self.reader, mix_reader.MixReader) else None
        self.accumulation = schedule.accumulation_steps(self.plan, self.micro_batch, self.place.data_processes)
        self.next_batch = data.ReadAhead(self.read_batch)

    def _model_config(self) -> PreTrainedConfig:
        chosen = {key.removeprefix("model.") for key in self.resolved}
        return model.build_config(self.settings.model, self.vocabulary, self.eos, chosen)

    def _build_engine(self, shape: PreTrainedConfig, degrees: parallel.Degrees) -> None:
        """The engine, with the weights of a checkpoint, of another run or of the beginning. A collective call."""
        settings, args = self.settings, self.args
        self.code = code_hashes("crawl2llm.stages.pretrain.train")
        self.mark = digest(canonical_json([self.tracked, self.plan.steps]))
        resume_point = checkpoint.agree_on_checkpoint(self.folder, self.code, self.mark, self.plan.steps, self.device)
        empty_model = initial.empty_model(shape)
        values: Callable[[], initial.Weights] = partial(initial.random_weights, shape, settings.seed)
        if (mup_factor := mup.width_factor(self.engine_settings)) != 1:
            values = partial(mup.scaled_weights, shape, settings.seed, mup_factor)
        if resume_point is None and settings.start_from is not None:
            path, tokenizer = Path(settings.start_from), model.tokenizer_file(args.tokenizer)
            resume_point, values = start_from.starting_point(
                path, empty_model, tokenizer, self.plan, self.code, values, settings.model.overrides
            )
        self.parameters = model.parameter_counts(empty_model)
        across, _ = memory.attention_widths(shape)
        self.flops = measures.flops_per_token(
            self.parameters["multiplied"], shape.num_hidden_layers, across, self.plan.context
        )
        job = engine.Job(
            config=shape,
            settings=self.engine_settings,
            device=self.device,
            micro_batch=self.micro_batch,
            accumulation=self.accumulation,
            recomputed=settings.activation_checkpointing,
            selective=settings.selective_checkpointing,
            values=values,
            parallel=degrees,
        )
        self.changed = resume_point.changed if resume_point else ()
        self.ema = settings.ema
        self.checkpoint_writer = async_checkpoints.AsyncWriter(self.folder) if settings.async_checkpoints else None
        self.begun = resume_point.begun if resume_point else 0  # the step after which a branch of another run begins
        try:
            self.engine = ENGINES[self.kind](job)
            self.restore(resume_point)
        except InputError as error:  # the same on every process
            raise checkpoint.CollectiveError(str(error)) from error

    def restore(self, resume_point: checkpoint.Checkpoint | None) -> None:
        """Be where a checkpoint is; None: at the beginning. A collective call."""
        self.state.restore(resume_point)
        self.spikes = spikes.spike_detector(self.settings, resume_point.recent if resume_point else ())
        if resume_point is not None:
            with checkpoint_integrity.explain_damage(resume_point.path, self.folder):
                self.engine.load(resume_point, self.folder)
            self.engine.restore_loss_scale(resume_point)

    extra_callbacks: Sequence[Callback] = ()  # of the loop, before those of checkpoints

    @property
    def last_step(self) -> int:
        """The last step of the run."""
        return self.plan.steps

    @property
    def keeps_best(self) -> bool:
        """Whether the checkpoint of the best validation stays, whatever its age."""
        return self.settings.keep_best or bool(self.settings.early_stop)

    @property
    def rollback_interval(self) -> int:
        """Steps between the checkpoints that the run may go back to; 0 if it never does."""
        return self.settings.roll_back_every if self.settings.roll_backs else 0

    def wants_validation(self, step: int) -> bool:
        """Whether the run validates after this step."""
        interval = self.settings.validate_every
        return step == self.plan.steps or bool(interval and step % interval == 0)

    def wants_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due after this step, whatever came of it."""
        intervals = (self.settings.checkpoint_every, self.settings.keep_every, self.rollback_interval)
        return step == self.plan.steps or any(step % each == 0 for each in intervals if each)

    def memory_and_room(self, config: PreTrainedConfig) -> tuple[int, Room]:
        """The estimated bytes of a process, and what turns a lack of memory in a part of the run into an error that helps.

        Raises InputError, with what to change, if this node or its GPUs have too little memory for the run.
        """
        settings = self.settings
        summary = {"shape": {**dict(settings.model), "vocabulary": self.vocabulary}}
        shape = resource_plan.shape_as_built(summary, settings.optimizer, config, model.count_parameters(config))
        placement = memory.Placement(
            micro_batch=self.micro_batch,
            processes=self.processes,
            parallel=self.place.degrees,
            nodes=self.processes // int(os.environ["LOCAL_WORLD_SIZE"]),
            activation_checkpointing=settings.activation_checkpointing,
            selective_checkpointing=settings.selective_checkpointing,
            async_checkpoints=settings.async_checkpoints,
            sequences=self.plan.window_divisor,
            largest=self.plan.sequences,
        )
        cuda = self.device.type == "cuda"
        enough = partial(
            memory_guard.explain_out_of_memory,
            shape=shape,
            settings=self.engine_settings,
            placement=placement,
            cuda=cuda,
        )
        return memory_guard.estimate_memory(shape, self.engine_settings, placement, cuda), enough

    def end_reading(self) -> None:
        """Forget the batch that was read ahead."""
        self.next_batch.close()

    def read_batch(self, step: int) -> torch.Tensor:
        """This process's windows of a step: int64 (accumulation, micro-batch, context + 1), on the CPU."""
        mine = data.process_share(
            self.step_windows(step), self.place.data_rank, self.place.data_processes, self.micro_batch
        )
        tokens = self.reader.read(mine)
        if tokens.max() >= self.vocabulary:
            raise InputError(
                f"the shards hold token {tokens.max()}, but {self.args.tokenizer} has {self.vocabulary} entries"
            )
        return pin_for(torch.from_numpy(tokens), self.device)

    def step_windows(self, step: int) -> data.Tokens:
        """The windows of a step's global batch, the same for any number of processes."""
        first, sequences = self.plan.window_span(step)
        return self.reader.windows_at(first + self.state.ahead, sequences)

    def document_ids(self, step: int) -> list[str]:
        """The ids of the documents of a step's global batch."""
        return stream_documents.document_ids(self.args.tokens, self.reader.places(self.step_windows(step)))

    def take_step(self, state: RunState, batch: torch.Tensor) -> None:
        """One optimizer update.

        batch: int64 (accumulation, micro-batch, context + 1), this process's token ids.

        If the loss or the gradient is not finite, or a spike, every process leaves the update out, and `skipped` ends with this step.
        An update that is left out for fp16's loss scale is counted in `overflows` instead. In both cases the learning rate and the data
        move on as if the step had been taken.
        """
        rate = schedule.learning_rate(state.step, self.plan.steps, self.engine_settings)
        fits = self.spikes.may_update if self.spikes else None
        scale = self.engine.loss_scale()
        self.engine.expect_documents(batch)
        reduce = partial(all_reduce_loss, state, self.device, self.processes)
        state.update = self.engine.step(batch.to(self.device, non_blocking=True), rate, fits, reduce)
        state.loss = reduce_loss(state, self.device, self.processes)
        applied, norm = state.update.applied, state.update.norm
        is_finite = math.isfinite(state.loss) and norm is not None and math.isfinite(norm)
        state.spiked = not applied and is_finite
        state.overflowed = loss_scale.is_overflow(scale and scale[0], state.loss, norm, applied)
        state.overflows += state.overflowed
        if not applied and not state.overflowed:
            state.skipped.append(state.step)
        elif not math.isfinite(state.loss):
            raise RuntimeError(f"step {state.step} was taken with a loss of {state.loss}")  # see Engine.step
        state.row = {"step": state.step, "loss": state.loss} if math.isfinite(state.loss) else {"step": state.step}
        if self.mix:
            state.row |= self.mix.loss_row(self.step_windows(state.step))

    def skip_error(self, skipped: list[int]) -> str:
        """The error if more steps were skipped than `max_skipped_steps`."""
        return (
            f"the loss or the gradient was not finite{' or a spike' if self.spikes else ''} in {len(skipped)} steps, the last is "
            f"step {skipped[-1]}; pretrain.train.max_skipped_steps is {self.settings.max_skipped_steps}. {REMEDY.capitalize()}; "
            "skipped steps and the ids of their documents are in "
            f"{self.folder / 'losses.jsonl'}. A larger max_skipped_steps resumes from the newest checkpoint"
        )

    def window_nats(self, batch: list[heldout.Piece]) -> torch.Tensor:
        """The summed loss of each of a batch of held-out windows: float64 (windows,)."""
        inputs, targets = map(torch.from_numpy, heldout.pad_windows(batch, self.eos))  # (windows, longest) each
        return self.engine.evaluate(inputs.to(self.device), targets.to(self.device))

    def rehearse_validation(self) -> None:
        """Run the largest batch of a validation, to see that it has room."""
        if self.heldout_sizes["tokens"]:
            self.window_nats(self.validation[-self.micro_batch :])

    def validate(self) -> dict[str, Any] | None:
        """`heldout.summarize_scores` of the validation documents; None if there are none.

        The windows are dealt out in turn; every process runs as many forward passes as the others, as ZeRO 3 needs.
        """
        if not self.heldout_sizes["tokens"]:
            return None
        # nats by source: (sources,)
        total = torch.zeros(len(heldout.source_names(self.heldout)), dtype=torch.float64, device=self.device)
        size = self.micro_batch
        parts, rank = self.place.data_processes, self.place.data_rank
        with self.engine.using_ema() if self.ema else contextlib.nullcontext():
            for turn in range(math.ceil(len(self.validation) / (size * parts))):
                start = (turn * parts + rank) * size
                batch = self.validation[start : start + size] or [(self.validation[0][0], 0, 0)]
                sources = torch.tensor([number for *_, number in batch], device=self.device)
                total.index_add_(0, sources, self.window_nats(batch))
        dist.all_reduce(total)
        scores = heldout.summarize_scores(self.heldout, (total / self.place.degrees.loss_copies).tolist())
        if not math.isfinite(scores["loss"]):
            raise checkpoint.CollectiveError(
                f"the validation loss is {scores['loss']}: the weights are no longer usable. {REMEDY.capitalize()}"
            )
        return scores

    def weights(self) -> initial.Weights:
        """Each parameter's name and whole weights, of the model that the run makes. A collective call, to be run to its end."""
        return self.engine.ema_weights() if self.ema else self.engine.master_weights()

    def machine_record(self) -> dict[str, Any]:
        """What the run trained on, for its record. A collective call."""
        return {
            **machine.describe_machine(self.device),
            **({"parallel": asdict(self.place.degrees)} if self.place.degrees else {}),
            "estimated_memory_bytes": self.estimated,
        }

    def save(self, state: RunState) -> None:
        """A checkpoint after the step that was taken, by all processes; at the end of the training it returns when it is whole."""
        validation = state.scores["loss"] if state.scores else None
        ends = state.stop or state.over or state.step == self.last_step
        self.write_checkpoint(state.step, validation, ends)

    def write_checkpoint(self, step: int, validation: float | None, end: bool) -> None:
        """A checkpoint of all processes; validation: the loss of one after this very step. The rest: see `saving.save_checkpoint`."""
        new_checkpoint = self.build_checkpoint(step, validation)
        tokenizer = partial(model.companion_files, self.args.tokenizer)
        saving.save_checkpoint(self, new_checkpoint, self.keep_policy(), self.settings.save_dtype, tokenizer, end)

    def keep_policy(self) -> checkpoint.KeepPolicy:
        """Which checkpoints stay when a new one is whole: what a run may resume from, go back to or end with."""
        points = (self.rollback_interval, self.settings.spike_window)
        return checkpoint.KeepPolicy(self.settings.keep_checkpoints, self.settings.keep_every, self.keeps_best, points)

    def build_checkpoint(self, step: int, validation: float | None) -> checkpoint.Checkpoint:
        """What a checkpoint after `step` says of the run; `restore` takes it back."""
        state = self.state
        return checkpoint.Checkpoint(
            path=self.folder / f"step-{step:06d}",
            step=step,
            processes=self.processes,
            zero_stage=self.settings.zero_stage,
            settings=self.mark,
            code=self.code,
            skipped=tuple(state.skipped),
            changed=self.changed,
            engine=self.kind,
            validation=validation,
            lowest=state.lowest,
            recent=tuple(self.spikes.recent) if self.spikes else (),
            ahead=state.ahead,
            seen=self.plan.window_span(step + 1)[0] + state.ahead,
            rolled=tuple(state.rolled),
            stale=state.stale,
            stopped=state.stopped,
            begun=self.begun,
            optimizer=self.settings.optimizer,
            **loss_scale.checkpoint_facts(self.engine.loss_scale(), state.overflows),
        )
