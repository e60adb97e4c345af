"""The losses of alignment, as functions of log-probabilities: plain tensors in, one number an example out.

log-probabilities are sums over the tokens of an answer and its end token, in nats; ratios are those of the model in training minus those
of the reference, the model that it is made from. `beta` is how much it costs to leave that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional

from crawl2llm.training.batch import IGNORE


def target_logprobs(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The log-probability of each target, 0 if it is IGNORE: fp32 [n, length].

    logits: fp32 [n, length, vocabulary]; what stages/align/chunked_logprobs.py made in their place is returned. targets: int64 [n, length].
    """
    if logits.ndim == 2:
        return logits
    nats = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return -nats.reshape(targets.shape)


def dpo_loss(chosen: torch.Tensor, rejected: torch.Tensor, beta: float, smoothing: float = 0.0) -> torch.Tensor:
    """Each pair's loss, [n], by the ratios of its chosen and its rejected answer.

    Rafailov et al. 2023, https://arxiv.org/abs/2305.18290, equation 7. smoothing: the probability that a preference is the wrong way
    round (conservative DPO, https://ericmitchell.ai/cdpo.pdf).
    """
    margin = beta * (chosen - rejected)
    return -functional.logsigmoid(margin) * (1 - smoothing) - functional.logsigmoid(-margin) * smoothing


def kto_loss(
    ratios: torch.Tensor, labels: torch.Tensor, kl: torch.Tensor, beta: float, desirable: float, undesirable: float
) -> torch.Tensor:
    """Each labelled answer's loss, [n]: Ethayarajh et al. 2024, https://arxiv.org/abs/2402.01306, as TRL computes it

    (trl/trainer/kto_trainer.py, loss_type kto).

    labels: bool [n]. kl: the batch's estimate of the divergence from the reference, at least 0, without a gradient. desirable,
    undesirable: what a good and a bad answer's loss counts.
    """
    good = 1 - torch.sigmoid(beta * (ratios - kl))
    bad = 1 - torch.sigmoid(beta * (kl - ratios))
    return torch.where(labels, desirable * good, undesirable * bad)


def bradley_terry_loss(chosen: torch.Tensor, rejected: torch.Tensor, centering: float = 0.0) -> torch.Tensor:
    """Each pair's loss, [n], by the scores of its chosen and its rejected answer.

    Ouyang et al. 2022, https://arxiv.org/abs/2203.02155, equation 1. centering: what the square of the sum of both scores costs, which
    keeps scores around 0 (Eisenstein et al. 2023, https://arxiv.org/abs/2312.09244; TRL's center_rewards_coefficient).
    """
    return -functional.logsigmoid(chosen - rejected) + centering * (chosen + rejected) ** 2


def pairwise_wins(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """1 for each pair whose first number is the larger one, 0.5 where both are the same, else 0: float64 [pairs]."""
    return (chosen > rejected).double() + 0.5 * (chosen == rejected)
