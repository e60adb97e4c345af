"""Put whole tensors, a checkpoint's neutral form, into a DeepSpeed engine: each process takes the parts that it holds.

So DeepSpeed goes on from a checkpoint of engine torch, and from its own under another ZeRO stage. A universal checkpoint of DeepSpeed
(https://arxiv.org/abs/2406.18820) has the same content in files; here none is written. Memory: one parameter with its state.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from crawl2llm.core.errors import InputError
from crawl2llm.training import engine
from crawl2llm.training.ema import EMA
from crawl2llm.training.engines.deepspeed_ema import Parts

STEP = "step"


class ShardedModel(Protocol):
    """What tensors are put into: a model as DeepSpeed has shared it out."""

    engine: Any  # DeepSpeed's own
    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    zero: int  # its stage
    low: bool  # whether it computes in bf16 or fp16
    sizes: dict[str, torch.Size]  # of the whole parameters, by name
    ema: Parts

    def put_weights(self, values: engine.Weights) -> None: ...

    def begin_ema(self) -> None: ...


@dataclass(frozen=True)
class Place:
    """This process's part of a parameter: `count` elements from `first` on, which lie in `master` from `start` on."""

    master: torch.Tensor  # fp32, what the optimizer moves: the parameter's own, or this process's part of a whole group
    start: int
    first: int
    count: int

    def own_part(self) -> torch.Tensor:
        """The part itself, fp32, one dimension: a view."""
        return self.master.detach().view(-1)[self.start : self.start + self.count]

    def copy_part(self, whole: torch.Tensor, into: torch.Tensor) -> None:
        """Copy the part out of a whole tensor into `into`, which is laid out as `master` is."""
        into.view(-1)[self.start : self.start + self.count] = whole.reshape(-1)[self.first : self.first + self.count]


def masters_of(engine: Any) -> dict[int, torch.Tensor]:
    """The fp32 weights of a DeepSpeed engine in bf16 or fp16 without ZeRO, by the `id` of their parameter."""
    low, high = engine.optimizer.fp16_groups, engine.optimizer.fp32_groups
    return {id(p): m for ps, ms in zip(low, high, strict=True) for p, m in zip(ps, ms, strict=True)}


def places_by_name(built: ShardedModel) -> dict[str, Place]:
    """The parts that this process holds, by the parameter's name; a process may hold nothing of one."""
    masters = masters_of(built.engine) if built.low and built.zero == 0 else {}
    own_places = {}
    for name, parameter in built.model.named_parameters():
        weight: Any = parameter
        if built.zero == 0:
            own_places[name] = Place(masters.get(id(weight), weight), 0, 0, weight.numel())
        elif built.zero == 3:
            optimizer, size = weight._z3_optimizer, weight.ds_tensor.ds_numel
            group, start, _ = optimizer.grad_position[optimizer.get_param_id(weight)]
            first = dist.get_rank() * size
            if (count := min(size, weight.ds_numel - first)) > 0:
                own_places[name] = Place(optimizer.fp32_partitioned_groups_flat[group], start, first, count)
        elif (mapping := weight._hp_mapping) is not None:
            master_address, weight_address = mapping.hp_fragment_address, mapping.lp_fragment_address
            (flat,) = built.optimizer.param_groups[mapping.param_group_index]["params"]
            own_places[name] = Place(flat, master_address.start, weight_address.start, weight_address.numel)
    return own_places


@torch.no_grad()
def adopt_tensors(built: ShardedModel, neutral_form: engine.Saved, path: Path) -> None:
    """Take each parameter's weights and optimizer state from the neutral form of the checkpoint at `path`. A collective call.

    Raises InputError, the same on every process, where the state is that of another optimizer, or steps were counted apart that ZeRO
    counts together.
    """
    own_places, ema_parts = places_by_name(built), defaultdict(list)
    for (name, first), part in built.ema.items():
        ema_parts[name].append((first, part))
    kinds = _state_kinds(built)
    steps: set[float] = set()
    has_ema = False
    for name, tensors in neutral_form:
        if difference := (tensors.keys() - {engine.WEIGHT, EMA}) ^ {STEP, *kinds[name]}:
            raise InputError(engine.other_optimizer_text(path, f"{min(difference)}/{name} is not in both"))
        steps.add(float(tensors[STEP]))
        if name in own_places:
            _fill_parameter(built, own_places[name], tensors, kinds[name])
        for first, part in ema_parts[name] if EMA in tensors else ():
            part.copy_(tensors[EMA].reshape(-1)[first : first + part.numel()])
        has_ema = has_ema or EMA in tensors
        built.put_weights(iter([(name, tensors[engine.WEIGHT].reshape(built.sizes[name]))]))
    if len(steps) > 1 and built.zero:
        raise InputError(
            f"{path} has parameters that were updated in {min(steps):,.0f} and in {max(steps):,.0f} steps, and ZeRO counts one number for "
            "all: set pretrain.train.engine to torch, or pretrain.train.zero_stage to 0"
        )
    if built.zero in (1, 2):  # a process may hold nothing of a group but what fills it up
        for group in built.optimizer.param_groups:
            _optimizer_state(built, group["params"][0], engine.MOMENTS, max(steps))
    if not has_ema:  # of a run without: it begins here
        built.begin_ema()


def _state_kinds(built: ShardedModel) -> dict[str, tuple[str, ...]]:
    """The optimizer's tensors of each parameter, by its name."""
    if built.zero:  # a group's parameters are one; Muon needs zero_stage 0
        return dict.fromkeys(built.sizes, engine.MOMENTS)
    own_places = places_by_name(built)
    turned = {id(p) for group in built.optimizer.param_groups if "momentum" in group for p in group["params"]}
    return {
        name: engine.MOMENTUM if id(place.master) in turned else engine.MOMENTS for name, place in own_places.items()
    }


def _fill_parameter(
    built: ShardedModel, place: Place, tensors: dict[str, torch.Tensor], kinds: tuple[str, ...]
) -> None:
    """Fill this process's part of a parameter's fp32 weights and of its state."""
    state = _optimizer_state(built, place.master, kinds, float(tensors[STEP]))
    for kind in kinds:
        place.copy_part(tensors[kind], state[kind])
    place.copy_part(tensors[engine.WEIGHT], place.master)


def _optimizer_state(
    built: ShardedModel, master: torch.Tensor, kinds: tuple[str, ...], step: float
) -> dict[str, torch.Tensor]:
    """The optimizer's state of what it moves, after `step` updates; of zeros where there has been none."""
    state: dict[str, torch.Tensor] = built.optimizer.state[master]
    fused = built.optimizer.defaults.get("fused")
    state.setdefault(STEP, torch.zeros((), device=master.device if fused else "cpu")).fill_(step)
    for kind in kinds:
        if kind not in state:
            state[kind] = torch.zeros_like(master)
    return state
