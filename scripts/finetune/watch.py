"""What happens beside TRL's training: progress, gradients that are not finite, sealed checkpoints, a stop after a signal.

To be imported after `sft.quiet`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback
from trl import SFTTrainer

from scripts.finetune.loss import tokens
from scripts.finetune.template import Template
from scripts.training.sealed import seal, synced
from scripts.workflow.console import Progress, log
from scripts.workflow.errors import InputError


class Seen:
    """The batches of the optimizer step that is being made, and which pairs they hold."""

    def __init__(self, rows: list[dict[str, Any]], template: Template, tokenizer: Any, max_length: int) -> None:
        self.rows, self.template, self.tokenizer, self.max_length = rows, template, tokenizer, max_length
        self.batches: list[tuple[torch.Tensor, torch.Tensor]] = []

    def ids(self) -> list[str]:
        """The ids of all processes' pairs of this step, sorted. A collective call."""
        known: dict[tuple[int, ...], str] = {}
        for row in self.rows:
            prompt, answer = self.template.prompt(row["question"]), self.template.completion(row["answer"])
            known[tuple(tokens(self.tokenizer, prompt, answer, self.max_length)[0])] = row["id"]
        mine = [
            tuple(ids[mask.bool()].tolist())
            for given, masks in self.batches
            for ids, mask in zip(given, masks, strict=True)
        ]
        parts: list[list[str]] = [[known[ids] for ids in mine if ids in known]]
        if dist.is_initialized():
            own, parts = parts[0], [[]] * dist.get_world_size()
            dist.all_gather_object(parts, own)
        return sorted({name for part in parts for name in part})


class Trainer(SFTTrainer):
    """TRL's, which notes its batches in `seen`."""

    def __init__(self, seen: Seen, **options: Any) -> None:
        super().__init__(**options)
        self.seen = seen

    def training_step(self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> torch.Tensor:
        self.seen.batches.append((inputs["input_ids"], inputs["attention_mask"]))
        return super().training_step(model, inputs, *rest, **named)


class Watcher(TrainerCallback):
    """Shows progress, clips the gradient, skips a step whose gradient is not finite, seals checkpoints, stops after a signal.

    most: steps that may be skipped; InputError, on every process, at one more. mark: the seal's name; facts: what it holds beside the
    steps.
    """

    def __init__(
        self, stopping: list[int], seen: Seen, clipping: float, most: int, mark: str, facts: dict[str, Any]
    ) -> None:
        self.stopping, self.seen, self.clipping, self.most, self.mark = stopping, seen, clipping, most, mark
        self.facts = facts
        self.progress: Progress | None = None
        self.stopped = False

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        # Every process has the whole gradient here, the same.
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), self.clipping or math.inf))
        if math.isfinite(norm):
            return
        for parameter in model.parameters():
            parameter.grad = None  # which AdamW leaves alone
        step, pairs = state.global_step + 1, self.seen.ids()
        # In the state, which checkpoints hold: a resumed run knows what was skipped before.
        state.log_history.append({"step": step, "skipped": "gradient", "pairs": pairs})
        number = sum("skipped" in entry for entry in state.log_history)
        if state.is_world_process_zero:
            some = f"{', '.join(pairs[:3])}{', …' * (len(pairs) > 3)}"
            log.warning(
                "step %s: the gradient is not finite, its update is skipped (%s of at most %s); its %s pairs: %s",
                f"{step:,}", number, self.most, f"{len(pairs):,}", some,
            )  # fmt: skip
        if number > self.most:
            raise InputError(
                f"the gradient was not finite in {number} steps, the last is step {step}; "
                f"finetune.train.max_skipped_steps is {self.most}. Lower finetune.train.learning_rate"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seen.batches.clear()
        told = torch.tensor(float(bool(self.stopping)), device=args.device)
        if args.world_size > 1:  # a signal may reach the processes in different steps
            dist.all_reduce(told)
        self.stopped = bool(told) and state.global_step < state.max_steps
        if self.stopped:
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if state.is_world_process_zero and logs and "loss" in logs:
            self.progress = self.progress or Progress(state.max_steps, "steps", done=state.global_step - 1)
            self.progress.add(1, f"loss {logs['loss']:.3f}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size > 1:
            dist.barrier()  # every process has written its own files
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            seal(folder, self.mark, {**self.facts, "step": state.global_step, "of": state.max_steps}, synced(folder))
