"""The routers of a mixture of experts in training: which experts they choose, a loss of their logits, and biases that balance them.

Routers are the modules whose logits transformers records (utils/output_capturing.py). Hooks keep what they return in a forward pass of
training; the sums are made behind it, so that a layer that is computed again in the backward pass counts once. No sum waits for the device.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import output_capturing

from crawl2llm.core.errors import InputError
from crawl2llm.training import mixture

BIAS = "e_score_correction_bias"  # transformers' name of a bias by which experts are chosen and not weighted
# What they record as logits are probabilities (gemma4), logits of keys that experts share (doge), or also that of computing nothing (zaya).
OTHER_OUTPUT_TYPES = ("gemma4", "gemma4_text", "doge", "zaya")
SECTION = "pretrain.train"


def selection_biases(model: nn.Module) -> dict[str, torch.Tensor]:
    """Biases that routers add to their scores to choose experts, by name: buffers of a model, which no gradient moves."""
    return {name: value for name, value in model.named_buffers() if name.rpartition(".")[2] == BIAS}


def trained_values(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and selection biases by name: what checkpoints, exports and starts of a model have."""
    return dict(model.named_parameters()) | selection_biases(model)


def logits_place(hook: Any) -> int | None:
    """Where a router's output has its logits, if this forward hook is the one by which transformers records them; else None."""
    if getattr(hook, "__module__", "") != output_capturing.__name__:
        return None
    values = inspect.getclosurevars(hook).nonlocals
    return int(values["index"]) if values["key"] == "router_logits" else None


def find_routers(model: PreTrainedModel) -> list[tuple[str, nn.Module, int]]:
    """(name, router, where its output has the logits) of a model, in the order of its layers.

    jetmoe's attention returns the logits of the router inside of it, and transformers records both: the inner module is the router.
    """
    base: Any = model.base_model
    output_capturing.maybe_install_capturing_hooks(base)
    recorded = [
        (name, module, place)
        for name, module in base.named_modules()
        for hook in module._forward_hooks.values()
        if (place := logits_place(hook)) is not None
    ]
    names = [name for name, _, _ in recorded]
    return [entry for entry in recorded if not any(name.startswith(f"{entry[0]}.") for name in names)]


def bias_of_router(model: PreTrainedModel, name: str) -> torch.Tensor | None:
    """The selection bias of a router of `find_routers`, in the router or in the module around it; None without."""
    biases = selection_biases(model.base_model)
    return next(
        (biases[key] for place in (name, name.rpartition(".")[0]) if (key := f"{place}.{BIAS}") in biases), None
    )


def check_routers(model: PreTrainedModel, engine: str, z_loss: float, bias_rate: float, where: str = SECTION) -> None:
    """InputError if a model, with or without values, cannot be trained so.

    engine, z_loss, bias_rate: of the keys `engine`, `router_z_loss` and `router_bias_rate`; where: their section of the config.
    """
    kind = model.config.model_type
    if engine == "deepspeed" and selection_biases(model):
        raise InputError(
            f"{where}.engine is deepspeed, which rounds the routers' {BIAS} of type {kind!r} and loses it in checkpoints: set engine to "
            "torch"
        )
    if not z_loss and not bias_rate:
        return
    experts, routers = mixture.mixture_of(model.config), find_routers(model)
    number = experts.number if experts else 0
    sizes = {len(bias) for name, _, _ in routers if (bias := bias_of_router(model, name)) is not None}
    chooses_more = bool(number and sizes) and number not in sizes
    more = (
        f"the routers of type {kind!r} choose among {max(sizes, default=0)}, of which {number} are experts that compute"
    )
    if z_loss and (not number or not routers or kind in OTHER_OUTPUT_TYPES or chooses_more):
        why = more if chooses_more else f"transformers records no router's logits by expert in type {kind!r}"
        raise InputError(
            f"{where}.router_z_loss is {z_loss}, and {why}; types such as mixtral, olmoe, qwen3_moe and deepseek_v3 have a logit for each "
            "expert: set router_z_loss to 0"
        )
    if bias_rate and (number not in sizes or not number):
        why = more if chooses_more else f"the routers of type {kind!r} have no {BIAS} that is a buffer"
        raise InputError(
            f"{where}.router_bias_rate is {bias_rate}, and {why}; types such as deepseek_v3, glm4_moe and exaone_moe have a bias for each "
            "expert: set router_bias_rate to 0"
        )


