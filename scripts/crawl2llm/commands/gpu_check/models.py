"""The models that checks train, by the project's own engine: their shapes, weights and settings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.training import engine, float8, initial
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.prediction.checked_models import SIZES as SIZES
from crawl2llm.training.prediction.checked_models import llama_config as llama_config

RATE = 3e-4


def draw_weights(config: Any, device: Any, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Weights of the usual size, drawn on the device: the real ones of a billion parameters take a CPU half a minute."""
    chance, small = torch.Generator(device).manual_seed(seed), deepcopy(config)
    for name, value in initial.empty_model(config).named_parameters():
        ones = torch.ones(value.shape, device=device)
        yield name, ones if value.ndim == 1 else torch.randn(value.shape, device=device, generator=chance) * 0.02
    small.num_hidden_layers, small.vocab_size = 1, 8  # rotary positions are the same
    yield from ((name, value.to(device)) for name, value in initial.empty_model(small, "cpu").named_buffers())


def engine_settings(**changes: Any) -> EngineSettings:
    """Settings of a training by torch's engine, with these changes."""
    usual: dict[str, Any] = {
        "engine": "torch", "zero_stage": 0, "precision": "bf16", "learning_rate": RATE, "schedule": "constant", "warmup": 0.0,
        "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "gradient_clipping": 1.0, "loss_scale_power": 10,
    }  # fmt: skip
    return EngineSettings(**usual | changes)


def build_engine(
    config: PreTrainedConfig,
    settings: EngineSettings,
    device: torch.device,
    micro_batch: int,
    draw_on: Any = None,
    build_model: Callable[[], PreTrainedModel] | None = None,
    **more: Any,
) -> engine.Engine:
    """An engine with drawn weights. draw_on: the device that they are drawn on, which decides their values; that of the engine if None.

    more: further fields of the engine's Job, in the place of one micro-batch a step and nothing recomputed.
    """
    kind: type[engine.Engine] = Torch
    if settings.engine != "torch":
        from crawl2llm.training.engines.by_name import ENGINES

        kind = ENGINES[settings.engine]
    return kind(
        engine.Job(
            config=config,
            settings=settings,
            device=device,
            micro_batch=micro_batch,
            values=lambda: draw_weights(config, draw_on or device),
            build_model=build_model,
            **{"accumulation": 1, "recomputed": False, **more},
        )
    )


def why_no_eight_bits(place: Place) -> str:
    """Why no model trains with `precision: fp8` here; "" if one does."""
    if not (place.sheet and place.sheet.fp8):
        return "no products of eight bits here"
    return "" if float8.has_torchao() else "torchao is not installed"


def release(place: Place) -> None:
    """Give back the memory of models that are gone, and what was compiled for them."""
    torch._dynamo.reset()  # compiled code holds the model
    gc.collect()
    if place.on_gpu:
        torch.cuda.empty_cache()
