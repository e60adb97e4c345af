"""What PPO makes of rewards and values, beside loops over single tokens, and beside TRL's clipped loss."""

from __future__ import annotations

import math
import statistics
from types import SimpleNamespace

import pytest
import torch

from crawl2llm.stages.align import gae
from tests.unit.stages.align.by_trl import made, trainer
from tests.unit.stages.align.test_policy import inputs

LENGTHS = (3, 0, 5, 1)  # of answers, in the places that WHERE says
WHERE = (2, 0, 1, 5)
WIDTH, SCORES = 6, torch.tensor([1.0, 9.0, -0.5, 0.25], dtype=torch.float64)


def places() -> torch.Tensor:
    found = torch.zeros(4, WIDTH, dtype=torch.bool)
    for row, (length, first) in enumerate(zip(LENGTHS, WHERE, strict=True)):
        found[row, first : first + length] = True
    return found


def numbers(seed: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def test_a_score_is_paid_at_the_last_token_and_divergence_at_each() -> None:
    own, reference, counted = numbers(1), numbers(2), places()
    found = gae.token_rewards(SCORES, own, reference, counted, 0.3)
    for row, (length, first) in enumerate(zip(LENGTHS, WHERE, strict=True)):
        for at in range(WIDTH):
            inside = first <= at < first + length
            wanted = -0.3 * (float(own[row, at]) - float(reference[row, at])) if inside else 0.0
            wanted += float(SCORES[row]) if inside and at == first + length - 1 else 0.0
            assert float(found[row, at]) == pytest.approx(wanted, abs=1e-12), (row, at)


@pytest.mark.parametrize(("gamma", "weight"), [(1.0, 0.95), (0.9, 0.5), (0.97, 0.0), (1.0, 1.0)])
def test_advantages_are_the_sum_that_the_paper_has(gamma: float, weight: float) -> None:
    """Equation 16 as it stands there: of each token the discounted sum over all that follow it, not the recursion."""
    values, counted = numbers(3), places()
    rewards = gae.token_rewards(SCORES, numbers(1), numbers(2), counted, 0.3)
    found = gae.advantages(rewards, values, counted, gamma, weight)
    for row, (length, first) in enumerate(zip(LENGTHS, WHERE, strict=True)):
        paid = [float(rewards[row, first + at]) for at in range(length)]
        expected = [float(values[row, first + at]) for at in range(length)] + [0.0]
        delta = [paid[at] + gamma * expected[at + 1] - expected[at] for at in range(length)]
        for at in range(length):
            wanted = sum((gamma * weight) ** (later - at) * delta[later] for later in range(at, length))
            assert float(found[row, first + at]) == pytest.approx(wanted, abs=1e-9)
            if weight == 1:  # then a return is what is really paid from there on
                whole = sum(gamma ** (later - at) * paid[later] for later in range(at, length))
                assert float(found[row, first + at]) + expected[at] == pytest.approx(whole, abs=1e-9)
    assert not found[~counted].any()


def test_whitened_over_what_counts_in_all_parts() -> None:
    values, counted = numbers(4).double(), places()
    parts = [(values[:2], counted[:2]), (values[2:], counted[2:])]  # as two processes have them
    count, total, _ = torch.stack([gae.moment_sums(*part) for part in parts]).sum(0)
    mean = float(total / count)
    variance = float(torch.stack([gae.moment_sums(*part, mean) for part in parts]).sum(0)[2] / (count - 1))
    every = values[counted].tolist()
    assert mean == pytest.approx(statistics.mean(every)) and variance == pytest.approx(statistics.variance(every))
    found = torch.cat([gae.whiten_values(*part, mean, variance) for part in parts])
    assert found[counted].mean() == pytest.approx(0, abs=1e-9) and found[counted].var() == pytest.approx(1, abs=1e-6)
    assert not found[~counted].any()


def test_the_policys_loss_is_the_clipped_one_of_trl() -> None:
    """TRL 1.16 has no PPOTrainer: its GRPOTrainer clips in the same way, and takes advantages of tokens."""
    from trl import GRPOTrainer

    own, before = made(4, 7).requires_grad_(), made(4, 8)
    worth = torch.randn(4, 5, generator=torch.Generator().manual_seed(5))
    given = inputs(4, advantages=worth, old_per_token_logps=before, num_items_in_batch=torch.tensor(18))
    counted = given["completion_mask"].bool()
    of = trainer(
        beta=0.0, loss_type="dapo", epsilon_low=0.2, epsilon_high=0.2, top_entropy_quantile=1.0, use_vllm=False,
        importance_sampling_level="token", _entropy_bonus_enabled=False, off_policy_mask_threshold=None, tools=None,
        args=SimpleNamespace(delta=None, steps_per_generation=1, use_bias_correction_kl=False),
        current_gradient_accumulation_steps=1, mask_truncated_completions=False, max_completion_length=5,
        vllm_importance_sampling_correction=False, use_liger_kernel=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (own, torch.zeros_like(before), None),
    )  # fmt: skip
    of.accelerator.num_processes, of.accelerator.reduce = 1, lambda value, **_: value
    theirs = GRPOTrainer._compute_loss(of, None, given)
    ours = (gae.policy_loss(own, before, worth, 0.2) * counted).sum() / 18
    ratios = (own - before).exp()[counted]
    assert ((ratios > 1.2) | (ratios < 0.8)).any() and ((ratios < 1.2) & (ratios > 0.8)).any()
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)
    (first,), (second,) = (torch.autograd.grad(loss, own, retain_graph=True) for loss in (ours, theirs))
    assert torch.allclose(first, second, atol=1e-7)


@pytest.mark.parametrize("clip", [0.2, 0.0])
def test_the_loss_of_values_token_by_token(clip: float) -> None:
    values, before, returns = numbers(6), numbers(7), numbers(8).double()
    found = gae.value_loss(values, before, returns, clip)
    held = 0
    for row in range(4):
        for at in range(WIDTH):
            value, old, target = (float(given[row, at]) for given in (values, before, returns))
            near = min(max(value, old - clip), old + clip) if clip else value
            held += (near - target) ** 2 > (value - target) ** 2
            assert float(found[row, at]) == pytest.approx(
                max((value - target) ** 2, (near - target) ** 2) / 2, rel=1e-5
            )
    assert bool(held) == bool(clip)


def test_what_values_explain() -> None:
    returns, counted = numbers(9).double(), places()

    def share(values: torch.Tensor) -> float:
        return gae.explained_variance(gae.moment_sums(returns, counted), gae.moment_sums(returns - values, counted))

    values = returns + 0.1 * numbers(10).double()
    known, left = returns[counted].tolist(), (returns - values)[counted].tolist()
    assert share(values) == pytest.approx(1 - statistics.pvariance(left) / statistics.pvariance(known))
    assert share(returns) == pytest.approx(1) and share(torch.zeros_like(returns)) == pytest.approx(0)
    assert share(-returns) < 0
    same = torch.full_like(returns, 0.1)
    assert gae.explained_variance(gae.moment_sums(same, counted), gae.moment_sums(same, counted)) == 0
    assert not math.isnan(gae.explained_variance(torch.zeros(3), torch.zeros(3)))