class Routers:
    """What the routers of a model do in training. `load`: how often each was chosen in this step, [routers, experts]."""

    def __init__(self, model: PreTrainedModel, experts: mixture.Mixture, z_loss: float, bias_rate: float) -> None:
        self.experts, self.z_loss, self.rate = experts, z_loss, bias_rate
        self.kind = model.config.model_type
        routers = find_routers(model)
        self.names = [name for name, _, _ in routers]
        self.load = torch.zeros(len(routers), experts.number, dtype=torch.int64, device=model.device)
        self.since = torch.zeros_like(self.load)  # the same since `take_load`
        biases = ((number, bias_of_router(model, name)) for number, name in enumerate(self.names))
        self.biases = {number: bias for number, bias in biases if bias is not None}
        self.recording = False
        self.outputs: list[tuple[int, torch.Tensor, torch.Tensor | None]] = []
        for number, (_, router, place) in enumerate(routers):
            # Before those of expert parallelism, which give a process's experts other numbers.
            router.register_forward_hook(self._recorder(number, place), prepend=True)

    def _recorder(self, number: int, place: int) -> Any:
        def record_output(router: nn.Module, args: Any, output: Any) -> None:
            if not self.recording:
                return
            parts = output if isinstance(output, tuple) else (output,)
            logits = parts[place]
            if logits.ndim != 2 or logits.shape[1] != self.experts.number:
                return  # not a logit for each expert, as in doge: neither counted nor in the loss (see `sum_up`)
            places = (part for part in parts if torch.is_tensor(part) and part.dtype in (torch.int32, torch.int64))
            chosen = next((part for part in places if part.ndim == 2 and len(part) == len(logits)), None)
            self.outputs.append((number, logits, chosen))

        return record_output

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """A forward pass of training: what its routers return is kept for `sum_up`."""
        self.recording, self.outputs = True, []
        try:
            yield
        finally:
            self.recording = False

    def sum_up(self, read: torch.Tensor | None) -> torch.Tensor | None:
        """Count the experts that a micro-batch's tokens chose; the mean of (log Σ exp(logits))² over its tokens and layers, with gradient.

        None without `z_loss`. read: which tokens are no padding, bool [n, length]; None: all. ST-MoE (https://arxiv.org/abs/2202.08906,
        equation 5) has this of a layer; the mean over layers is OLMoE's (https://arxiv.org/abs/2409.02060).

        Raises InputError if a key needs logits and no router gave any.
        """
        outputs, self.outputs = self.outputs, []
        if not outputs:
            if self.names and (self.z_loss or self.rate):
                raise InputError(
                    f"{SECTION}.router_z_loss is {self.z_loss} and router_bias_rate {self.rate}, and no router of this model of type "
                    f"{self.kind!r} gave a logit for each of its {self.experts.number} experts: set both to 0"
                )
            return None
        rows = None if read is None else read.flatten()
        self._count_choices(outputs, rows)
        if not self.z_loss:
            return None
        squares = torch.stack([logits.float().logsumexp(-1).square() for _, logits, _ in outputs]).mean(0)
        return squares.mean() if rows is None else (squares * rows).sum() / rows.sum()

    @torch.no_grad()
    def _count_choices(
        self, outputs: list[tuple[int, torch.Tensor, torch.Tensor | None]], rows: torch.Tensor | None
    ) -> None:
        places, number = [], self.experts.number
        for router, logits, chosen in outputs:
            experts = logits.topk(self.experts.per_token, -1).indices if chosen is None else chosen
            place = experts + router * number
            places.append((place if rows is None else place.masked_fill(~rows[:, None], -1)).flatten())
        # Integers up to 2^24 are exact in fp32. What lies below 0 is not counted.
        counts = torch.histc(torch.cat(places).float(), bins=self.load.numel(), min=0, max=self.load.numel())
        self.load += counts.view_as(self.load).to(torch.int64)

    @torch.no_grad()
    def end_step(self, applied: bool) -> None:
        """After a step's update: move the biases by `rate` toward an equal load, if weights moved. A collective call if there is a rate.

        Wang et al. 2024 (https://arxiv.org/abs/2408.15664, algorithm 1); DeepSeek-V3 (https://arxiv.org/abs/2412.19437, section 2.1.2).
        """
        self.since += self.load
        if self.rate and applied:
            dist.all_reduce(self.load)
            signs = torch.sign(self.load.sum(1, keepdim=True) - self.load * self.experts.number)
            for number, bias in self.biases.items():
                bias.add_(signs[number], alpha=self.rate)
        self.load.zero_()

    def take_load(self) -> list[list[int]]:
        """How often each expert was chosen since the last call, by router, over all processes. Waits for the device. A collective call."""
        dist.all_reduce(self.since)
        load: list[list[int]] = self.since.tolist()
        self.since.zero_()
        return load

    def load_measures(self, load: list[list[int]]) -> dict[str, float]:
        """What metrics.jsonl has of a load: of each layer the most of an expert by the mean, the most of all layers, and the share of
        experts that no token chose.
        """
        by_layer: dict[str, float] = {}
        for name, counts in zip(self.names, load, strict=True):
            if total := sum(counts):
                layer = next((part for part in name.split(".") if part.isdigit()), name)
                by_layer[layer] = max(by_layer.get(layer, 0.0), round(max(counts) * len(counts) / total, 4))
        used = [counts for counts in load if sum(counts)]
        if not used:
            return {}
        idle = sum(counts.count(0) for counts in used) / sum(map(len, used))
        measures = {"expert_load_max": max(by_layer.values()), "idle_experts": round(idle, 4)}
        return measures | {f"expert_load_max/{layer}": most for layer, most in by_layer.items()}
