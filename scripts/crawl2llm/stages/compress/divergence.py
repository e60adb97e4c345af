"""How far a student's probabilities of the next token are from its teacher's, a piece of the tokens at a time.

The teacher is there as logits, or as its likeliest tokens and what all others have together (compress.teach): those others are one token
more then, of the student too. Kullback-Leibler divergence of probabilities by softmax(logits / temperature), times the temperature's
square: Hinton et al. 2015, https://arxiv.org/abs/1503.02531. Forward, as Minitron has it (https://arxiv.org/abs/2407.14679, section 4.3),
or reverse, as MiniLLM (https://arxiv.org/abs/2306.08543).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional


@dataclass(frozen=True)
class Divergence:
    """The loss of a student: text_share · cross-entropy + (1 - text_share) · temperature² · divergence, in nats."""

    reverse: bool
    temperature: float
    text_share: float

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """The sum over tokens. logits, teacher: fp32 [n, vocabulary]; targets: int64 [n]."""
        return self._mix(logits, targets, self._log_softmax(logits), self._log_softmax(teacher))

    def of_likeliest(
        self, logits: torch.Tensor, targets: torch.Tensor, ids: torch.Tensor, logprobs: torch.Tensor
    ) -> torch.Tensor:
        """The same where of the teacher k < vocabulary tokens are known. ids: int64 [n, k]; logprobs: as `likeliest` gives them."""
        return self._mix(logits, targets, merge_tail(self._log_softmax(logits), ids), logprobs)

    def of_text(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The same without a teacher: the cross-entropy alone."""
        return functional.cross_entropy(logits, targets, reduction="sum")

    def _log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(logits / self.temperature, 1)

    def _mix(
        self, logits: torch.Tensor, targets: torch.Tensor, student: torch.Tensor, teacher: torch.Tensor
    ) -> torch.Tensor:
        """student, teacher: log-probabilities [n, tokens]."""
        of, other = (student, teacher) if self.reverse else (teacher, student)
        divergence = (of.exp() * (of - other)).sum()
        loss = (1 - self.text_share) * self.temperature**2 * divergence
        return loss + self.text_share * self.of_text(logits, targets) if self.text_share else loss


def merge_tail(logprobs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the tokens `ids`, int64 [n, k], and of all others together: [n, vocabulary] → [n, k + 1]."""
    tail = logprobs.scatter(1, ids, float("-inf")).logsumexp(1, keepdim=True)
    return torch.cat([logprobs.gather(1, ids), tail], 1)


def likeliest(logits: torch.Tensor, temperature: float, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids of the `number` likeliest tokens, the likeliest first, int64 [n, k]; log-probabilities of them and of all others together,
    fp32 [n, k + 1]) by softmax(logits / temperature). logits: fp32 [n, vocabulary].
    """
    logprobs = functional.log_softmax(logits / temperature, 1)
    ids = logprobs.topk(number, 1).indices
    return ids, merge_tail(logprobs, ids)


def fewer(logprobs: torch.Tensor, number: int) -> torch.Tensor:
    """Log-probabilities of the first `number` of k tokens and of all others together, which add up to 1: [n, k + 1] → [n, number + 1].

    What was rounded to be stored is made to add up again.
    """
    tail = logprobs[:, number:].logsumexp(1, keepdim=True)
    return functional.log_softmax(torch.cat([logprobs[:, :number], tail], 1), 1)
