"""What trains: one interface to the engines in training/engines/. Their processes' group is in group.py.

An engine has the model, its optimizer and their state, sharded or not. All that the trainer knows of it is here: an engine is
chosen by `pretrain.train.engine`, and `zero_stage` says what each process holds a part of. docs/engines.md has the table.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from crawl2llm.core.errors import InputError
from crawl2llm.training import heartbeat, initial, layers, masking, mixture, model, varlen
from crawl2llm.training.batch import IGNORE, Batch, micro_batches, read_mask
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.fused_cross_entropy import (
    Head,
    cross_entropy,
    keep_nonfinite_gradient,
    loss_by_row,
    summed_cross_entropy,
)
from crawl2llm.training.initial import Weights
from crawl2llm.training.loss_scale import LossScale, State
from crawl2llm.training.muon import Muon
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.routers import Routers, check_routers

if TYPE_CHECKING:
    from crawl2llm.training.checkpoint import Checkpoint

# A checkpoint's neutral form: each parameter's name, {kind: whole tensor, fp32}.
Saved = Iterator[tuple[str, dict[str, torch.Tensor]]]
WEIGHT = "weight"  # the first kind; the others are the optimizer's state, by its own names
MOMENTS, MOMENTUM = ("exp_avg", "exp_avg_sq"), ("momentum",)  # AdamW's of a parameter, and Muon's; both have `step` too


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an engine is built for. `values` gives the weights to begin with, fp32."""

    config: PreTrainedConfig
    settings: EngineSettings
    device: torch.device
    micro_batch: int
    accumulation: int  # the most micro-batches of a step
    recomputed: bool  # activations, in the backward pass
    values: Callable[[], Weights]
    selective: bool = False  # and then not those of matrix products and attention
    parallel: Degrees = field(default_factory=Degrees)
    where: str = "pretrain.train"  # the section of the config, for errors
    # The model on the meta device, where it is not that of the configuration: parameters that want no gradient are not trained.
    build_model: Callable[[], PreTrainedModel] | None = None
    # Puts `values` into what `empty_model` makes.
    fill: Callable[[PreTrainedModel, torch.device, Weights], PreTrainedModel] = initial.fill_model

    def empty_model(self) -> PreTrainedModel:
        """The model without values."""
        return self.build_model() if self.build_model else initial.empty_model(self.config)


@dataclass(frozen=True)
class Update:
    """What became of a step. `loss`: nats a token, float64 on the device; the mean over all processes is that of the step."""

    loss: torch.Tensor
    balance: torch.Tensor | None  # the mean loss of the routers of a mixture of experts; None for other models
    norm: float | None  # of the whole gradient, before clipping
    # False: the loss or the norm was not finite, or not fit; weights and optimizer are as before, on every process.
    applied: bool
    reduced: list[float] | None = None  # what `reduce` of the step made; None if it was not called
    router_z: torch.Tensor | None = None  # the mean square of the routers' log-denominator, if it is trained on


# Whether an update may be made, by this process's mean loss and the norm of the whole gradient, which is finite. A collective call.
Fits = Callable[[torch.Tensor, float], bool]
# What all processes make together of a step's loss, from that of this process: float64 [n], on the device. A collective call.
Reduce = Callable[[torch.Tensor], torch.Tensor]


