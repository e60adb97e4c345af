"""An engine of pre-training whose loss is not the mean cross-entropy: one that a micro-batch brings, made of its logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch.distributed.fsdp import FSDPModule

from crawl2llm.stages.align.chunked_logprobs import ChunkedHead
from crawl2llm.training import engine, layers, sampling, slots, varlen
from crawl2llm.training.batch import MicroBatch
from crawl2llm.training.engines.by_name import ENGINES
from crawl2llm.training.sampling import Choice

# What a micro-batch adds to the loss of this process's step: fp32 logits [n, length, vocabulary] and int64 targets [n, length] → a number.
# With `loss_chunk` log-probabilities of the targets, fp32 [n, length], stand in the place of logits; of a reward model scores, [n, 1].
# Engines take the mean over the micro-batches of a step and over processes.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class LossEngine(engine.Engine):
    """Any engine, with `step_by` and `logits` beside what it has."""

    losses: Iterator[Loss] | None = None
    chunked: ChunkedHead | None = None

    def _finish_setup(self, job: engine.Job) -> None:
        """As `engine.Engine._finish_setup`; with `loss_chunk` losses get log-probabilities in the place of logits."""
        rows = job.settings.loss_chunk
        super()._finish_setup(replace(job, settings=replace(job.settings, loss_chunk=0)))
        if rows:
            self.chunked = ChunkedHead(self.model.get_output_embeddings(), rows, job.where)

    def step_by(self, batch: Sequence[MicroBatch], rate: float, losses: Sequence[Loss]) -> engine.Update:
        """As `engine.Engine.step`, by a loss for each micro-batch."""
        self.losses = iter(losses)
        try:
            return self.step(batch, rate)
        finally:
            self.losses = None

    def _micro_batch_loss(
        self, inputs: torch.Tensor, targets: torch.Tensor, more: dict[str, Any], scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, Any]:
        if self.losses is None:
            return super()._micro_batch_loss(inputs, targets, more, scale)
        if self.chunked:
            logps, output = self.chunked.target_logprobs(partial(self.forward, inputs, **more), targets)
            return next(self.losses)(logps, targets), output
        output = self.forward(inputs, **more)
        return next(self.losses)(output.logits.float(), targets), output

    def _loss_by_row(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not self.chunked:
            return super()._loss_by_row(inputs, targets)
        return -self.chunked.target_logprobs(partial(self.forward, inputs), targets)[0].double().sum(1)

    @torch.no_grad()
    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits of token ids [n, length], fp32 [n, length, vocabulary], without a gradient. A collective call."""
        self.model.eval()
        with layers.force_eager(self.compiled):
            result = self.forward(inputs).logits.float()
        self.model.train()
        self.reshard_weights()
        return cast(torch.Tensor, result)

    @contextmanager
    def generation_mode(self) -> Iterator[None]:
        """Around calls of `next_logits`, which gather sharded weights once where they may stay."""
        self.model.eval()
        try:
            with layers.force_eager(self.compiled), varlen.plain_attention(self.model):
                yield
        finally:
            self.model.train()
            self.reshard_weights()

    @contextmanager
    def answer_drawer(
        self, choice: Choice, device: torch.device, at_once: int
    ) -> Iterator[slots.SlotDrawer | slots.TogetherDrawer]:
        """What draws answers of the model as it is, on its device; calls of it are collective.

        at_once: answers that are drawn in slots at once. 0, or a type that cannot (slots.SLOT_TYPES): all of a call together.
        """
        with self.generation_mode():
            if not at_once or not slots.can_use_slots(self.model):
                yield slots.TogetherDrawer(self.next_logits, device, choice, sampling.any_unfinished)
            elif hasattr(self, "engine") or getattr(self, "zero", 0) == 3:  # weights are gathered layer by layer
                agree = partial(slots.largest_of_processes, device)
                yield slots.SlotDrawer(self.next_logits, device, choice, at_once, captured=False, agree=agree)
            else:
                # Within a precision, weights are cast once for all tokens.
                with self._gathered_weights(), getattr(self, "mixed_precision", nullcontext)():
                    following = partial(sampling.next_logits, self.model)
                    yield slots.SlotDrawer(following, device, choice, at_once)

    @contextmanager
    def _gathered_weights(self) -> Iterator[None]:
        """Forward passes of the model itself, with weights that FSDP2 gathers once and without its hooks, which order streams: a graph
        cannot capture that, and processes need not make as many. To be entered by all.
        """
        removed: list[tuple[Any, Any]] = []
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.unshard()
            for hooks in (module._forward_pre_hooks, module._forward_hooks):
                removed.append((hooks, hooks.copy()))
                for key in [key for key, hook in hooks.items() if "fsdp" in getattr(hook, "__module__", "")]:
                    del hooks[key]
        try:
            yield
        finally:
            for hooks, before in removed:
                hooks.clear()
                hooks.update(before)

    def next_logits(
        self, inputs: torch.Tensor, mask: torch.Tensor | None, places: torch.Tensor, cache: Any
    ) -> tuple[torch.Tensor, Any]:
        """(fp32 logits [n, vocabulary] behind the last of token ids [n, length], keys and values up to there). A collective call.

        mask: int64 [n, all so far], 0 if there is padding. places: int64 [n, length]. cache: what it returned before, or None.
        """
        # DeepSpeed's wrapper, or torch's
        runs: Any = getattr(self, "engine", None) or getattr(self, "runs", self.model)
        with getattr(self, "mixed_precision", nullcontext)():
            return sampling.next_logits(runs, inputs, mask, places, cache)

    def reshard_weights(self) -> None:
        """Without a backward pass, whole weights would stay in memory."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def engine_class(name: str) -> type[LossEngine]:
    """The class of an engine by its name, as in `ENGINES`."""
    return cast(type[LossEngine], type("Aligned", (LossEngine, ENGINES[name]), {}))
