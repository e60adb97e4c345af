"""Smaller models of the same kind: whole layers, attention heads and neurons of the MLP are taken out by importance.

What is important is measured on training text, in one forward pass of the model that is pruned:
- a layer by its block influence, 1 − the cosine of what goes into it and what comes out, the mean over tokens (ShortGPT, arXiv:2403.03853,
  equation 1);
- a head by the length of its output before the output projection, a neuron by the size of its activation, the mean over tokens (Minitron,
  arXiv:2407.14679, section 2.2). Heads that share keys and values go together.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress.settings import PruneSettings
from crawl2llm.training.quantized_sizes import LLAMA_LIKE

WHERE = "compress.prune"
ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


@dataclass
class Importance:
    """By layer: `layers` [n], `heads` [n, groups of heads with common keys], `neurons` [n, neurons]; fp64 on the CPU."""

    layers: torch.Tensor
    heads: torch.Tensor
    neurons: torch.Tensor


def check_architecture(config: Any) -> None:
    """InputError for a model whose layers are built otherwise."""
    if config.model_type not in LLAMA_LIKE:
        raise InputError(
            f"{WHERE}.method is 'structured', which takes models of type {', '.join(LLAMA_LIKE)}; this one is of type {config.model_type}"
        )


def head_size(config: Any) -> int:
    """The size of an attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


@torch.no_grad()
def measure_importance(model: Any, windows: torch.Tensor, batch: int) -> Importance:
    """Of each part of a model by windows of tokens, int64 [n, length], `batch` of them at a time, on the model's device."""
    config = model.config
    count, groups = config.num_hidden_layers, config.num_key_value_heads
    scores = Importance(
        *(
            torch.zeros(shape, dtype=torch.float64, device=model.device)
            for shape in ((count,), (count, groups), (count, config.intermediate_size))
        )
    )

    def add_hooks(at: int, layer: Any) -> list[Any]:
        def record_heads(_: Any, inputs: Any) -> None:
            lengths = inputs[0].double().unflatten(-1, (config.num_attention_heads, -1)).norm(dim=-1)
            scores.heads[at] += lengths.unflatten(-1, (groups, -1)).sum(-1).flatten(0, -2).sum(0)

        def record_neurons(_: Any, inputs: Any) -> None:
            scores.neurons[at] += inputs[0].double().abs().flatten(0, -2).sum(0)

        def record_influence(_: Any, inputs: Any, outputs: Any) -> None:
            out = outputs[0] if isinstance(outputs, tuple) else outputs
            scores.layers[at] += (1 - torch.cosine_similarity(inputs[0].double(), out.double(), dim=-1)).sum()

        return [
            layer.self_attn.o_proj.register_forward_pre_hook(record_heads),
            layer.mlp.down_proj.register_forward_pre_hook(record_neurons),
            layer.register_forward_hook(record_influence),
        ]

    hooks = [hook for at, layer in enumerate(model.model.layers) for hook in add_hooks(at, layer)]
    try:
        for start in range(0, len(windows), batch):
            model(windows[start : start + batch].to(model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return Importance(*(part.cpu() / windows.numel() for part in (scores.layers, scores.heads, scores.neurons)))


def best_places(scores: torch.Tensor, share: float) -> list[int]:
    """The places of the best of scores [n] in their order: a share of them, at least one; of equal ones the first."""
    number = max(1, round(share * len(scores)))
    return sorted(scores.sort(descending=True, stable=True).indices[:number].tolist())


def part_rows(places: list[int], size: int) -> torch.Tensor:
    """The rows of parts of `size` rows each: [1], 3 → 3, 4, 5."""
    return (torch.tensor(places).unsqueeze(1) * size + torch.arange(size)).flatten()


def cut_model(
    model: Any, scores: Importance, settings: PruneSettings
) -> tuple[Any, dict[str, torch.Tensor], dict[str, Any]]:
    """(configuration of the smaller model, its weights by name, what is left of the old one).

    All layers keep as many heads and neurons as each other, as the configuration of these types says it: each its own best.
    """
    config, size = copy.deepcopy(model.config), head_size(model.config)
    shared = config.num_attention_heads // config.num_key_value_heads  # heads with common keys and values
    layers = best_places(scores.layers, settings.layers)
    tensors = {name: value.detach() for name, value in model.named_parameters()}
    weights = {name: value for name, value in tensors.items() if ".layers." not in name}
    heads, neurons = [], []
    for new, old in enumerate(layers):
        groups = best_places(scores.heads[old], settings.heads)
        wide = best_places(scores.neurons[old], settings.neurons)
        heads.append(groups)
        neurons.append(wide)
        rows = {
            "q_proj": part_rows(groups, shared * size),
            "k_proj": part_rows(groups, size),
            "v_proj": part_rows(groups, size),
        }
        rows |= {"gate_proj": torch.tensor(wide), "up_proj": torch.tensor(wide)}
        columns = {"o_proj": rows["q_proj"], "down_proj": rows["up_proj"]}
        before = f"model.layers.{old}."
        for name in (name for name in tensors if name.startswith(before)):
            value, part = tensors[name], name.split(".")[-2]
            if part in rows:
                value = value[rows[part]]
            elif part in columns and value.ndim == 2:
                value = value[:, columns[part]]
            weights[f"model.layers.{new}.{name.removeprefix(before)}"] = value.contiguous()
    config.num_hidden_layers = len(layers)
    config.num_key_value_heads, config.num_attention_heads = len(heads[0]), len(heads[0]) * shared
    config.head_dim, config.intermediate_size = size, len(neurons[0])
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[old] for old in layers]
    remaining = {
        "layers": len(layers),
        "kept_layers": layers,
        "heads": config.num_attention_heads,
        "heads_before": model.config.num_attention_heads,
        "neurons": config.intermediate_size,
        "neurons_before": model.config.intermediate_size,
        "layers_before": model.config.num_hidden_layers,
        "block_influence": [round(value, 6) for value in scores.layers.tolist()],
    }
    return config, weights, remaining
