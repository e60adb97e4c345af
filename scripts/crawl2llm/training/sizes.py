"""What `pretrain.train.model.size` stands for: the shape of a model with about so many parameters, its embeddings among them.

Hidden size and layers: the loss depends little on their ratio over a wide range (Kaplan et al. 2020, https://arxiv.org/abs/2001.08361,
section 3.1 and figure 5), so it is that of published models: 64 up to 1 billion parameters (GPT-3 125M and 760M: 768 × 12 and
1536 × 24; https://arxiv.org/abs/2005.14165, table 2.1), 96 up to 5 billion (TinyLlama: 2048 × 22, https://arxiv.org/abs/2401.02385), 128
above (Llama 7B and 13B: 4096 × 32, 5120 × 40; https://arxiv.org/abs/2302.13971). Heads of 64, and of 128 above a hidden size of 2048,
which is a multiple of 64, of 128 from 512 on and of 512 above 2048, as matrix units of GPUs like it; from 1 billion parameters on, four
heads share keys and values (Llama 3 8B, https://arxiv.org/abs/2407.21783: 32 heads, 8 for keys and values). The feed-forward layer is
8/3 of the hidden size in multiples of 64 (Llama).
"""

from __future__ import annotations

import math
import re

from crawl2llm.core.errors import InputError
from crawl2llm.core.settings import AUTO
from crawl2llm.training.parameters import count_model_parameters
from crawl2llm.training.pretraining_settings import ResolvedModel, TrainModel

KEY = "pretrain.train.model.size"
PATTERN = re.compile(r"(\d+(?:\.\d+)?)([KMB])")
UNITS = {"K": 1e3, "M": 1e6, "B": 1e9}
RATIOS = ((1e9, 64), (5e9, 96), (math.inf, 128))  # hidden size ÷ layers of models below so many parameters
WEIGHT = 0.1  # of the ratio's distance beside the size's, both as natural logarithms
FAR = 0.25  # keys that are set may leave no shape nearer than this, and then the size is refused
KV_SHARING_SIZE = 1e9  # parameters from which heads share keys and values
WIDEST = 32_768
SHAPE = ("hidden_size", "layers", "heads", "kv_heads", "intermediate_size")


def parse_size(size: str | int) -> float:
    """`125M` → 125,000,000. Raises InputError for what is no such text."""
    if isinstance(size, int):
        return float(size)
    match = PATTERN.fullmatch(size)
    if match is None:
        raise InputError(f"{KEY} is {size!r}: write a number with K, M or B, such as 125M or 1.5B")
    return float(match[1]) * UNITS[match[2]]


def feed_forward(hidden: int) -> int:
    """8/3 of the hidden size, in multiples of 64 (Llama, https://arxiv.org/abs/2302.13971)."""
    return -(-hidden * 8 // 3 // 64) * 64


def choose_kv_heads(heads: int, wanted: float) -> int:
    """Key and value heads: as many as heads below a billion parameters, else the largest divisor that is at most a quarter."""
    if wanted < KV_SHARING_SIZE:
        return heads
    return max(n for n in range(1, max(1, heads // 4) + 1) if heads % n == 0)


def hidden_sizes(model: TrainModel) -> list[int]:
    """The hidden sizes to choose from: the one that is set, else what the heads that are set divide, else rounder numbers with width."""
    if model.hidden_size != AUTO:
        return [model.hidden_size]
    heads, kv = (number if isinstance(number, int) else 0 for number in (model.heads, model.kv_heads))
    if heads or kv:
        unit = 2 * heads or 64 * kv
        return list(range(unit, max(WIDEST, unit) + 1, unit))
    return [*range(64, 512, 64), *range(512, 2048, 128), *range(2048, WIDEST + 1, 512)]


def candidate_shapes(model: TrainModel, wanted: float) -> list[ResolvedModel]:
    """Every shape that the keys that are set allow; `layers` may still be `auto`."""
    candidates = []
    for width in hidden_sizes(model):
        heads, kv_heads, intermediate_size = model.heads, model.kv_heads, model.intermediate_size
        if heads == AUTO:
            near = max(1, width // (64 if width <= 2048 else 128))
            kv = kv_heads if isinstance(kv_heads, int) else 1
            fitting = next((n for n in range(near, 0, -1) if width % (2 * n) == 0 and n % kv == 0), None)
            if fitting is None:
                continue
            heads = fitting
        if kv_heads == AUTO:
            kv_heads = choose_kv_heads(heads, wanted)
        if intermediate_size == AUTO:
            intermediate_size = feed_forward(width)
        values = {
            "hidden_size": width,
            "heads": heads,
            "kv_heads": kv_heads,
            "intermediate_size": intermediate_size,
            # matters to GPT-2 alone
            "context": model.context if isinstance(model.context, int) else 0,
        }
        candidates.append(ResolvedModel.model_construct(**{**dict(model), **values}))
    return candidates


def fill_shape(model: TrainModel, vocabulary: int) -> TrainModel:
    """`pretrain.train.model` with a number for each key of SHAPE that is `auto`, so that it has about `size` parameters.

    Keys that are set stay. Raises InputError if these and the vocabulary leave no shape within a quarter of the size.
    """
    assert model.size is not None
    wanted = parse_size(model.size)
    ratio = next(value for below, value in RATIOS if wanted < below)
    best: tuple[float, float, ResolvedModel] | None = None
    for shape in candidate_shapes(model, wanted):
        if model.layers == AUTO:
            one_layer, two_layers = (
                count_model_parameters(shape.model_copy(update={"layers": n}), vocabulary).total for n in (1, 2)
            )
            layers = max(1, round(1 + (wanted - one_layer) / (two_layers - one_layer)))
            shape = shape.model_copy(update={"layers": layers})
        off = abs(math.log(count_model_parameters(shape, vocabulary).total / wanted))
        rank = off + WEIGHT * abs(math.log(shape.hidden_size / shape.layers / ratio))
        if best is None or rank < best[0]:
            best = (rank, off, shape)
    if best is None or best[1] > FAR:
        set_keys = {key: value for key in SHAPE if (value := getattr(model, key)) != AUTO}
        constraint = f"{', '.join(f'{key} {value}' for key, value in set_keys.items())} and " if set_keys else ""
        near = f"; the nearest has {count_model_parameters(best[2], vocabulary).total:,}" if best else ""
        raise InputError(
            f"{KEY} is {model.size}, and {constraint}a vocabulary of {vocabulary:,} leave no model with about so many parameters{near}: "
            f"set another size, {'fewer of these keys' if set_keys else 'or a smaller tokenize.train.vocabulary'}"
        )
    return model.model_copy(update={key: getattr(best[2], key) for key in SHAPE})
