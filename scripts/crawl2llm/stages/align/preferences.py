"""DPO and KTO on one process.

The log-probabilities of the reference, the model that it is made from, are those of the engine before its first step: they are made once,
of all rows, and no second model is in memory. A run that resumes makes them again before it takes the checkpoint's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from crawl2llm.stages.align import losses
from crawl2llm.stages.align.batches import ANSWER, CHOSEN, OTHER, REJECTED, TEXTS_BY_METHOD
from crawl2llm.stages.align.engine import Loss
from crawl2llm.stages.align.layouts import DPO, KTO
from crawl2llm.stages.align.pairs import Row
from crawl2llm.stages.align.run import Alignment, PairRun
from crawl2llm.training.engine import Update


class PreferenceRun(PairRun, Alignment):
    """DPO and KTO."""

    @property
    def method(self) -> str:
        """As `PairRun.method`."""
        return self.settings.method

    def prepare_training(self) -> None:
        """The reference's log-probabilities of all answers: {text of a row: float64 [rows]}, of training and held-out."""
        self.reference = self.row_logprobs(self.batches.rows)
        self.heldout_pieces = {
            name: self.batches.answer_pieces(self.heldout_rows, name) for name in TEXTS_BY_METHOD[self.batches.method]
        }
        self.heldout_reference = self.row_logprobs(self.heldout_rows)

    def row_logprobs(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        """The log-probabilities of the answers of rows, by the text of a row that holds them. A collective call."""
        return {
            name: self.answer_logprobs(self.batches.answer_pieces(rows, name))
            for name in TEXTS_BY_METHOD[self.batches.method]
        }

    def update_by(self, step: int, batch: Any) -> Update:
        """The update of a step; `extra_metrics` has rewards, margin, accuracy, lengths in tokens, and of KTO the divergence. A collective
        call.
        """
        numbers, batch = self.batches.row_numbers(step, self.rank), self.batches.micro_batches(step, self.rank)
        total = len(self.batches.step_indices(step))
        self.kl = self.kl_estimate(numbers, total) if self.batches.method == KTO else 0.0
        share = len(batch) * self.processes / total
        # chosen or good, rejected or bad: rewards, numbers, tokens; and pairs or answers that count as right
        self.step_sums = torch.zeros(7, dtype=torch.float64)
        loss_terms = self.dpo_batch_terms if self.batches.method == DPO else self.kto_batch_terms
        batch_losses: list[Loss] = [partial(self.micro_batch_loss, loss_terms, part, share) for part in numbers]
        update = self.engine.step_by([self.to_device(part) for part in batch], self.rate, batch_losses)
        self.extra_metrics = self.step_metrics(self.sum_over_processes(self.step_sums).tolist())
        return update

    def kl_estimate(self, numbers: Sequence[Sequence[int]], total: int) -> float:
        """KTO's estimate of the divergence from the reference: the mean ratio of answers to other questions, at least 0.

        Of the whole batch, whatever its micro-batches and processes. A collective call.
        """
        ratio_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        for part in numbers:
            inputs, targets = self.to_device(self.batches.make_micro_batch(part, OTHER))
            logps = -self.engine.evaluate(inputs, targets)[: len(part)]
            ratio_sum += (logps - self.reference[OTHER][list(part)].to(self.device)).sum()
        return max(0.0, float(self.sum_over_processes(ratio_sum)) / total)

    def micro_batch_loss(
        self, loss_terms: Any, part: Sequence[int], share: float, logits: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """The loss of a micro-batch of the rows `part`, and what is shown of it."""
        logps, tokens = losses.target_logprobs(logits, targets).double().sum(1), (targets >= 0).sum(1).cpu()
        if not part:
            return logps.sum() * 0
        names = self.batches.trained_texts
        reference = torch.cat([self.reference[name][list(part)] for name in names]).to(self.device)
        loss, good, bad, right = loss_terms(part, logps - reference)
        rewards = self.settings.beta * (logps - reference).detach().cpu()
        self.step_sums += torch.tensor(
            [
                rewards[good].sum(),
                rewards[bad].sum(),
                good.sum(),
                bad.sum(),
                tokens[good].sum(),
                tokens[bad].sum(),
                right,
            ],
            dtype=torch.float64,
        )
        return share * loss.sum()

    def dpo_batch_terms(self, part: Sequence[int], ratios: torch.Tensor) -> tuple[Any, ...]:
        """(losses of the pairs, rows of chosen answers, of rejected ones, pairs whose chosen answer is ahead, ties half)."""
        chosen, rejected = ratios.chunk(2)
        good = torch.arange(2 * len(part)) < len(part)
        settings = self.settings
        loss = losses.dpo_loss(chosen, rejected, settings.beta, settings.label_smoothing)
        return loss, good, ~good, losses.pairwise_wins(chosen, rejected).sum()

    def kto_batch_terms(self, part: Sequence[int], ratios: torch.Tensor) -> tuple[Any, ...]:
        """(losses of the answers, rows of good ones, of bad ones, answers on their side of the divergence)."""
        labels = torch.tensor([self.batches.rows[number]["label"] for number in part], device=self.device)
        return self.kto_terms(ratios, labels, self.kl)

    def kto_terms(self, ratios: torch.Tensor, labels: torch.Tensor, kl: float) -> tuple[Any, ...]:
        """As `kto_batch_terms`, of any ratios and labels."""
        settings, at = self.settings, torch.as_tensor(kl, dtype=ratios.dtype, device=ratios.device)
        loss = losses.kto_loss(ratios, labels, at, settings.beta, settings.desirable, settings.undesirable)
        return loss, labels.cpu(), ~labels.cpu(), ((ratios > at) == labels).sum()

    def step_metrics(self, sums: list[float]) -> dict[str, float]:
        """The means of a step for metrics.jsonl."""
        chosen, rejected, good, bad, long, longer, right = sums
        rewards = {"reward_chosen": chosen / max(good, 1), "reward_rejected": rejected / max(bad, 1)}
        row = {**rewards, "reward_margin": rewards["reward_chosen"] - rewards["reward_rejected"]}
        row |= {"accuracy": right / (good if self.batches.method == DPO else good + bad)}
        row |= {"chosen_tokens": long / max(good, 1), "rejected_tokens": longer / max(bad, 1)}
        return row | ({"kl": self.kl} if self.batches.method == KTO else {})

    def heldout_values(self) -> dict[str, float]:
        """Loss, accuracy, margin, and the cross-entropy of good answers in nats a token, of the held-out rows. A collective call."""
        if not self.heldout_rows:
            return {}
        logps = {name: self.answer_logprobs(pieces) for name, pieces in self.heldout_pieces.items()}
        ratios = {name: values - self.heldout_reference[name] for name, values in logps.items()}
        beta = self.settings.beta
        if self.batches.method == DPO:
            chosen, rejected = ratios[CHOSEN], ratios[REJECTED]
            loss = losses.dpo_loss(chosen, rejected, beta, self.settings.label_smoothing)
            right, margin = losses.pairwise_wins(chosen, rejected).mean(), beta * (chosen - rejected).mean()
            good, good_pieces = logps[CHOSEN], self.heldout_pieces[CHOSEN]
        else:
            labels = torch.tensor([row["label"] for row in self.heldout_rows])
            kl = max(0.0, float(ratios[OTHER].mean()))
            loss, _, _, number = self.kto_terms(ratios[ANSWER], labels, kl)
            means = [ratios[ANSWER][side].sum() / max(1, int(side.sum())) for side in (labels, ~labels)]
            right, margin = number / len(labels), beta * (means[0] - means[1])
            good = logps[ANSWER][labels]
            good_pieces = [
                piece for piece, label in zip(self.heldout_pieces[ANSWER], labels.tolist(), strict=True) if label
            ]
        tokens = sum(scored for _, scored, _ in good_pieces)
        measures = {"heldout_preference_loss": loss.mean(), "heldout_accuracy": right, "heldout_margin": margin}
        measures["heldout_answer_loss"] = -good.sum() / max(tokens, 1)
        return {name: float(value) for name, value in measures.items()}
