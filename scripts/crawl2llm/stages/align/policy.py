"""What answers that a model gave itself teach it: advantages of their rewards, and the losses by which these count.

All answers are of the model as it is before the step, so ratios to it are 1 and none is clipped: one update for each batch of answers.
"""

from __future__ import annotations

import torch

GRPO, RLOO, REINFORCE = "grpo", "rloo", "reinforce"
EPSILON = 1e-4  # TRL's, beside a standard deviation


def advantages(rewards: torch.Tensor, method: str) -> torch.Tensor:
    """How much better each answer is than others: float64 of the shape of `rewards`, [questions, answers to each].

    grpo: than the mean of its question's answers, in standard deviations (Shao et al. 2024, https://arxiv.org/abs/2402.03300, section
    4.1.2). rloo: than the mean of its question's other answers (Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740).
    reinforce: than the mean of all others of the step.
    """
    if method == GRPO:
        return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + EPSILON)
    grouped = rewards.reshape(1, -1) if method == REINFORCE else rewards
    other_count = max(1, grouped.shape[1] - 1)
    return (grouped - (grouped.sum(1, keepdim=True) - grouped) / other_count).reshape(rewards.shape)


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """An estimate of KL(model, reference) at each token that is never negative, by log-probabilities of the tokens that were drawn.

    http://joschu.net/blog/kl-approx.html, k3, as GRPO has it.
    """
    ratio = reference - logprobs
    return ratio.exp() - ratio - 1


def token_loss(
    logprobs: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, advantage: torch.Tensor, coefficient: float
) -> torch.Tensor:
    """GRPO's loss, summed over the tokens that count: to be divided by the number of those of all answers of the step (DAPO,
    https://arxiv.org/abs/2503.14476; TRL's loss_type dapo).

    logprobs, reference: log-probabilities, fp32 [n, length]. mask: bool [n, length]. advantage: of each answer, [n].
    """
    terms = -(logprobs - logprobs.detach()).exp() * advantage[:, None].to(logprobs.dtype)
    if coefficient:
        terms = terms + coefficient * kl_estimate(logprobs, reference)
    return (terms * mask).sum()


def answer_loss(logprobs: torch.Tensor, mask: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """REINFORCE's loss, summed over answers: to be divided by their number. Arguments as for `token_loss`."""
    total = (logprobs * mask).sum(1)
    return (-(total - total.detach()).exp() * advantage.to(logprobs.dtype)).sum()
