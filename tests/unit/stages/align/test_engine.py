"""Answers by an engine in slots are those that it draws together, whatever holds its weights; then it trains as if none had been drawn."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from transformers import LlamaConfig

from crawl2llm.stages.align.engine import LossEngine, engine_class
from crawl2llm.training import engine, initial, slots, varlen
from crawl2llm.training.sampling import Choice
from tests.unit.training.typed import engine_settings

CONFIG = LlamaConfig(
    vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    max_position_embeddings=64, bos_token_id=0, eos_token_id=0, architectures=["LlamaForCausalLM"],
)  # fmt: skip
CPU, END = torch.device("cpu"), 25
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [3, 4, 5], [12, 13]]


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def made(stage: int, precision: str) -> Any:
    keys = {"zero_stage": stage, "precision": precision, "engine": "torch", "learning_rate": 0.01}
    values = [(name, 8 * value.detach()) for name, value in initial.random_weights(CONFIG, 1)]
    job = engine.Job(
        config=CONFIG, settings=engine_settings(**keys), device=CPU, micro_batch=2, accumulation=1, recomputed=False,
        values=lambda: iter(values),
    )  # fmt: skip
    return engine_class("torch")(job)


def drawn(trained: LossEngine, at_once: int) -> tuple[list[list[int]], Any]:
    draws = torch.rand(len(PROMPTS), 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with trained.answer_drawer(Choice(END), CPU, at_once) as drawer:
        return [answer.ids for answer in drawer.draw(PROMPTS, draws)], drawer


@pytest.mark.parametrize(("stage", "precision"), [(0, "fp32"), (2, "fp32"), (3, "fp32"), (0, "bf16"), (1, "bf16")])
def test_an_engine_draws_in_slots_what_it_draws_together(stage: int, precision: str) -> None:
    plain, trained = made(stage, precision), made(stage, precision)
    together, drawer = drawn(trained, 0)
    assert isinstance(drawer, slots.TogetherDrawer)
    in_slots, drawer = drawn(trained, 2)
    assert isinstance(drawer, slots.SlotDrawer) and (drawer.agree is not None) == (stage == 3)
    if precision == "fp32":
        assert in_slots == together and len({len(ids) for ids in together}) > 1
    assert drawer.cache and drawer.cache.kept[0][0].dtype == (torch.float32 if precision == "fp32" else torch.bfloat16)
    assert (stage > 0) == any(isinstance(module, FSDPModule) for module in trained.model.modules())
    batch = [(torch.arange(1, 9).reshape(2, 4), torch.arange(2, 10).reshape(2, 4))]
    for _ in range(2):
        assert float(trained.step(batch, 0.01).loss) == float(plain.step(batch, 0.01).loss)


@pytest.mark.parametrize("has_value_model", [False, True])
def test_slots_have_their_own_masks_where_training_attends_without(
    monkeypatch: pytest.MonkeyPatch, has_value_model: bool
) -> None:
    """On a GPU a training's attention is varlen.attention; its masks are not those of slots. Of PPO the model has another config."""
    together, _ = drawn(made(0, "fp32"), 0)
    monkeypatch.setattr(varlen, "can_run", lambda *_: True)
    trained = made(0, "fp32")
    layer_config = trained.model.config
    if has_value_model:
        trained.model.config = copy.deepcopy(CONFIG)
        trained.model.config._attn_implementation = "sdpa"
    in_slots, drawer = drawn(trained, 2)
    assert isinstance(drawer, slots.SlotDrawer) and in_slots == together
    assert layer_config._attn_implementation == varlen.NAME, "as before, when it trains on"


def test_a_cache_has_no_more_rows_than_prompts() -> None:
    _, drawer = drawn(made(0, "fp32"), 4096)
    assert drawer.cache.slots == 5
