"""The models that checks train, by the project's own engine: their shapes, weights and settings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.training import engine, initial
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines.torch import Torch

RATE = 3e-4
# hidden size, layers, heads, key and value heads, feed-forward: a tiny one for CPUs; GPT-3's (arXiv:2005.14165, table 2.1); TinyLlama.
SIZES = {
    "tiny": (64, 2, 4, 4, 192), "125M": (768, 12, 12, 12, 2048), "350M": (1024, 24, 16, 16, 2816), "760M": (1536, 24, 16, 16, 4096),
    "1B": (2048, 22, 32, 4, 5632), "4 layers": (256, 4, 4, 2, 704), "4 wide layers": (2048, 4, 32, 4, 5632),
}  # fmt: skip


def llama_config(size: str, vocabulary: int, context: int) -> Any:
    """A Llama of SIZES, its embedding tied to its head."""
    hidden, layers, heads, kv_heads, intermediate = SIZES[size]
    return AutoConfig.for_model(
        "llama", hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocabulary, use_cache=False, max_position_embeddings=context,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip


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
) -> engine.Engine:
    """An engine with drawn weights. draw_on: the device that they are drawn on, which decides their values; that of the engine if None."""
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
            accumulation=1,
            recomputed=False,
            values=lambda: draw_weights(config, draw_on or device),
            build_model=build_model,
        )
    )


def release(place: Place) -> None:
    """Give back the memory of models that are gone, and what was compiled for them."""
    torch._dynamo.reset()  # compiled code holds the model
    gc.collect()
    if place.on_gpu:
        torch.cuda.empty_cache()
