"""What a GPU would do in a step, seen without one: on the meta device any wait for a value raises; and which attention is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, masking_utils

from crawl2llm.training import engine, initial, masking, pair_batches, varlen
from crawl2llm.training.engines.torch import Torch
from tests.unit.training.typed import engine_settings

CONTEXT = 32
SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "max_position_embeddings": CONTEXT, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
    "use_cache": False,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    torch.distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


class Unasked(Torch):
    """An engine that does not ask for the norm, which a step has to wait for once."""

    def _update(self, fits: Any) -> tuple[float | None, bool]:
        parameters = list(self.model.parameters())
        total = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        nn.utils.clip_grads_with_norm_(parameters, 1.0, total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return None, True


def built(kind: str, device: str, made: type[Torch] = Torch, more: Any = None, **changes: Any) -> Torch:
    config = AutoConfig.for_model(kind, **SHAPE | (more or {}))
    settings = engine_settings(**{"engine": "torch", "zero_stage": 0, "learning_rate": 0.01, **changes})
    on_meta: dict[str, Any] = {"values": lambda: iter(()), "fill": lambda model, *_: model}
    on_cpu: dict[str, Any] = {"values": lambda: initial.random_weights(config, 1)}
    return made(
        engine.Job(
            config=config,
            settings=settings,
            device=torch.device(device),
            micro_batch=2,
            accumulation=2,
            recomputed=False,
            **(on_meta if device == "meta" else on_cpu),
        )
    )


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("llama", {"loss_chunk": 16}),
        ("llama", {"document_masking": True}),
        ("llama", {"optimizer": "muon"}),
        ("llama", {"optimizer": "muon", "muon_precision": "bf16"}),
        ("llama", {"ema": 0.99}),
        ("mistral", {}),
        ("gpt2", {}),
    ],
)
def test_no_micro_batch_waits_for_the_device(
    kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a tensor left on the CPU."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # it knows no meta device
    engine_of = built(kind, "meta", Unasked, **changes)
    tokens = torch.zeros(2, 2, CONTEXT + 1, dtype=torch.int64, device="meta")
    assert engine_of.step(tokens, 0.01).loss.is_meta
    if "ema" in changes:
        engine_of.update_ema(0.1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, bool]]:
    """(mask, whether causal) of each call of attention."""
    found: list[tuple[Any, bool]] = []
    inner = functional.scaled_dot_product_attention

    def spy(*args: Any, attn_mask: Any = None, is_causal: bool = False, **more: Any) -> Any:
        found.append((attn_mask, is_causal))
        return inner(*args, attn_mask=attn_mask, is_causal=is_causal, **more)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    return found


@pytest.mark.parametrize(("window", "masked"), [(CONTEXT + 1, False), (CONTEXT, False), (CONTEXT - 1, True)])
def test_a_sliding_window_that_covers_the_context_needs_no_mask(asked: Any, window: int, masked: bool) -> None:
    """Without a mask a GPU takes its flash kernel. The numbers are those of the mask that says the same."""
    tokens = torch.randint(1, 64, (2, 2, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    update = built("mistral", "cpu", more={"sliding_window": window}).step(tokens, 0.01)
    assert {(mask is not None, causal) for mask, causal in asked} == {(masked, not masked)}
    whole = built("mistral", "cpu", more={"sliding_window": None}).step(tokens, 0.01)
    same = float(update.loss) == float(whole.loss) and update.norm == whole.norm
    assert same is not masked


def test_documents_are_those_that_transformers_finds() -> None:
    tokens = torch.randint(0, 4, (5, CONTEXT), generator=torch.Generator().manual_seed(0))
    places = masking.document_positions(tokens, 0)
    found = masking.document_numbers(places)
    assert torch.equal(found, masking_utils.find_packed_sequence_indices(places)) and int(found.max()) > 3
    assert not masking.document_numbers(torch.arange(CONTEXT)[None]).any()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("llama", {"document_masking": True}), ("mistral", {"document_masking": True}), ("mistral", {})],
)
def test_variable_length_attention_in_a_step(
    kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU has it, here with SDPA for each document: the step is that under masks, and validation runs as before."""
    more, tokens = (
        {"sliding_window": 6},
        torch.randint(0, 8, (2, 2, CONTEXT + 1), generator=torch.Generator().manual_seed(0)),
    )
    pieces = [(torch.arange(1, size).numpy(), size - 4, 0) for size in (9, 7, 12, 8)]
    packed = [pair_batches.packed_micro_batch([pieces[:2], pieces[2:]], 0), pair_batches.packed_micro_batch([], 0)]
    updates, held_out = [], []
    for can_run in (False, True):
        monkeypatch.setattr(varlen, "can_run", lambda *_, can_run=can_run: can_run)
        made = built(kind, "cpu", more=more, **changes)
        for batch in (tokens, packed):
            if batch is packed:
                made.border = None
            made.expect_documents(batch)
            update = made.step(batch, 0.01)
            updates.append((float(update.loss), update.norm))
        assert (made.model.config._attn_implementation == varlen.NAME) == can_run
        held_out.append(built(kind, "cpu", more=more, **changes).evaluate(tokens[0, :, :-1], tokens[0, :, 1:]))
    assert updates[2:] == [pytest.approx(each, abs=2e-5) for each in updates[:2]]
    assert torch.equal(*held_out)


def test_variable_length_attention_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(varlen, "can_run", lambda *_: True)
    made = built("mistral", "meta", Unasked, more={"sliding_window": 6}, document_masking=True)
    made.expect_documents(torch.zeros(2, 2, CONTEXT + 1, dtype=torch.int64))
    assert made.room == 2 * CONTEXT
    assert made.step(torch.zeros(2, 2, CONTEXT + 1, dtype=torch.int64, device="meta"), 0.01).loss.is_meta
