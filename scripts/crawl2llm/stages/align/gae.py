"""What PPO makes of drawn answers and of a model of values: rewards of tokens, advantages, and its two clipped losses.

All arrays are [answers, length] in the places of an answer's tokens, `mask` is True if there is one; a row's tokens are in one
piece. A value is what a model expects of an answer before the token at its place is drawn. As TRL's PPOTrainer computes it
(trl/experimental/ppo/ppo_trainer.py, which TRL had before 1.16), but that the score is paid at an answer's last token, which is its end
token where it has one, and not one place behind it, and that advantages are whitened over the answers of all processes.
"""

from __future__ import annotations

import torch

EPSILON = 1e-8  # beside a variance (masked_whiten of the same file)


def token_rewards(
    scores: torch.Tensor, logprobs: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, coefficient: float
) -> torch.Tensor:
    """What each token is paid, float64: minus what its divergence from the reference costs, and at the last one the answer's score.

    Ziegler et al. 2019, https://arxiv.org/abs/1909.08593, section 2. scores: [answers]. logprobs, reference: log-probabilities of the
    tokens that were drawn, in nats. coefficient: what a nat costs.
    """
    rewards = -coefficient * (logprobs.double() - reference.double()) * mask
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, places, -1).argmax(1)
    rows = mask.any(1)
    rewards[rows, last[rows]] += scores.double()[rows]
    return rewards


def advantages(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, weight: float
) -> torch.Tensor:
    """How much better each token is than was expected, float64; 0 if none counts. Advantages and values add up to returns.

    Generalized advantage estimation, Schulman et al. 2015, https://arxiv.org/abs/1506.02438, equation 16: the sum over tokens ahead of
    (gamma · weight)^l · (reward + gamma · next value − value). Behind the last token of an answer nothing is expected. weight: lambda.
    """
    estimates = torch.zeros_like(rewards)
    ahead = following = rewards.new_zeros(len(rewards))
    for place in range(rewards.shape[1] - 1, -1, -1):
        present = mask[:, place]
        value = values[:, place].double()
        ahead = (rewards[:, place] + gamma * following - value + gamma * weight * ahead) * present
        following = value * present
        estimates[:, place] = ahead
    return estimates


def moment_sums(values: torch.Tensor, mask: torch.Tensor, mean: float = 0.0) -> torch.Tensor:
    """(number, sum of the distances from `mean`, sum of their squares) of the places that count: float64 [3], on the CPU."""
    distances = values[mask].double() - mean
    return torch.tensor(
        [float(len(distances)), float(distances.sum()), float((distances**2).sum())], dtype=torch.float64
    )


def whiten_values(values: torch.Tensor, mask: torch.Tensor, mean: float, variance: float) -> torch.Tensor:
    """Values with a mean of 0 and a variance of 1 over those that count (masked_whiten of TRL's file); 0 elsewhere."""
    return (values - mean) * (variance + EPSILON) ** -0.5 * mask


def policy_loss(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantage: torch.Tensor, clip: float
) -> torch.Tensor:
    """Each token's loss, to be averaged over those that count: Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equation 7.

    logprobs, old_logprobs: its log-probability by the model now, and by that which drew it. advantage: of each token.
    """
    ratio = (logprobs - old_logprobs).exp()
    advantage = advantage.to(logprobs.dtype)
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))


def value_loss(values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """Each token's loss of a value, to be averaged over those that count: half the square of its distance from the return.

    The value counts no further than `clip` from what it was before, where that is the larger loss (OpenAI's baselines, ppo2/model.py;
    TRL's cliprange_value); 0 does not clip.
    """
    returns, old_values = returns.to(values.dtype), old_values.to(values.dtype)
    square = (values - returns) ** 2
    if clip:
        near = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
        square = torch.maximum(square, (near - returns) ** 2)
    return square / 2


def explained_variance(returns: torch.Tensor, residuals: torch.Tensor) -> float:
    """The share of the variance of returns that values explain: 1 − var(returns − values) / var(returns); 0 if returns do not vary.

    returns, residuals: number, sum and sum of squares of returns, and of what values leave of them, float64 [3] (OpenAI's baselines,
    common/math_util.py, explained_variance).
    """
    varies, rest = (float(moments[2] - moments[1] ** 2 / moments[0].clamp(min=1)) for moments in (returns, residuals))
    return 1 - rest / varies if varies > EPSILON * max(1.0, float(returns[2])) else 0.0
