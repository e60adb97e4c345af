"""Document masks: a packed window gives each document the logits that it has alone, and a training with them resumes to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crawl2llm.chain import config
from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, masking, model
from crawl2llm.training.pretraining_settings import ResolvedModel
from tests.unit.stages.pretrain.conftest import build
from tests.unit.stages.pretrain.runs import finish, kill_after, rows, same
from tests.unit.training.typed import train_settings

EOS = 0
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 4, "kv_heads": 4, "context": 40}


def shape(kind: str) -> ResolvedModel:
    small = {"mixtral": "num_local_experts", "olmoe": "num_experts"}
    few = {small[kind]: 4, "num_experts_per_tok": 2} if kind in small else {}
    heads = {"head_dim": 8} if kind in ("qwen3", "gemma2") else {}
    narrow = {"sliding_window": 6} if kind in ("mistral", "gemma2") else {}
    kv = {"kv_heads": None} if kind in ("gpt2", "gpt_neox") else {}
    made: dict[str, Any] = config.validate({"pretrain": {"train": {"model": {"type": kind, **SHAPE, **kv}}}})
    return ResolvedModel.model_construct(
        **made["pretrain"]["train"]["model"] | {"overrides": {**few, **heads, **narrow}}
    )


def test_positions_begin_with_each_document() -> None:
    tokens = torch.tensor([[5, 6, 0, 7, 8, 0, 0, 9], [0, 1, 2, 3, 4, 5, 6, 7]])
    assert masking.document_positions(tokens, 0).tolist() == [[0, 1, 0, 1, 2, 0, 0, 1], list(range(8))]


@pytest.mark.parametrize("kind", checks.MASKED_TYPES)
def test_logits_are_those_of_each_document_alone(kind: str) -> None:
    """Also of a document of no tokens, and of what a window begins and ends in the middle of."""
    built = build(model.build_config(shape(kind), 64, EOS, ("kv_heads", "intermediate_size")), 3).train()
    chance = torch.Generator().manual_seed(1)
    lengths = ([7, 1, 12, 2, 10, 8], [40], [1, 39], [20, 20])
    window = torch.randint(1, 64, (len(lengths), 40), generator=chance)
    for row, parts in enumerate(lengths):
        for end in torch.tensor(parts).cumsum(0)[:-1]:
            window[row, end] = EOS
    with torch.no_grad():
        packed = built(input_ids=window, position_ids=masking.document_positions(window, EOS), use_cache=False).logits
        crossed = built(input_ids=window, use_cache=False).logits
        for row, parts in enumerate(lengths):
            at = 0
            for size in parts:
                alone = built(input_ids=window[row : row + 1, at : at + size], use_cache=False).logits[0]
                assert torch.allclose(packed[row, at : at + size], alone, atol=2e-5), (kind, row, at)
                at += size
    assert not torch.allclose(packed[0, 7:], crossed[0, 7:], atol=1e-3)
    assert torch.allclose(packed[1], crossed[1], atol=2e-5)


def test_types_that_were_not_tried_are_refused() -> None:
    with pytest.raises(InputError, match=r"document_masking is true, and pretrain\.train\.model\.type is 'mamba'"):
        checks.check_document_masking(train_settings(model={"type": "mamba"}, document_masking=True))
    checks.check_document_masking(train_settings(model={"type": "mamba"}, document_masking=False))


@pytest.mark.long
@pytest.mark.parametrize("more", [{"zero_stage": 1}, {"zero_stage": 3, "engine": "torch"}])
def test_a_training_with_masks(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    changes = {"document_masking": True, "steps": 12, "validate_every": 0, **more}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole, 2, changes))
    kill_after(start, killed, 5, 2, changes)
    assert "resuming after step" in finish(start(killed, 2, changes))
    same(whole, killed)
    without = tmp_path / "without"
    finish(start(without, 2, changes | {"document_masking": False, "steps": 2}))
    first, other = (rows(folder / "out/losses.jsonl")[1]["loss"] for folder in (whole, without))
    assert first != other and first == pytest.approx(other, abs=0.5)
