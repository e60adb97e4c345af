"""Variable-length attention: documents and sliding windows as under a mask, its shapes, and what it does not ask the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crawl2llm.training import initial, layers, masking, model, pair_batches, varlen
from tests.unit.stages.pretrain.conftest import build
from tests.unit.training.test_masking import EOS, shape

KEYS = ("kv_heads", "intermediate_size")
LENGTHS = ([7, 1, 12, 2, 10, 8], [40], [1, 39], [20, 20])


def windows() -> torch.Tensor:
    """Rows of 41 tokens with documents of LENGTHS, the first 40 of which are inputs."""
    rows = torch.randint(1, 64, (len(LENGTHS), 41), generator=torch.Generator().manual_seed(1))
    for row, parts in enumerate(LENGTHS):
        for end in torch.tensor(parts).cumsum(0)[:-1]:
            rows[row, end] = EOS
    return rows


def config_of(kind: str) -> Any:
    """Two queries for each key, if the type can."""
    small = shape(kind)
    return model.build_config(small.model_copy(update={"kv_heads": small.kv_heads and 2}), 64, EOS, KEYS)


def logits_and_gradients(built: Any, **more: Any) -> list[torch.Tensor]:
    built.zero_grad()
    logits = built(input_ids=windows()[:, :-1], use_cache=False, **more).logits
    logits.square().mean().backward()
    return [logits.detach(), *(parameter.grad for parameter in built.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("kind", varlen.TYPES)
def test_attention_is_that_under_a_mask(kind: str) -> None:
    """Forward and backward, with and without borders in a row; without the arguments it is SDPA itself."""
    built, batch = build(config_of(kind), 3).train(), windows()
    for border, positions in ((EOS, masking.document_positions(batch[:, :-1], EOS)), (None, None)):
        more = {} if positions is None else {"position_ids": positions}
        built.config._attn_implementation = "sdpa"
        expected = logits_and_gradients(built, **more)
        varlen.enable(built)
        assert torch.equal(logits_and_gradients(built, **more)[0], expected[0])
        room = varlen.room_for_documents([batch], border)
        with varlen.without_mask(True):
            measured = logits_and_gradients(built, **more, **varlen.document_arguments(batch[:, :-1], positions, room))
        for one, other in zip(measured, expected, strict=True):
            assert torch.allclose(one, other, atol=1e-5)


def test_arguments() -> None:
    batch = windows()
    inputs = batch[:, :-1]
    positions = masking.document_positions(inputs, EOS)
    ends = [0, 7, 8, 20, 22, 32, 40, 80, 81, 120, 140]
    assert varlen.room_for_documents([batch, batch], EOS) == 16
    assert varlen.room_for_documents([batch], EOS, before=33) == 64
    assert varlen.room_for_documents(torch.stack([batch, batch]), None) == varlen.FEWEST
    for room, empty in ((16, 6), (None, 1)):
        arguments = varlen.document_arguments(inputs, positions, room)
        assert arguments["cu_seq_lens_q"].tolist() == ends + [160] * empty
        assert arguments["max_length_q"] == 40 and arguments["cu_seq_lens_q"].dtype == torch.int32
    assert varlen.document_arguments(inputs, None, None)["cu_seq_lens_k"].tolist() == [0, 40, 80, 120, 160]
    pieces = [(torch.arange(1, size).numpy(), 1, 0) for size in (9, 5, 4)]
    packed = pair_batches.packed_micro_batch([pieces[:2], pieces[2:]], EOS)
    assert varlen.room_for_documents([packed] * 2, None) == 16
    assert varlen.document_arguments(packed[0], packed[2], None)["cu_seq_lens_q"].tolist() == [0, 7, 10, 12, 20]
    assert varlen.needs_borders(config_of("mistral"), 7) and not varlen.needs_borders(config_of("mistral"), 6)
    assert not varlen.needs_borders(config_of("llama"), 7)
    assert not varlen.can_run(config_of("llama"), torch.device("cpu"), "bf16")


class Calls(TorchDispatchMode):
    """The shapes that the kernel is called with, and the largest tensor that anything makes."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[list[int]] = []
        self.windows: list[Any] = []
        self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is varlen.OPERATOR:
            self.shapes += [list(each.shape) for each in args[:3]]
            self.windows.append(args[9])
        made = function(*args, **(kwargs or {}))
        sizes = [
            each.numel() for each in (made if isinstance(made, tuple) else (made,)) if isinstance(each, torch.Tensor)
        ]
        self.largest = max([self.largest, *sizes])
        return made


def test_shapes_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, which has no values to ask for: two key heads for four queries, no mask, and one graph of a layer."""
    config = config_of("mistral")
    empty = initial.empty_model(config).train()
    varlen.enable(empty)
    inputs = torch.zeros(8, 200, dtype=torch.int64, device="meta")
    positions = masking.document_positions(inputs, EOS)
    arguments = varlen.document_arguments(inputs, positions, 32)
    with Calls() as calls, varlen.without_mask(True), layers.without_packing_search():
        empty(input_ids=inputs, position_ids=positions, use_cache=False, **arguments).logits.sum().backward()
    assert calls.shapes == [[1600, 4, 8], [1600, 2, 8], [1600, 2, 8]] * 2
    assert calls.windows == [[5, 0]] * 2
    assert calls.largest == 8 * 200 * 64, "logits; a mask has 8 × 200 × 200"
    assert all(parameter.grad is not None for parameter in empty.parameters())
    monkeypatch.setattr(layers, "BACKEND", "eager")
    torch._dynamo.reset()
    layers.compile_layers(empty)  # with fullgraph
    with varlen.without_mask(True), layers.without_packing_search():
        empty(input_ids=inputs, position_ids=positions, use_cache=False, **arguments).logits.sum().backward()
