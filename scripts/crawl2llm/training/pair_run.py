"""One fine-tuning on one process: its pairs, its engine, and what it does at a step, a measurement and a checkpoint."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoConfig

from crawl2llm.chain import config_schema
from crawl2llm.chain.fingerprint import code_hashes
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json, digest, task_of
from crawl2llm.core.phrases import first_few
from crawl2llm.training import (
    adapters,
    async_checkpoints,
    checkpoint,
    checkpoint_integrity,
    checks,
    engine,
    group,
    initial,
    loop,
    loss_scale,
    machine,
    memory,
    memory_guard,
    model,
    numa,
    offload,
    rounding,
    saving,
    schedule,
    start_from,
)
from crawl2llm.training.batch import pin_for
from crawl2llm.training.callback import Callback
from crawl2llm.training.chat_layout import ChatLayout, layout_for
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines.by_name import ENGINES
from crawl2llm.training.loss_scale import OVERFLOW
from crawl2llm.training.model_loading import load_tokenizer
from crawl2llm.training.pair_batches import (
    Batches,
    Cuts,
    cut_counts,
    deal_micro_batches,
    is_packed,
    micro_batch,
    pairs_of,
    read_selected_pairs,
    tokenized_pairs,
)
from crawl2llm.training.quantize_aware import check_quantize_aware
from crawl2llm.training.question_cuts import fit_pairs
from crawl2llm.training.run_state import RunState
from crawl2llm.training.shared_settings import TuningSettings
from crawl2llm.training.template import CHAT

SECTION = "finetune.train"
KEPT = 2  # checkpoints, the newest ones


class Run:
    """One run. All processes build it together. It resumes from the newest checkpoint in `folder`, after step `state.done`.

    source: the folder of the model that it is made from. The runs of align.train derive from it (stages/align/run.py): they override
    what is read, how it updates and what is measured.
    """

    where = SECTION  # the section of the config
    program = "crawl2llm.stages.finetune.train"  # whose code decides the bytes
    row_noun = "pairs"  # what max_length cuts, in words
    batch_noun = "pairs"  # what batch_size counts
    extra_callbacks: Sequence[Callback] = ()  # of the loop, before those that write rows

    def __init__(self, args: argparse.Namespace, settings: TuningSettings, folder: Path, source: Path) -> None:
        self.args, self.folder, self.source, self.settings = args, folder, source, settings
        self.state = RunState()
        self.engine_settings = EngineSettings.of_tuning(settings)
        self.rank, self.processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.tokenizer = load_tokenizer(source)
        self.batches = self.read_batches()
        self.steps = self.batches.steps
        config = self.configuration(source)
        self.save_dtype = next((name for name, dtype in model.DTYPES.items() if dtype == config.dtype), "fp32")
        self.check_settings(config)
        is_async = isinstance(settings, TuningSettings) and settings.async_checkpoints
        checks.check_async_checkpoints(is_async, settings.engine, self.where)
        offload.check_offload(self.engine_settings, lambda key: f"{self.where}.{key}")
        if self.rank == 0:  # which writes them down; if it fails, the launcher ends the others
            self.cuts = self.count_cuts()
        self.device = group.choose_device(settings.device, int(os.environ["LOCAL_WORLD_SIZE"]), self.where)
        numa.bind_to(self.device, settings.numa_binding, settings.threads)
        self.size = model.count_parameters(config)
        self.adapted = (
            partial(adapters.empty_model, config, self.engine_settings, self.where)
            if adapters.is_used(self.engine_settings)
            else None
        )
        self.trained = adapters.count_trained_parameters(self.adapted()) if self.adapted else self.size
        place = memory.Placement(
            micro_batch=self.batches.size * self.batches.rows_each,
            processes=self.processes,
            activation_checkpointing=settings.activation_checkpointing,
            async_checkpoints=is_async,
            largest=self.batches.sequences,
        )
        shape, cuda = replace(self.memory_shape(config), trained=self.trained), self.device.type == "cuda"
        self.estimated = memory_guard.estimate_memory(shape, self.engine_settings, place, cuda, self.where)
        self.room = partial(
            memory_guard.explain_out_of_memory,
            shape=shape,
            settings=self.engine_settings,
            placement=place,
            cuda=cuda,
            where=self.where,
        )

        self.kind = settings.engine
        group.join_group(self.device, settings.threads)
        self.code = code_hashes(self.program)
        self.mark = digest(canonical_json([config_schema.given_settings(self.where, settings), self.steps]))
        resume_point = checkpoint.agree_on_checkpoint(folder, self.code, self.mark, self.steps, self.device)
        self.state.restore(resume_point)
        self.changed = resume_point.changed if resume_point else ()
        stored = start_from.find_stored_weights(
            initial.empty_model(AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)),
            source,
            source / "tokenizer.json",
            f"models.{task_of(args.manifest)}.from",
        )
        values = partial(start_from.with_stored_weights, stored, partial(initial.random_weights, config, settings.seed))
        job = engine.Job(
            config=config,
            settings=self.engine_settings,
            device=self.device,
            micro_batch=self.batches.size * self.batches.rows_each,
            accumulation=self.batches.rounds,
            recomputed=settings.activation_checkpointing,
            values=partial(adapters.build_weights_with_adapter, self.adapted, values, settings.seed)
            if self.adapted
            else values,
            where=self.where,
            build_model=self.adapted,
            fill=adapters.fill_quantized_model if self.engine_settings.adapter == "qlora" else initial.fill_model,
        )
        self.checkpoint_writer = async_checkpoints.AsyncWriter(folder) if is_async else None
        try:
            self.engine = self.build_engine(job)
            if resume_point:
                with checkpoint_integrity.explain_damage(resume_point.path, folder):
                    self.engine.load(resume_point, folder)
                self.engine.restore_loss_scale(resume_point)
        except InputError as error:  # the same on every process
            raise checkpoint.CollectiveError(str(error)) from error
        self.before = self.measure_before(resume_point)  # of the model that it is made from
        self.after: dict[str, float] = {}

    def read_batches(self) -> Batches:
        """What is trained on; reads what the run is measured by, too."""
        rows, origin = read_selected_pairs(self.args.pairs, "heldout", pairs_of(self.settings))
        template = layout_for(origin, self.tokenizer)
        length = self.settings.max_length
        self.heldout_fitted = fit_pairs(rows, template, self.tokenizer, length)
        heldout = tokenized_pairs(self.heldout_fitted.rows, template, self.tokenizer, length)
        self.heldout = sorted(heldout, key=lambda piece: len(piece[0]))  # so that a batch needs little padding
        self.heldout_tokens = sum(scored for _, scored, _ in self.heldout)
        return Batches(self.args.pairs, self.tokenizer, self.settings, self.processes)

    def configuration(self, source: Path) -> Any:
        """The configuration of transformers of the model that is trained. source: the folder of the one that it is made from.

        Raises InputError if that is a reward model.
        """
        config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        if initial.is_reward_config(config):
            raise InputError(
                f"--model {self.args.model} is a reward model, which scores answers: no model is made from one"
            )
        return config

    def memory_shape(self, config: Any) -> memory.Shape:
        """The sizes of the model that decide how much memory a process needs."""
        return memory.shape_of_config(config, self.size, self.max_row_tokens())

    def check_settings(self, config: Any) -> None:
        """InputError for settings that cannot go with the model of this configuration, or with the processes."""
        check_finetuning(self.settings, self.processes, config, self.where)

    def max_row_tokens(self) -> int:
        """The most tokens of a row of a batch."""
        return int(self.settings.max_length)

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """What `max_length` does to the pairs, of training and held-out. Raises InputError if it leaves nothing to learn."""
        counts = self.batches.count_cuts(), cut_counts(self.heldout_fitted)
        check_answers(counts[0], self.settings.max_length, self.where)
        return counts

    def build_engine(self, job: engine.Job) -> engine.Engine:
        """The engine, with the weights of the model that it is made from."""
        built_engine = ENGINES[self.kind](job)
        rounding.round_linear_layers(built_engine.model, self.engine_settings, self.where)
        return built_engine

    def measure_before(self, resume_point: checkpoint.Checkpoint | None) -> dict[str, float]:
        """What `measure_heldout` gives before the first step; a resumed run reads it from its checkpoint. A collective call."""
        if not resume_point:
            return self.measure_heldout()
        # Checkpoints of earlier versions have it as `lowest`.
        before = resume_point.lowest if resume_point.before is None else resume_point.before
        return {} if before is None else {"heldout_loss": before}

    def measure_heldout(self) -> dict[str, float]:
        """The held-out loss by its name in metrics.jsonl; {} if nothing is held out. A collective call."""
        loss = self.heldout_loss()
        return {} if loss is None else {"heldout_loss": loss}

    def summary_facts(self) -> dict[str, Any]:
        """What the manifest's summary says of the pairs, and of the held-out ones before and after."""
        before, after = (measures.get("heldout_loss") for measures in (self.before, self.after))
        return {
            "pairs": len(self.batches.rows),
            "heldout_pairs": len(self.heldout),
            "heldout_tokens": self.heldout_tokens,
            "heldout_loss_before": None if before is None else round(before, 6),
            "heldout_loss_after": None if after is None else round(after, 6),
        }

    def report_notes(self) -> list[str]:
        """More notes for the report."""
        return []

    def write_extra_files(self, out: Path) -> list[Path]:
        """Write more files into the model's folder; those that the manifest is to list."""
        return []

    @property
    def last_step(self) -> int:
        """The last step of the run."""
        return self.steps

    def next_batch(self, step: int) -> Any:
        """This process's micro-batches of a step, on the CPU: (inputs, targets) each, int64 (rows, longest row)."""
        return self.batches.micro_batches(step, self.rank)

    def end_reading(self) -> None:
        """Nothing is read ahead."""

    def update_by(self, step: int, batch: Any) -> engine.Update:
        """The update of a step with the rate `self.rate`. batch: of `next_batch`. A collective call."""
        self.engine.expect_documents(batch)
        return self.engine.step(
            [
                tuple(pin_for(part, self.device).to(self.device, non_blocking=True) for part in micro_batch)
                for micro_batch in batch
            ],
            self.rate,
            reduce=partial(loop.all_reduce_loss, self.state, self.device, self.processes),
        )

    def take_step(self, state: RunState, batch: Any) -> None:
        """One optimizer update. A collective call.

        The loss is the mean over the answers' tokens of the global batch, in nats. If it or the gradient is not finite the update is
        left out, on every process, and the row names the step's pairs.
        """
        # As if there were one step more: the last one would have a rate of 0.
        self.rate = schedule.learning_rate(state.step, self.steps + 1, self.engine_settings)
        self.extra_metrics: dict[str, float] = {}  # more for the step's row of metrics.jsonl
        scale = self.engine.loss_scale()
        state.update = self.update_by(state.step, batch)
        state.loss = loop.reduce_loss(state, self.device, self.processes)
        applied, norm = state.update.applied, state.update.norm
        state.overflowed = loss_scale.is_overflow(scale and scale[0], state.loss, norm, applied)
        state.overflows += state.overflowed
        self.extra_metrics |= loss_scale.metrics_row(self.engine.loss_scale(), state.overflows)
        if applied:
            state.row = {"step": state.step, "loss": state.loss}
        elif state.overflowed:
            if self.rank == 0:
                loss_scale.log_overflow(state.step)
            state.row = {"step": state.step, "loss": state.loss, "skipped": "gradient", "reason": OVERFLOW}
        else:
            state.skipped.append(state.step)
            state.row = self.skipped_row(state)

    def skipped_row(self, state: RunState) -> dict[str, Any]:
        """What losses.jsonl says of a step that was left out; process 0 logs it."""
        quantity, ids = "gradient" if math.isfinite(state.loss) else "loss", self.batches.ids(state.step)
        if self.rank == 0:
            log.warning(
                "step %s: the %s is not finite, its update is skipped (%s of at most %s); its %s pairs: %s",
                f"{state.step:,}", quantity, len(state.skipped), self.settings.max_skipped_steps, f"{len(ids):,}", first_few(ids, 3),
            )  # fmt: skip
        return {"step": state.step, "skipped": quantity, "pairs": ids}

    def skip_error(self, skipped: list[int]) -> str:
        """The error if more steps were skipped than `max_skipped_steps`."""
        return (
            f"the loss or the gradient was not finite in {len(skipped)} steps, the last is step {skipped[-1]}; "
            f"{self.where}.max_skipped_steps is {self.settings.max_skipped_steps}. Lower {self.where}.learning_rate"
        )

    def wants_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due after this step, whatever came of it."""
        intervals = (self.settings.checkpoint_every, self.settings.keep_every)
        return any(interval and (step == self.steps or step % interval == 0) for interval in intervals)

    def heldout_loss(self) -> float | None:
        """The mean loss in nats over the tokens of the held-out answers; None if there are none. A collective call.

        Every process runs as many forward passes as the others, as ZeRO 3 needs.
        """
        if not self.heldout_tokens:
            return None
        total = torch.zeros((), dtype=torch.float64, device=self.device)  # nats
        for turn in deal_micro_batches(self.heldout, self.processes, self.batches.size):
            inputs, targets = micro_batch(turn[self.rank], self.tokenizer.eos_token_id)
            total += self.engine.evaluate(inputs.to(self.device), targets.to(self.device)).sum()
        dist.all_reduce(total)
        return float(total) / self.heldout_tokens

    def machine_record(self) -> dict[str, Any]:
        """What the run trained on. A collective call."""
        return {**machine.describe_machine(self.device), "estimated_memory_bytes": self.estimated}

    def save(self, state: RunState) -> None:
        """A checkpoint after the step that was taken, by all processes; see `saving.save_checkpoint`."""
        step, end = state.step, state.stop or state.step == self.steps
        new_checkpoint = checkpoint.Checkpoint(
            path=self.folder / f"step-{step:06d}",
            step=step,
            processes=self.processes,
            zero_stage=self.settings.zero_stage,
            settings=self.mark,
            code=self.code,
            skipped=tuple(state.skipped),
            changed=self.changed,
            engine=self.kind,
            before=self.before.get("heldout_loss"),
            **loss_scale.checkpoint_facts(self.engine.loss_scale(), state.overflows),
        )
        kept = checkpoint.KeepPolicy(KEPT, self.settings.keep_every)
        saving.save_checkpoint(self, new_checkpoint, kept, self.save_dtype, self.companions, end)

    def companions(self) -> list[Path]:
        """The files of the tokenizer beside the weights, and the chat template by which the model was asked."""
        if isinstance(self.batches.template, ChatLayout):  # which the model came with
            return [path for name in model.COMPANIONS if (path := self.source / name).is_file()]
        files = [path for name in model.COMPANIONS if name != CHAT and (path := self.source / name).is_file()]
        return [*files, Manifest.read(self.args.pairs).verify_files(CHAT).file(CHAT)]


def check_finetuning(settings: TuningSettings, processes: int, config: Any, where: str = SECTION) -> None:
    """InputError for pairs longer than the model's context, and for more processes than a batch has pairs."""
    limit, length = getattr(config, "max_position_embeddings", None), settings.max_length
    if limit and length > limit:
        raise InputError(f"{where}.max_length is {length}; the model's context is {limit} tokens")
    engine_settings = EngineSettings.of_tuning(settings)
    checks.check_packing(is_packed(settings), config.model_type, where)
    checks.check_adapter(engine_settings, where)
    checks.check_fp16(engine_settings, settings.device, lambda key: f"{where}.{key}")
    check_quantize_aware(engine_settings, lambda key: f"{where}.{key}")
    if processes > settings.batch_size:
        raise InputError(
            f"{where}.batch_size is {settings.batch_size} pairs, fewer than the {processes} processes ({where}.processes × "
            f"{where}.nodes): raise it, or lower these"
        )


def check_answers(train: Cuts, max_length: int, where: str = SECTION) -> None:
    """InputError if the answer of no pair fits: there would be nothing to learn."""
    if train.left_out == train.pairs:
        raise InputError(
            f"{where}.max_length is {max_length} tokens: of none of the {train.pairs:,} training pairs the answer fits with a token of the "
            "question; raise it, up to the model's context, or shorten finetune.pairs.template"
        )
