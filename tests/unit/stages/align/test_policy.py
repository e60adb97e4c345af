"""Advantages and losses of GRPO, RLOO and REINFORCE beside TRL's own methods; answers that are drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from crawl2llm.stages.align import policy
from crawl2llm.training.sampling import sample_tokens, uniform_draws
from tests.unit.stages.align.by_trl import made, trainer

REWARDS = torch.tensor([[1.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]], dtype=torch.float64)


def test_advantages() -> None:
    grpo = policy.advantages(REWARDS, "grpo")
    spread = REWARDS.std(1, keepdim=True) + 1e-4
    assert grpo.equal((REWARDS - REWARDS.mean(1, keepdim=True)) / spread) and not grpo[1].any()
    rloo = policy.advantages(REWARDS, "rloo")
    for row in range(3):
        for at in range(4):
            others = [float(REWARDS[row, other]) for other in range(4) if other != at]
            assert float(rloo[row, at]) == pytest.approx(float(REWARDS[row, at]) - sum(others) / 3)
    every = policy.advantages(REWARDS, "reinforce")
    assert float(every[2, 0]) == pytest.approx(2 - (2.5 / 11)) and float(every.sum()) == pytest.approx(0)


def inputs(rows: int, **more: Any) -> dict[str, Any]:
    """What TRL's trainers hand their loss: answers of which the last tokens of some are padding."""
    mask = torch.ones(rows, 5, dtype=torch.int64)
    mask[0, 3:] = 0
    ids = torch.ones(rows, 5, dtype=torch.int64)
    return {
        "prompt_ids": ids[:, :2],
        "prompt_mask": mask[:, :2] * 0 + 1,
        "completion_ids": ids,
        "completion_mask": mask,
        **more,
    }


def test_the_loss_of_grpo_is_that_of_trl() -> None:
    from trl import GRPOTrainer

    own, reference, worth = made(4, 7).requires_grad_(), made(4, 8), torch.tensor([1.0, -0.5, 0.3, 0.0])
    given = inputs(4, advantages=worth, ref_per_token_logps=reference, num_items_in_batch=torch.tensor(18))
    counted = given["completion_mask"].bool()
    rest = torch.zeros_like(reference)
    of = trainer(
        beta=0.3, loss_type="dapo", epsilon_low=0.2, epsilon_high=0.2, top_entropy_quantile=1.0, use_vllm=False,
        importance_sampling_level="token", _entropy_bonus_enabled=False, off_policy_mask_threshold=None, tools=None,
        args=SimpleNamespace(delta=None, steps_per_generation=1, use_bias_correction_kl=False),
        current_gradient_accumulation_steps=1, mask_truncated_completions=False, max_completion_length=5,
        vllm_importance_sampling_correction=False, use_liger_kernel=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (own, rest, None),
    )  # fmt: skip
    of.accelerator.num_processes, of.accelerator.reduce = 1, lambda value, **_: value
    theirs = GRPOTrainer._compute_loss(of, None, given)
    ours = policy.token_loss(own, reference, counted, worth, 0.3) / 18
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)
    (first,), (second,) = (torch.autograd.grad(loss, own, retain_graph=True) for loss in (ours, theirs))
    assert torch.allclose(first, second, atol=1e-7)


def test_the_loss_of_rloo_is_that_of_trl() -> None:
    from trl import RLOOTrainer

    own, worth = made(4, 9).requires_grad_(), torch.tensor([1.0, -0.5, 0.3, 0.0])
    given = inputs(4, advantages=worth)
    counted = given["completion_mask"].bool()
    given["old_logps"] = (own.detach() * counted).sum(1)
    of = trainer(
        epsilon_low=0.2,
        epsilon_high=0.2,
        _get_per_token_logps_and_entropies=lambda *_, **__: (own, torch.zeros_like(own), None),
    )
    of.accelerator.reduce = lambda value, **_: value
    theirs = RLOOTrainer._compute_loss(of, None, given)
    ours = policy.answer_loss(own, counted, worth) / 4
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)
    (first,), (second,) = (torch.autograd.grad(loss, own, retain_graph=True) for loss in (ours, theirs))
    assert torch.allclose(first, second, atol=1e-7)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    at = torch.from_numpy(uniform_draws(3, ("a",), 20_000))
    for temperature in (1.0, 0.5):
        drawn = sample_tokens(logits.expand(len(at), -1), at, temperature)
        shares = torch.bincount(drawn, minlength=4) / len(at)
        assert torch.allclose(shares, (logits[0] / temperature).softmax(0), atol=0.012)
    assert sample_tokens(logits.expand(5, -1), at[:5], 0.0).tolist() == [2] * 5
    assert sample_tokens(logits, torch.tensor([1 - 2**-53], dtype=torch.float64), 1.0).tolist() == [3]


def test_draws_are_of_their_key_alone() -> None:
    assert uniform_draws(0, ("answer", 3, 1, 2), 4).tolist() == uniform_draws(0, ("answer", 3, 1, 2), 9)[:4].tolist()
    assert (
        len(
            {
                tuple(uniform_draws(seed, ("answer", step, 0, at), 2))
                for seed in (0, 1)
                for step in (1, 2)
                for at in (0, 1)
            }
        )
        == 8
    )
