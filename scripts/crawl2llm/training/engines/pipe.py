"""A pipeline's step and evaluation: stages of layers on several processes, micro-batches one behind another.

The schedule is torch's 1F1B (torch.distributed.pipelining): each stage does one forward and one backward pass in turn, so that it keeps the
activations of as many micro-batches as stages follow, itself included (Harlap et al. 2018, https://arxiv.org/abs/1806.03377).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from transformers import PreTrainedModel

from crawl2llm.training.engines.model_parallel import ModelShard
from crawl2llm.training.fused_cross_entropy import keep_nonfinite_gradient, loss_by_row

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Stage(nn.Module):
    """A model cut to a stage: the first takes token ids, the others what the stage before returns; the last returns logits."""

    def __init__(self, model: PreTrainedModel, cut: ModelShard, low: bool) -> None:
        super().__init__()
        self.model, self.cut, self.low = model, cut, low
        self.name = "input_ids" if cut.stage.pp_is_first_stage else "inputs_embeds"

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        with torch.autocast(value.device.type, torch.bfloat16, enabled=self.low):
            output = self.model(**{self.name: value}, use_cache=False, **self.cut.position_arguments(value.shape[1]))
        return output.logits  # where the head is the identity, the hidden state


class Pipe:
    """The processes of a pipeline in training. runs: a Stage, or FSDP's of it; hidden: type of what goes from stage to stage."""

    def __init__(self, runs: nn.Module, cut: ModelShard, hidden: torch.dtype, vocabulary: int, width: int) -> None:
        self.runs, self.cut, self.hidden, self.vocabulary, self.width = runs, cut, hidden, vocabulary, width
        self.shape: torch.Size | None = None  # of the batches that `schedule` is for
        self.schedule: Schedule1F1B
        self.loss: Loss
        self.losses: list[torch.Tensor] = []  # the losses of a step's micro-batches

    def _prepare_schedule(self, batch: torch.Tensor) -> None:
        """A schedule for batches of this shape, int64 [micro-batches, n, length + 1]."""
        place, (micro_batches, n, length) = self.cut.stage, (*batch.shape[:2], batch.shape[2] - 1)

        def meta_tensor(last: int) -> torch.Tensor:
            return torch.empty(n, length, last, dtype=self.hidden, device="meta", requires_grad=True)

        def mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            loss = self.loss(logits, targets)
            self.losses.append(loss.detach())
            return keep_nonfinite_gradient(loss) / micro_batches

        ids = torch.empty(n, length, dtype=torch.int64, device="meta")
        stage = PipelineStage(
            self.runs, place.pp_rank, place.pp_size, self.cut.device,
            input_args=ids if place.pp_is_first_stage else meta_tensor(self.width),
            output_args=meta_tensor(self.vocabulary if place.pp_is_last_stage else self.width),
            group=self.cut.pipeline.get_group(),
        )  # fmt: skip
        self.schedule = Schedule1F1B(stage, micro_batches, loss_fn=mean_loss, scale_grads=False)
        self.shape = batch.shape

    def add_gradients(self, batch: torch.Tensor, loss: Loss) -> torch.Tensor:
        """Add up the gradients of a step; its mean loss, in every stage, float64.

        batch: int64 [micro-batches, n, length + 1]. loss: of logits and targets of a micro-batch, in nats a token, to be differentiated.
        """
        if batch.shape != self.shape:
            self._prepare_schedule(batch)
        self.loss, self.losses = loss, []
        tokens, place = batch.flatten(0, 1), self.cut.stage
        stage_inputs: tuple[Any, ...] = (tokens[:, :-1].contiguous(),) if place.pp_is_first_stage else ()
        target = tokens[:, 1:].contiguous() if place.pp_is_last_stage else None
        self.schedule.step(*stage_inputs, target=target, return_outputs=False)
        total = torch.zeros((), dtype=torch.float64, device=batch.device)
        for micro_loss in self.losses:
            total += micro_loss / len(batch)
        return self.cut.from_stage(total, place.pp_size - 1)

    @torch.no_grad()
    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """As `engine.Engine.evaluate`, in every stage."""
        self.runs.eval()
        logits = self._last_stage_logits(inputs)
        rows = torch.zeros(len(inputs), dtype=torch.float64, device=inputs.device)
        self.runs.train()
        if logits is not None:
            rows += loss_by_row(logits, targets)
        return self.cut.from_stage(rows, self.cut.stage.pp_size - 1)

    def _last_stage_logits(self, inputs: torch.Tensor) -> torch.Tensor | None:
        """Logits of token ids [n, length], in the last stage; None in the others."""
        place, group = self.cut.stage, self.cut.pipeline.get_group()
        value = inputs
        if not place.pp_is_first_stage:
            value = torch.empty(*inputs.shape, self.width, dtype=self.hidden, device=inputs.device)
            dist.recv(value, group=group, group_src=place.pp_prev_rank)
        output = self.runs(value)
        if place.pp_is_last_stage:
            return output
        dist.send(output.to(self.hidden).contiguous(), group=group, group_dst=place.pp_next_rank)
        return None
