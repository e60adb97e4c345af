"""Stage 0 of the engine torch without autocast: the copies, the buckets of their gradients, and what other stages compute."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoConfig

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, engine, initial
from crawl2llm.training.engines import weight_copies
from crawl2llm.training.engines.torch import Torch
from tests.unit.training.typed import engine_settings, train_settings


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_gradients_are_reduced_in_fp32_and_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In several buckets, after the last micro-batch alone, also of a parameter that has no part in the loss."""
    reduced: list[torch.Tensor] = []

    class Work:
        def wait(self) -> None:
            reduced[-1].mul_(1)

    def all_reduce(bucket: torch.Tensor, async_op: bool) -> Work:
        reduced.append(bucket)
        return Work()

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(weight_copies, "BUCKET", 200)
    torch.manual_seed(0)
    model = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("first", "unused", "last")})
    plain = {name: value.detach().clone() for name, value in model.named_parameters()}
    copies = weight_copies.WeightCopies(model, torch.bfloat16, 2)
    assert [len(bucket) for bucket in copies.buckets] == [8 + 64, 8 + 64, 8 + 64]
    assert all(torch.equal(copies.masters[name], value) for name, value in plain.items())
    inputs = torch.randn(2, 4, 8).bfloat16()
    for step in range(2):
        expected = torch.zeros(8, 8)
        for number, part in enumerate(inputs):
            copies.begin_micro_batch(number == 1)
            model["last"](model["first"](part)).float().square().mean().backward()
            expected += torch.autograd.grad(
                model["last"](model["first"](part)).float().square().mean(), [model["first"].weight]
            )[0].float()
            assert len(reduced) == (3 * step if number == 0 else 3 * step + 1)  # the unused one keeps the third waiting
        copies.finish_gradients()
        assert [bucket.data_ptr() for bucket in reduced[3 * step :]] == [b.data_ptr() for b in copies.buckets]
        gradient = copies.masters["first.weight"].grad
        assert gradient is not None and gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, expected / 2, rtol=0, atol=0)
        assert all(value.grad is None for value in model.parameters())
        for master in copies.masters.values():
            assert master.grad is not None
            master.grad.zero_()
            master.data.add_(1)
        copies.refresh()
        assert all(torch.equal(value, copies.masters[name].bfloat16()) for name, value in model.named_parameters())


def trained(stage: int, **more: Any) -> tuple[list[float], dict[str, torch.Tensor], Torch]:
    """(losses of steps and evaluations, one of them by the EMA; master weights; engine) of a tiny Llama in bf16."""
    config = AutoConfig.for_model(
        "llama", hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=101, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    settings = engine_settings(
        engine="torch",
        precision="bf16",
        zero_stage=stage,
        ema=0.5,
        gradient_clipping=0.5,
        autocast=False,
        learning_rate=0.01,
        **more,
    )
    built = Torch(
        engine.Job(
            config=config, settings=settings, device=torch.device("cpu"), micro_batch=2, accumulation=2, recomputed=False,
            values=partial(initial.random_weights, config, 7),
        )
    )  # fmt: skip
    losses = []
    for step in range(3):
        tokens = torch.randint(0, 101, (2, 2, 17), generator=torch.Generator().manual_seed(step))
        losses.append(float(built.step(tokens, 0.01, lambda *_, step=step: step != 1).loss))  # one update is skipped
        built.update_ema(0.5)
        with built.using_ema():
            losses.append(float(built.evaluate(tokens[0, :, :-1], tokens[0, :, 1:]).sum()))
    losses.append(float(built.evaluate(tokens[0, :, :-1], tokens[0, :, 1:]).sum()))
    return losses, dict(built.master_weights()), built


@pytest.mark.parametrize("chunk", [0, 16])
def test_stage_0_is_stage_1(alone: None, chunk: int) -> None:
    """To the byte, in one process: FSDP2 computes with copies too. With an EMA, a skipped update and the loss in pieces."""
    losses, weights, built = trained(0, loss_chunk=chunk)
    expected_losses, expected_weights, _ = trained(1, loss_chunk=chunk)
    assert losses == expected_losses
    assert all(torch.equal(value, expected_weights[name]) for name, value in weights.items())
    assert {value.dtype for value in built.model.parameters()} == {torch.bfloat16}
    assert {value.dtype for value in weights.values()} == {torch.float32}


def test_a_model_that_is_gone_leaves_nothing(alone: None) -> None:
    """`crawl2llm tune` and `gpu-check` build one engine after the other: seen on an H200, masters and copies of the first stayed."""
    built = trained(0)[2]
    values = [weakref.ref(value) for value in [*built.model.parameters(), *built.weights().values()]]
    del built
    gc.collect()
    assert not any(value() is not None for value in values)


def test_not_with_parts_of_matrices() -> None:
    parts = {"engine": "torch", "zero_stage": 0, "precision": "bf16", "autocast": False, "processes": 2}
    train = train_settings(**parts, parallel={"tensor": 2}, model={"heads": 4, "kv_heads": 4, "hidden_size": 64})
    with pytest.raises(InputError, match=r"autocast is false, and pretrain\.train\.parallel is set .* zero_stage to 1"):
        checks.check_settings(train, 2)
