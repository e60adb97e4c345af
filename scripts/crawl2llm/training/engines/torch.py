"""The engine `torch`: DDP where nothing is sharded, FSDP2 elsewhere, checkpoints by torch.distributed.checkpoint.

What the `zero_stage` of the config means here, of fp32 weights, their gradients and the optimizer's state:

0  every process has all (DDP); bf16 and fp16 by autocast, the products of experts too, or without it by copies (weight_copies.py)
1  each process has its part of all three between steps; weights are gathered once a step, gradients scattered once a step
2  gradients are scattered after each micro-batch
3  weights are gathered layer by layer too, in the forward pass and again in the backward pass

Gradients are fp32 when they are added up and when they are reduced. Under stages 1–3 the model is built on the meta device, and no
process holds more than one of its blocks whole (stages 1 and 2: except the bf16 or fp32 copy that a step computes with).

Where matrices, layers, sequences or experts are shared out too (`pretrain.train.parallel`), model_parallel.py has the groups of processes,
pipe.py the pipeline's schedule and ulysses.py the sequence's attention. Without ZeRO gradients are then added up once a step, after the
last backward pass: DDP takes no DTensors.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from crawl2llm.training import engine, float8, initial, layers, loss_scale, malloc_tuning, mixture, routers
from crawl2llm.training.batch import IGNORE, Batch
from crawl2llm.training.checks import FP8
from crawl2llm.training.ema import EMA
from crawl2llm.training.engines import torch_files
from crawl2llm.training.engines.checkpoint_staging import StagedState
from crawl2llm.training.engines.model_parallel import ModelShard
from crawl2llm.training.engines.pipe import Pipe, Stage
from crawl2llm.training.engines.saved_parameters import saved_parameters
from crawl2llm.training.engines.torch_files import shard_like
from crawl2llm.training.engines.weight_copies import WeightCopies
from crawl2llm.training.muon import Muon, local_part

if TYPE_CHECKING:
    from crawl2llm.training.checkpoint import Checkpoint


class Torch(engine.Engine):
    """A model under DDP or FSDP2 with torch's AdamW, or Muon beside it."""

    def __init__(self, job: engine.Job) -> None:
        self.zero, self.clipping = job.settings.zero_stage, job.settings.gradient_clipping
        self.low, self.device = loss_scale.LOW_PRECISION.get(job.settings.precision), job.device
        self.scaling = loss_scale.loss_scale_for(job.settings)
        self.casts = bool(self.low) and not self.zero and job.settings.autocast
        if self.casts and mixture.mixture_of(job.config):
            layers.autocast_products()
        self.model = job.empty_model()
        self.names = {name: value.shape for name, value in self.model.named_parameters()}
        if job.settings.precision == FP8:
            tokens = job.micro_batch * job.config.max_position_embeddings
            float8.convert_layers(initial.decoder_layers(self.model), tokens, emulate=job.device.type == "cpu")
        self.cut = ModelShard(job.parallel, job.device) if job.parallel else None
        if self.cut:
            self.cut.apply(self.model)
        if job.recomputed:
            layers.recompute_activations(self.model, job.selective)
        self.runs: nn.Module = self.model
        if self.cut and job.parallel.pipeline > 1:
            self.runs = Stage(self.model, self.cut, self.casts)
        if self.zero:
            self._shard_model(job)
            if job.device.type == "cpu" and dist.get_world_size() > 1:
                malloc_tuning.map_large()  # weights that are gathered and freed would leave holes between activations
        parameters = dict(self.model.named_parameters())
        names_here = parameters.keys() | dict(self.model.named_buffers()).keys()
        values = ((name, shard_like(value, parameters.get(name))) for name, value in job.values() if name in names_here)
        job.fill(self.model, job.device, values)
        self.pipe = None
        if self.cut and job.parallel.pipeline > 1:
            hidden = self.low if self.low and self.zero else torch.float32
            self.pipe = Pipe(self.runs, self.cut, hidden, job.config.vocab_size, job.config.hidden_size)
        self.copies: WeightCopies | None = None
        if self.low and not self.zero and not self.casts:
            self.copies = WeightCopies(self.model, self.low, dist.get_world_size())
        elif not self.zero and not self.cut and dist.get_world_size() > 1:
            places = [job.device] if job.device.type == "cuda" else None
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)  # which DDP takes into its buckets
            self.runs = nn.parallel.DistributedDataParallel(self.model, device_ids=places, gradient_as_bucket_view=True)
        self.optimizer = self._build_optimizer(job, fused=True)
        kept = self.weights() if job.settings.ema else {}
        self.ema = {name: parameter.detach().clone() for name, parameter in kept.items()}
        # As the optimizer would at its first step: a checkpoint has it all from the start.
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                kinds = engine.MOMENTUM if "momentum" in group else engine.MOMENTS
                self.optimizer.state[parameter] = {
                    "step": torch.zeros((), device=job.device),
                    **{name: torch.zeros_like(parameter) for name in kinds},
                }
        self.copy: StagedState | None = None
        self._finish_setup(job)

    def _shard_model(self, job: engine.Job) -> None:
        """FSDP2 for each block, and for what is around them.

        A block's weights are given back after its forward pass under stage 3 alone, which has no room for them. What is around the blocks
        stays: the head's backward pass comes next. FSDP2 gathers the next block while one computes: in the forward pass since the host,
        which waits once a step, is ahead of the GPU, and in the backward pass by its own order. To gather more would take memory.
        """
        mesh = self.cut.shared if self.cut else self._sharding_mesh(job)
        policy = MixedPrecisionPolicy(self.low, torch.float32)
        for block in initial.decoder_layers(self.model):
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=self.zero == 3)
        fully_shard(self.runs, mesh=mesh, mp_policy=policy, reshard_after_forward=None if self.zero == 3 else False)

    def _sharding_mesh(self, job: engine.Job) -> DeviceMesh:
        """The processes that share out the weights: all, or those of a node, in a second dimension after the nodes."""
        world = dist.get_world_size()
        if job.settings.shard_over == "all" or (of_node := int(os.environ["LOCAL_WORLD_SIZE"])) == world:
            return init_device_mesh(self.device.type, (world,))
        return init_device_mesh(self.device.type, (world // of_node, of_node), mesh_dim_names=("nodes", "node"))

    def weights(self) -> dict[str, nn.Parameter]:
        """As `engine.Engine.weights`; beside copies the masters."""
        return self.copies.masters if self.copies else super().weights()

    def _build_optimizer(self, job: engine.Job, fused: bool) -> torch.optim.Optimizer:
        optimizer = super()._build_optimizer(job, fused)
        if self.cut:
            if isinstance(optimizer, Muon):
                optimizer.matrix_group = self.cut.shared.get_group()
            split = [list(self.cut.groups_by_mesh(group)) for group in optimizer.param_groups]
            self.scales = [scale for scale, groups in zip(self.scales, split, strict=True) for _ in groups]
            optimizer.param_groups = [group for groups in split for group in groups]
        return optimizer

    def forward(self, inputs: torch.Tensor, **more: Any) -> Any:
        """As `engine.Engine.forward`; of a sequence that is shared out, this process's part."""
        if self.cut:
            more |= self.cut.position_arguments(inputs.shape[1])
        with self.mixed_precision():
            return self.runs(input_ids=inputs, use_cache=False, **more)

    def mixed_precision(self) -> contextlib.AbstractContextManager[Any]:
        """Around a forward pass whose weights are fp32: without ZeRO in bf16 or fp16, unless there are copies of the weights."""
        if not self.casts:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.low)

    def step(
        self, batch: Batch, rate: float, fits: engine.Fits | None = None, reduce: engine.Reduce | None = None
    ) -> engine.Update:
        """As `engine.Engine.step`; a batch is the same for all processes that work on it together, and then of windows."""
        if self.cut:
            assert isinstance(batch, torch.Tensor)
            batch = self.cut.sequence_part(batch)
        if self.pipe is None:
            return super().step(batch, rate, fits, reduce)
        assert isinstance(batch, torch.Tensor)
        self.set_learning_rate(rate)
        loss = self.pipe.add_gradients(batch, self.mean_loss)
        return engine.Update(loss, None, *self._update(fits and partial(fits, loss)))

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """As `engine.Engine.evaluate`.

        Of a sequence that is shared out, each process sums over its part; all stages of a pipeline have the same.
        """
        if self.cut:
            inputs, targets = self.cut.padded_part(inputs, 0), self.cut.padded_part(targets, IGNORE)
        evaluate = self.pipe.evaluate if self.pipe else super().evaluate
        losses = evaluate(inputs, targets)
        for module in self.runs.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # without a backward pass, whole weights would stay in memory
        return losses

    def _begin_micro_batch(self, last: bool) -> None:
        if self.copies:
            self.copies.begin_micro_batch(last)
        elif isinstance(self.runs, nn.parallel.DistributedDataParallel):
            self.runs.require_backward_grad_sync = last
        elif isinstance(self.runs, FSDPModule):
            self.runs.set_is_last_backward(last)
            self.runs.set_requires_gradient_sync(last or self.zero > 1)
            self.runs.set_requires_all_reduce(last)  # between nodes, if each has all weights
            self.runs.set_reshard_after_backward(last or self.zero == 3)

    def _backward(self, loss: torch.Tensor, last: bool) -> None:
        loss = loss / self.micro_batches
        (loss * self.scaling.value if self.scaling else loss).backward()

    def _update(self, fits: Callable[[float], bool] | None) -> tuple[float | None, bool]:
        if self.cut:
            return self._update_parts(self.cut, fits)
        if self.copies:
            self.copies.finish_gradients()
        parameters = list(self.weights().values())
        total = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        total = total.full_tensor() if isinstance(total, DTensor) else total
        norm = self.read_norm(total)
        if self.scaling:
            total = total / self.scaling.value  # a power of two: exactly what `norm` is divided by
            norm = self._unscale_gradients(self.scaling, parameters, norm)
        if applied := math.isfinite(norm) and (fits is None or fits(norm)):
            if self.clipping:
                # The norm that is on the device already: to bring a number there makes the host wait once more.
                nn.utils.clip_grads_with_norm_(parameters, self.clipping, total.float())
            self.optimizer.step()
            if self.copies:
                self.copies.refresh()
        # Gradients in buckets are set to 0, not freed: new ones would lie beside the buckets.
        in_buckets = isinstance(self.runs, nn.parallel.DistributedDataParallel) or bool(
            self.copies and self.copies.buckets
        )
        self.optimizer.zero_grad(set_to_none=not in_buckets)
        return norm, applied

    @staticmethod
    def _unscale_gradients(scaling: loss_scale.LossScale, parameters: list[nn.Parameter], norm: float) -> float:
        """Take the loss scale out of the gradients, and say what their norm is without it; the scale of the next step follows.

        norm: of all processes' gradients, so that each of them does the same.
        """
        scale, finite = scaling.value, math.isfinite(norm)
        scaling.update(not finite)
        if finite:
            torch._foreach_mul_([local_part(p.grad) for p in parameters if p.grad is not None], 1 / scale)
        return norm / scale

    def _update_parts(self, cut: ModelShard, fits: Callable[[float], bool] | None) -> tuple[float | None, bool]:
        """The same where processes hold parts that are not FSDP's alone."""
        cut.reduce_gradients(self.model.named_parameters(), sharded=self.zero > 0)
        norm = cut.gradient_norm(self.model.named_parameters())
        if applied := math.isfinite(norm) and (fits is None or fits(norm)):
            if self.clipping:
                cut.clip_gradients(self.model.parameters(), norm, self.clipping)
            self.optimizer.step()
        self.optimizer.zero_grad()
        return norm, applied

    def update_ema(self, weight: float) -> None:
        """As `engine.Engine.update_ema`."""
        for name, parameter in self.weights().items():
            local_part(self.ema[name]).lerp_(local_part(parameter.detach()), weight)

    @contextlib.contextmanager
    def using_ema(self) -> Iterator[None]:
        """As `engine.Engine.using_ema`: EMA and weights change places, one parameter after another."""
        self._swap_ema()
        try:
            yield
        finally:
            self._swap_ema()

    def _swap_ema(self) -> None:
        for name, parameter in self.weights().items():
            weight, ema = local_part(parameter.detach()), local_part(self.ema[name])
            before = weight.clone()
            weight.copy_(ema)
            ema.copy_(before)
        if self.copies:
            self.copies.refresh()

    def ema_weights(self) -> engine.Weights:
        """As `master_weights`, of the EMA."""
        return self._whole_weights(self.ema)

    def _begin_ema(self) -> None:
        for name, parameter in self.weights().items() if self.ema else ():
            local_part(self.ema[name]).copy_(local_part(parameter.detach()))

    def _checkpoint_state(self) -> dict[str, torch.Tensor]:
        """Weights and optimizer state by `kind/NAME`; a process's parts where they are sharded. Of what is trained."""
        state = {}
        for name, parameter in self.weights().items():
            if not parameter.requires_grad:
                continue
            state[f"{engine.WEIGHT}/{name}"] = parameter.detach()
            state |= {f"{kind}/{name}": value for kind, value in self.optimizer.state[parameter].items()}
        state |= {f"{engine.WEIGHT}/{name}": value for name, value in routers.selection_biases(self.model).items()}
        return state | {f"{EMA}/{name}": value for name, value in self.ema.items()}

    def save(self, folder: Path) -> None:
        """Safetensors, whose keys are `kind/NAME`: a part of each process."""
        malloc_tuning.release_free_pages()  # whole weights may be gathered next, beside them
        torch_files.write_state(self._checkpoint_state(), folder)

    def stage_checkpoint(self) -> Callable[[Path], list[str]]:
        """As `engine.Engine.stage_checkpoint`: the files are those of `save`."""
        malloc_tuning.release_free_pages()  # the copy would be beside them
        state = self._checkpoint_state()
        self.copy = self.copy or StagedState(state)
        self.copy.copy_state(state)
        return self.copy.write

    def load(self, checkpoint: Checkpoint, folder: Path) -> None:
        """A checkpoint of any engine, by any number of processes under any stage."""
        state = self._checkpoint_state()
        if checkpoint.engine == "torch":
            all_keys = (
                state.keys()
                if self.cut is None
                else {key for keys in self.cut.gather_stages(list(state)) for key in keys}
            )
            has_ema = torch_files.read_state(state, all_keys, checkpoint.path, folder)
        else:
            names = {name for name, _ in self.model.named_parameters()}
            has_ema = torch_files.adopt_tensors(
                state, names, saved_parameters(checkpoint, self.names, folder), checkpoint.path
            )
        if self.copies:
            self.copies.refresh()
        if not has_ema:  # of a run without, it begins here
            self._begin_ema()

    def master_weights(self) -> engine.Weights:
        """Each parameter's name and fp32 master weights, whole, on the CPU."""
        every = self.weights().items()
        return self._whole_weights({name: value.detach() if value.requires_grad else value for name, value in every})

    def _whole_weights(self, tensors: dict[str, torch.Tensor]) -> engine.Weights:
        """Each parameter's name and what all processes together have for it. tensors: this process's."""
        stages = self.cut.gather_stages(list(tensors)) if self.cut else [list(tensors)]
        for name, shape in self.names.items():
            value = whole_tensor(tensors[name]) if name in tensors else torch.empty(shape, device=self.device)
            if self.cut and len(stages) > 1:
                holder = next(number for number, stage in enumerate(stages) if name in stage)
                value = self.cut.from_stage(value.clone(memory_format=torch.contiguous_format), holder)
            yield name, value.cpu().clone()
        for name, value in routers.selection_biases(self.model).items():
            yield name, value.cpu().clone()


def whole_tensor(value: torch.Tensor) -> torch.Tensor:
    """A tensor with the parts of all processes, fp32; of a weight in four bits what they stand for. A collective call."""
    if (state := getattr(value, "quant_state", None)) is not None:
        from bitsandbytes.functional import dequantize_4bit

        value = dequantize_4bit(value.data, state)
    return (value.full_tensor() if isinstance(value, DTensor) else value).float()
