"""A model of which each process holds a part: matrices by the plans of transformers, stages of layers, experts; and its gradients.

`Degrees` (training/parallel.py) says over how many processes. Tensor and expert parallelism are those of transformers
(transformers.distributed), whose parameters are DTensors; so every parameter knows which part of the whole it is, and a checkpoint holds
it under its name with its whole shape.
"""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.distributed.pipeline_parallel import PipelineIdentityLayer, PipelineStage
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

from crawl2llm.training.engines import ulysses
from crawl2llm.training.muon import local_part
from crawl2llm.training.parallel import Degrees, Place

# Its hook adds up the gradient of a norm over the tensor group after each micro-batch, with what was added up before: wrong where
# micro-batches are accumulated (transformers 5.23). It is done here, once a step.
GRADIENT_SUM_PLAN = "replicated_with_grad_allreduce"
BUCKET = 64 << 20  # bytes that are reduced in one piece
GATHERING = "torch.distributed.tensor._redistribute"  # warns that FSDP over cut matrices gathers them in two steps


class ModelShard:
    """The groups that this process belongs to, and its part of a model. Built by all processes together."""

    def __init__(self, degrees: Degrees, device: torch.device) -> None:
        self.degrees, self.device = degrees, device
        logging.getLogger(GATHERING).setLevel(logging.ERROR)
        # Logits become their gradient in place (training/fused_cross_entropy.py), but as a detached tensor: FSDP's hook stays where it is.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view", category=UserWarning)
        self.place = Place(dist.get_rank(), dist.get_world_size(), degrees)
        data = self.place.data_processes
        parts = (degrees.pipeline, data * degrees.sequence, degrees.tensor)
        mesh = init_device_mesh(device.type, parts, mesh_dim_names=("pipeline", "shared", "tensor"))
        self.pipeline, self.shared, self.tensor = mesh["pipeline"], mesh["shared"], mesh["tensor"]
        self.stage = PipelineStage(self.pipeline)
        self.offset = 0  # the number of this process's part of a sequence
        if degrees.sequence > 1:
            sequence_sizes = (degrees.pipeline, data, degrees.sequence, degrees.tensor)
            sequence_names = ("pipeline", "data", "sequence", "tensor")
            self.sequence = init_device_mesh(device.type, sequence_sizes, mesh_dim_names=sequence_names)["sequence"]
            self.offset = self.sequence.get_local_rank()
        if degrees.expert > 1:
            sizes = (degrees.pipeline, data * degrees.sequence // degrees.expert, degrees.expert, degrees.tensor, 1)
            names = ("pipeline", "replicas", "expert", "tensor", "alone")
            experts = init_device_mesh(device.type, sizes, mesh_dim_names=names)
            self.expert, self.replicas, self.alone = experts["expert"], experts["replicas"], experts["alone"]
        self.ends = self._end_stages(mesh) if degrees.pipeline > 1 else None
        self.late: list[str] = []
        self.tied = ""

    @staticmethod
    def _end_stages(mesh: DeviceMesh) -> dist.ProcessGroup | None:
        """The group of the first and the last stage of this process's pipeline; None for one in between. A collective call."""
        ends = None
        for column in mesh.mesh.flatten(1).T.tolist():
            group = dist.new_group([column[0], column[-1]])
            ends = group if dist.get_rank() in (column[0], column[-1]) else ends
        return ends

    def apply(self, model: PreTrainedModel) -> None:
        """Leave of an empty model what this process holds."""
        if self.degrees.pipeline > 1:
            self._cut_to_stage(model)
        if self.degrees.tensor > 1:
            self._cut_matrices(model)
        if self.degrees.expert > 1:
            from transformers.distributed.expert_parallel import (
                apply_expert_parallelism,
            )  # 5.22 is the first that has it

            plan = model._expand_parallel_plan(model.ep_plan)
            # Each process of a tensor group sends all its tokens: alone, and not a slice of them, so that gradients are whole in each.
            apply_expert_parallelism(model, self.expert, self.alone, plan)
        if self.degrees.sequence > 1:
            model.config._attn_implementation = ulysses.register_attention(self.sequence.get_group())
        model.tie_weights()  # the parameters above are new ones

    def _cut_matrices(self, model: PreTrainedModel) -> None:
        """Cut matrices by the plan, except experts: torch.distributed.checkpoint refuses chunks of a matrix that packs two."""
        parameters = dict(model.named_parameters())  # without a tied head's
        modules = {name for name, module in model.named_modules() if not isinstance(module, PipelineIdentityLayer)}
        plan = {name: how for name, how in model._expand_parallel_plan(model.tp_plan).items() if ".experts" not in name}
        self.late = [name for name, how in plan.items() if how == GRADIENT_SUM_PLAN and name in parameters]
        present = parameters.keys() | modules
        applied = {name: how for name, how in plan.items() if how != GRADIENT_SUM_PLAN and name in present}
        apply_tensor_parallelism(model, self.tensor, applied)

    def _cut_to_stage(self, model: PreTrainedModel) -> None:
        """Put the identity in the place of what other stages have. A table that is the head too is in the first stage and in the last."""
        base = getattr(model, model.base_model_prefix)
        start, end = self.stage.layer_range_for_rank(self.stage.pp_rank, len(base.layers))
        tied = next(
            (name for name, value in model.named_parameters() if value is model.get_output_embeddings().weight), ""
        )
        self.tied = tied if tied.startswith(model.base_model_prefix) else ""
        for number in range(len(base.layers)):
            if not start <= number < end:
                base.layers[number] = PipelineIdentityLayer()
        if not self.stage.pp_is_first_stage and not (self.tied and self.stage.pp_is_last_stage):
            base.embed_tokens = PipelineIdentityLayer()
        if not self.stage.pp_is_last_stage:
            base.norm = PipelineIdentityLayer()
            model.lm_head = PipelineIdentityLayer()
            model._tied_weights_keys = {}  # nothing to tie: the other one is elsewhere

    def sequence_part(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of windows [..., n + 1] those tokens that this process reads and predicts: [..., n / sequence + 1]."""
        size = (tokens.shape[-1] - 1) // self.degrees.sequence
        return tokens[..., self.offset * size : (self.offset + 1) * size + 1]

    def padded_part(self, tokens: torch.Tensor, value: int) -> torch.Tensor:
        """This process's part of tokens [n, length], which are filled up on the right with `value` so that they can be shared out."""
        parts = self.degrees.sequence
        filled = nn.functional.pad(tokens, (0, -tokens.shape[1] % parts), value=value)
        return filled.chunk(parts, 1)[self.offset]

    def position_arguments(self, length: int) -> dict[str, torch.Tensor]:
        """The argument `position_ids` of a model whose process reads `length` tokens of each sequence."""
        if self.degrees.sequence == 1:
            return {}
        return {"position_ids": torch.arange(length, device=self.device)[None] + self.offset * length}

    def reduce_gradients(self, named: Iterable[tuple[str, nn.Parameter]], sharded: bool) -> None:
        """Make each gradient that of the mean loss over all processes' data; sharded: FSDP has done so already."""
        with_gradient = {name: value for name, value in named if value.grad is not None}
        for parameter in with_gradient.values():
            gradient = parameter.grad
            if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:  # type: ignore[attr-defined]
                parameter.grad = gradient.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
        if not sharded:
            experts = [value for value in with_gradient.values() if self._is_expert(value)]
            rest = [value for value in with_gradient.values() if not self._is_expert(value)]
            _sum_gradients(rest, self.shared.get_group(), self.shared.size())
            if experts:  # an expert has had the tokens of its group's processes already
                _sum_gradients(experts, self.replicas.get_group(), self.shared.size())
        if self.late:
            _sum_gradients(
                [with_gradient[name] for name in self.late if name in with_gradient], self.tensor.get_group(), 1
            )
        if self.tied and self.ends and self.tied in with_gradient:
            _sum_gradients([with_gradient[self.tied]], self.ends, 1)

    def _is_expert(self, parameter: nn.Parameter) -> bool:
        return self.degrees.expert > 1 and isinstance(parameter, DTensor) and parameter.device_mesh == self.expert

    def gradient_norm(self, named: Iterable[tuple[str, nn.Parameter]]) -> float:
        """The norm of the whole gradient, of which every part counts once, whatever number of processes holds it."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for name, parameter in named:
            if parameter.grad is None:
                continue
            stages = 2 if name == self.tied else 1
            copies = stages * self.place.processes // self.degrees.pipeline // _shard_count(parameter)
            total += torch.linalg.vector_norm(local_part(parameter.grad)).double().square() / copies
        dist.all_reduce(total)
        return float(total.sqrt())

    def clip_gradients(self, parameters: Iterable[nn.Parameter], norm: float, most: float) -> None:
        """Scale gradients whose norm is `norm` so that it is `most` at most: as clip_grads_with_norm_, which takes one mesh alone."""
        torch._foreach_mul_(
            [local_part(p.grad) for p in parameters if p.grad is not None], min(1.0, most / (norm + 1e-6))
        )

    def groups_by_mesh(self, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A group of the optimizer as several, of which each has parameters of one mesh: a fused update takes no others together."""
        by_mesh = defaultdict(list)
        for parameter in group["params"]:
            by_mesh[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
        for parameters in by_mesh.values():
            yield {**group, "params": parameters}

    def gather_stages(self, value: Any) -> list[Any]:
        """What each stage of the pipeline has for `value`. A collective call."""
        values: list[Any] = [None] * self.degrees.pipeline
        dist.all_gather_object(values, value, group=self.pipeline.get_group())
        return values

    def from_stage(self, value: torch.Tensor, stage: int) -> torch.Tensor:
        """The tensor `value` of a stage, in all stages; it is changed in place. A collective call."""
        dist.broadcast(value, dist.get_global_rank(self.pipeline.get_group(), stage), group=self.pipeline.get_group())
        return value


def _shard_count(parameter: torch.Tensor) -> int:
    """Over how many processes a tensor is shared out."""
    if not isinstance(parameter, DTensor):
        return 1
    sizes = (
        parameter.device_mesh.size(number)
        for number, each in enumerate(parameter.placements)
        if not each.is_replicate()
    )
    count = 1
    for size in sizes:
        count *= size
    return count


def _sum_gradients(parameters: list[nn.Parameter], group: dist.ProcessGroup, divisor: int) -> None:
    """Add up the gradients of a group's processes, and divide: in the order of the parameters, a bucket at a time."""
    bucket: list[torch.Tensor] = []
    for number, parameter in enumerate(parameters):
        assert parameter.grad is not None
        bucket.append(local_part(parameter.grad))
        if number + 1 == len(parameters) or sum(each.numel() * each.element_size() for each in bucket) >= BUCKET:
            flat = _flatten_dense_tensors(bucket)
            dist.all_reduce(flat, group=group)
            flat /= divisor
            for gradient, summed in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
                gradient.copy_(summed)
            bucket = []