class Engine(ABC):
    """A model in training. Every method is a collective call: all processes make it together, and to its end."""

    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    micro_batches: int  # of the step that is under way
    reduce: Callable[[], torch.Tensor] | None = None  # of that step
    reduced: list[float] | None = None  # what it made, on the host
    experts: mixture.Mixture | None  # None: the model has no experts
    routers: Routers | None = None  # if their choices are counted or their logits trained
    varlen = False  # whether attention stays within documents without a mask
    room: int | None = None  # of documents in a micro-batch, for it; None: not known
    scaling: LossScale | None = None  # of fp16, by an engine that scales the loss itself

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Build the model and its optimizer."""

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """What the optimizer updates, by name: the model's parameters, unless an engine has the model compute with copies of them."""
        return dict(self.model.named_parameters())

    def _build_optimizer(self, job: Job, fused: bool) -> torch.optim.Optimizer:
        """The optimizer over `model`: torch's AdamW, or Muon beside it."""
        settings, whole_model = job.settings, job.empty_model()  # a sharded parameter does not always show its shape
        names = {id(p): name for name, p in whole_model.named_parameters()}
        parameters = self.weights()
        groups = model.parameter_groups(whole_model, settings)
        for group in groups:
            group["params"] = [
                parameters[name] for parameter in group["params"] if (name := names[id(parameter)]) in parameters
            ]
        groups = [group for group in groups if group["params"]]
        self.scales = [(group["scale"], group["weight_decay"]) for group in groups]
        self.adam: dict[str, Any] = {"betas": (settings.beta1, settings.beta2), "eps": settings.epsilon}
        kind = Muon if settings.optimizer == "muon" else torch.optim.AdamW
        optimizer = kind(groups, lr=settings.learning_rate, **self.adam, fused=fused)
        if isinstance(optimizer, Muon):
            optimizer.precision = model.DTYPES[settings.muon_precision]
        return optimizer

    def step(self, batch: Batch, rate: float, fits: Fits | None = None, reduce: Reduce | None = None) -> Update:
        """One update with the learning rate `rate`, by this process's part of a batch, on the device.

        The loss is the mean over all tokens that count in the batches of all processes together. What `reduce` makes comes to the host with
        the norm, if the engine has that on the device: a step then waits once, and not for the optimizer.

        Where the loss or the norm of the whole gradient is not finite, or where `fits` says no, weights and optimizer stay as they are,
        on every process.
        """
        self.set_learning_rate(rate)
        parts, scale, share = micro_batches(batch)
        total, *router_means = torch.zeros(3, dtype=torch.float64, device=parts[0][0].device)
        weight = self.experts.weight if self.experts else None  # how much it counts that all experts are used alike
        more: dict[str, Any] = {} if weight is None else {"output_router_logits": True}
        self.micro_batches = len(batch)
        for number, (inputs, targets, *places) in enumerate(parts):
            last = number + 1 == len(batch)
            heartbeat.set_phase(f"micro-batch {number + 1} of {len(batch)}")
            self._begin_micro_batch(last)
            if self.border is not None:
                more["position_ids"] = masking.document_positions(inputs, self.border)
            elif places:
                more["position_ids"] = places[0]
            borders = self._document_arguments(inputs, more.get("position_ids"))
            mask = None if share is None or (weight is None and not self.routers) else read_mask(targets)
            read = None if mask is None else mask | ~mask.any()  # of no token the routers' loss would be 0 / 0
            with (
                layers.without_packing_search("position_ids" not in more or bool(borders), inputs.device.type),
                varlen.without_mask(bool(borders)),
                mixture.masked_router_loss(self.model, read),
                self.routers.record() if self.routers else contextlib.nullcontext(),
            ):
                loss, output = self._micro_batch_loss(inputs, targets, more | borders, scale)
            total += loss.detach() / len(batch)
            guarded_loss = self._add_router_losses(
                keep_nonfinite_gradient(loss),
                output,
                read,
                None if mask is None or share is None else share * mask.any(),
                router_means,
            )
            del loss, output  # logits, which the backward pass frees when it has used them
            self._backward(guarded_loss, last)
            del guarded_loss  # its graph, before the next micro-batch's grows
        heartbeat.set_phase("update")
        self.reduce, self.reduced = reduce and partial(reduce, total), None
        norm, applied = self._update(fits and partial(fits, total))
        if self.routers:
            self.routers.end_step(applied)
        balance, router_z = router_means
        return Update(
            loss=total,
            balance=None if weight is None else balance,
            norm=norm,
            applied=applied,
            reduced=self.reduced,
            router_z=router_z if self.routers and self.routers.z_loss else None,
        )

    def read_norm(self, norm: torch.Tensor) -> float:
        """The norm of the gradient, and in `reduced` what `reduce` makes, by one copy from the device. A collective call."""
        if self.reduce is None:
            return float(norm)
        *self.reduced, value = torch.cat([self.reduce(), norm.double()[None]]).tolist()
        return float(value)

    def _add_router_losses(
        self, loss: torch.Tensor, output: Any, read: torch.Tensor | None, share: torch.Tensor | None,
        means: Sequence[torch.Tensor],
    ) -> torch.Tensor:  # fmt: skip
        """The loss of a micro-batch with those of its routers, which are added to the step's `means`: of balance and of z-loss.

        read: which tokens count, None: all. share: of the micro-batch in the step, None: as the others.
        """
        added = []
        if self.experts and self.experts.weight is not None:
            added.append((output.aux_loss, self.experts.weight, means[0]))
        if self.routers and (squares := self.routers.sum_up(read)) is not None:
            added.append((squares, self.routers.z_loss, means[1]))
        for value, weight, mean in added:
            part = value if share is None else share * value
            mean += part.detach() / self.micro_batches
            loss = loss + weight * part
        return loss

    def expect_documents(self, batch: Batch) -> None:
        """See, of a step's batch on the CPU, how many documents attention has to have room for: else the device would be asked."""
        if self.varlen:
            self.room = varlen.room_for_documents(batch, self.border, self.room or 0)

    def _document_arguments(self, inputs: torch.Tensor, positions: torch.Tensor | None) -> dict[str, Any]:
        """What variable-length attention takes of a micro-batch; {} if it has no part in it."""
        if not self.varlen or (positions is None and not varlen.needs_borders(self.model.config, inputs.shape[1])):
            return {}
        return varlen.document_arguments(inputs, positions, self.room)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of every group for the next update."""
        for group, (scale, decay) in zip(self.optimizer.param_groups, self.scales, strict=True):
            group["lr"], group["weight_decay"] = rate * scale, decay  # DeepSpeed's checkpoints bring their own

    def _finish_setup(self, job: Job) -> None:
        """What an engine does last, around a model that it has wrapped."""
        settings, self.experts = job.settings, mixture.mixture_of(job.config)
        self.z_loss, self.compiled = settings.z_loss, settings.compile_layers
        losses = settings.router_z_loss, settings.router_bias_rate
        check_routers(self.model, settings.engine, *losses, where=job.where)
        if self.experts and settings.pretraining:  # whose metrics have the load
            self.routers = Routers(self.model, self.experts, *losses)
        self.border = job.config.eos_token_id if settings.document_masking else None  # of documents
        self.varlen = not job.parallel and varlen.can_run(job.config, job.device, settings.precision)
        if self.varlen:
            varlen.enable(self.model)
        if self.compiled:
            layers.compile_layers(self.model)
        rows = settings.loss_chunk
        self.head = Head(self.model.get_output_embeddings(), self.z_loss, rows, job.where) if rows else None

    def _micro_batch_loss(
        self, inputs: torch.Tensor, targets: torch.Tensor, more: dict[str, Any], scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, Any]:
        """(mean loss in nats a token, what the model returned) of a micro-batch: int64 [n, context] each. scale: see `micro_batches`."""
        if self.head:
            return self.head.loss_of(partial(self.forward, inputs, **more), targets, scale)
        output = self.forward(inputs, **more)
        if scale is not None:
            return scale * summed_cross_entropy(output.logits.float().flatten(0, 1), targets.flatten(), IGNORE), output
        return self.mean_loss(output.logits, targets), output

    def mean_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss in nats a token that is differentiated: logits [n, length, vocabulary], int64 [n, length]."""
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten(), self.z_loss)

    @torch.no_grad()
    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of each row of token ids [n, length] in nats, summed over its targets that are not IGNORE: float64 [n]."""
        self.model.eval()
        with layers.force_eager(self.compiled):
            losses = self._loss_by_row(inputs, targets)
        self.model.train()
        return losses

    def _loss_by_row(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """As `evaluate`, of a model that is set to it."""
        if self.head:
            return self.head.loss_by_row(partial(self.forward, inputs), targets)
        return loss_by_row(self.forward(inputs).logits, targets)

    def decoder_layers(self) -> list[torch.nn.Module]:
        """The decoder layers, as they run."""
        return initial.decoder_layers(self.model)

    @abstractmethod
    def forward(self, inputs: torch.Tensor, **more: Any) -> Any:
        """Token ids [n, length] → what the model of transformers returns: `logits` [n, length, vocabulary], and what `more` asks for."""

    def _begin_micro_batch(self, last: bool) -> None:  # noqa: B027 - most need nothing
        """Before the forward pass of a micro-batch of training; `last` of its step."""

    @abstractmethod
    def _backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradient of a micro-batch's mean loss to that of the step, which is their mean."""

    @abstractmethod
    def _update(self, fits: Callable[[float], bool] | None) -> tuple[float | None, bool]:
        """Clip and update, after the last micro-batch: `norm` and `applied` of Update. fits: asked with a norm that is finite."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights and optimizer into `folder`, which is not there yet. Nothing is a pickle that is read without weights_only."""

    def stage_checkpoint(self) -> Callable[[Path], list[str]]:
        """Copy weights and optimizer to memory; what writes the copy into a folder, makes no collective call and returns the files' names.

        A copy is written before the next is made. Only for the engines of checks.ASYNC_ENGINES.
        """
        raise NotImplementedError

    @abstractmethod
    def load(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Take weights and optimizer of a checkpoint; `folder` is the run's, for what has to be converted.

        Raises InputError for a checkpoint that this engine cannot take, and says why.
        """

    def loss_scale(self) -> State | None:
        """The state of fp16's loss scale; None for other precisions."""
        return (self.scaling.value, self.scaling.steady) if self.scaling else None

    def set_loss_scale(self, value: float, steady: int) -> None:
        """Go on with the scale of a checkpoint; nothing for other precisions."""
        if self.scaling:
            self.scaling.value, self.scaling.steady = value, steady

    def restore_loss_scale(self, checkpoint: Checkpoint) -> None:
        """Go on with the scale of a checkpoint of any engine; one of another precision has none."""
        if checkpoint.loss_scale is not None:
            self.set_loss_scale(checkpoint.loss_scale, checkpoint.steady)

    @abstractmethod
    def master_weights(self) -> Weights:
        """Each parameter's name and fp32 master weights, whole, on the CPU; to be run to its end."""

    # The EMA of the weights, a mean over the last steps (training/ema.py), where `ema` of the settings is not null.

    @abstractmethod
    def update_ema(self, weight: float) -> None:
        """Move the EMA by the share `weight` of the way to the weights."""

    @abstractmethod
    def using_ema(self) -> contextlib.AbstractContextManager[None]:
        """Evaluate with the EMA in the place of the weights, which are as before in the end."""

    @abstractmethod
    def ema_weights(self) -> Weights:
        """As `master_weights`, of the EMA."""


def check_names(stored_names: Iterable[str], names: Iterable[str], path: Path) -> None:
    """Raise InputError if the checkpoint at `path` holds other parameters, `stored_names`, than those of the model here, `names`."""
    if unmatched := set(stored_names) ^ set(names):
        if any(".lora_" in name for name in unmatched):
            raise InputError(
                f"{path} holds an adapter's matrices alone: resume its run, whose result has them added to the model"
            )
        raise InputError(f"{path} is of another model: {min(unmatched)} is a parameter of one of the two alone")


def other_optimizer_text(path: Path, why: str) -> str:
    """What to say of a checkpoint whose state is not that of this run's optimizer."""
    return (
        f"{path} has the state of another optimizer or model ({why}): set pretrain.train.optimizer to the one that it "
        "was made with, or start from its run's model"
    )
