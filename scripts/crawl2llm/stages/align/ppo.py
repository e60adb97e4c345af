"""PPO on one process: a model learns from rewards of answers that it gives itself, token by token, with a model of values beside it.

A step draws answers as the other methods by rewards do (stages/align/online.py), works out what each token was worth by rewards and by
the values that were expected (stages/align/gae.py), and makes `passes` updates of the language model and of the model of values
(stages/align/value_model.py) by these answers. Checkpoints lie between steps, so that none holds answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crawl2llm.core.manifest import task_of
from crawl2llm.stages.align import gae, losses, policy, value_model
from crawl2llm.stages.align.checks import check_ppo
from crawl2llm.stages.align.online import RewardRun
from crawl2llm.training import initial, memory, model, start_from
from crawl2llm.training.batch import IGNORE, MicroBatch
from crawl2llm.training.engine import Engine, Job, Update
from crawl2llm.training.estimate.shape import with_value_model

FROM_KEY = "models.{}.from"


@dataclass
class AnswerEstimate:
    """What a step knows of a micro-batch of its answers, each [answers, length]; see stages/align/gae.py."""

    mask: torch.Tensor  # bool
    logprobs: torch.Tensor  # log-probabilities by the model that drew, fp32
    reference: torch.Tensor
    values: torch.Tensor  # fp32
    advantages: torch.Tensor  # float64, whitened in the end
    returns: torch.Tensor  # float64


class PPORun(RewardRun):
    """PPO."""

    engine: value_model.EngineWithValues
    engine_of = staticmethod(value_model.engine_class)

    def check_settings(self, config: Any) -> None:
        """As `Alignment.check_settings`, of PPO's own settings too."""
        super().check_settings(config)
        check_ppo(self.settings, f"{self.where}.{{}}".format)

    def configuration(self, source: Path) -> Any:
        """As `Run.configuration`, with a model of values beside the language model, which alone is `policy`."""
        self.policy = super().configuration(source)
        self.policy.use_cache = False
        return value_model.valued_config(
            self.policy, self.tokenizer.eos_token_id, FROM_KEY.format(task_of(self.args.manifest))
        )

    def memory_shape(self, config: Any) -> memory.Shape:
        """As `Run.memory_shape`, of both bodies."""
        return with_value_model(replace(super().memory_shape(config), parameters=model.count_parameters(self.policy)))

    def build_engine(self, job: Job) -> Engine:
        """As `Alignment.build_engine`; what is written down of the model is the language model's alone."""
        key = FROM_KEY.format(task_of(self.args.manifest))
        stored = start_from.find_stored_weights(
            initial.empty_model(self.policy), self.source, self.source / "tokenizer.json", key
        )

        def parent_value(name: str) -> torch.Tensor | None:
            return stored.value(name) if name in stored.parts else None

        def initial_values() -> initial.Weights:
            return value_model.initial_weights(job.values(), parent_value)

        built_engine = super().build_engine(replace(job, values=initial_values))
        built_engine.model.config = self.policy
        self.size = model.count_parameters(self.policy)
        return built_engine

    def update_by(self, step: int, batch: Any) -> Update:
        """The updates of a step as one; `extra_metrics` has reward, divergence, lengths, both losses, and what values explain. A collective
        call.

        Where one of them is not applied, those after it are left out, and the step counts as skipped.
        """
        settings, mine = self.settings, self.batches.answer_numbers(step, self.rank)
        rows = [self.batches.rows[number] for number in self.batches.step_indices(step)]
        batch, table = self._draw_answers(step, rows, mine)
        idle = self.idle_share()
        scores = table[:, 0] - settings.missing_end_penalty * (1 - table[:, -2])
        estimates = [
            self._estimate_batch(answers, of, scores[[place * settings.generations + answer for place, answer in part]])
            for part, answers, of in zip(mine, batch, self.reference_logprobs(batch), strict=True)
        ]
        totals = self._whiten_advantages(estimates)
        tokens = max(1.0, totals.pop("tokens"))
        share = len(batch) * self.processes / tokens
        # Sums over tokens: the policy's loss, that of values, and how many ratios were clipped.
        self.step_sums = torch.zeros(3, dtype=torch.float64)
        updates: list[Update] = []
        while len(updates) < settings.passes and all(update.applied for update in updates):
            batch_losses: list[value_model.ValuedLoss] = [
                partial(self.combined_loss, estimate, share) for estimate in estimates
            ]
            updates.append(self.engine.step_valued(batch, self.rate, batch_losses))
        sums = (self.sum_over_processes(self.step_sums) / tokens / len(updates)).tolist()
        loss_values = zip(("policy_loss", "value_loss", "clipped"), sums, strict=True)
        self.extra_metrics = {**self.reward_means(table), **idle, **totals, **dict(loss_values)}
        return replace(updates[-1], loss=torch.stack([update.loss for update in updates]).mean())

    def _estimate_batch(self, batch: MicroBatch, reference: torch.Tensor, scores: torch.Tensor) -> AnswerEstimate:
        """What is known of a micro-batch before the first update. scores: float64 [answers], on the CPU. A collective call."""
        settings, mask = self.settings, batch[1] != IGNORE
        logits, expected = self.engine.logits_and_values(batch[0])
        logprobs = losses.target_logprobs(logits / settings.temperature, batch[1])
        scores = torch.zeros(len(mask), dtype=torch.float64).index_copy(0, torch.arange(len(scores)), scores)
        paid = gae.token_rewards(scores.to(self.device), logprobs, reference, mask, settings.kl_coefficient)
        better = gae.advantages(paid, expected, mask, settings.gamma, settings.gae_lambda)
        return AnswerEstimate(mask, logprobs, reference, expected, better, better + expected.double() * mask)

    def _whiten_advantages(self, estimates: Sequence[AnswerEstimate]) -> dict[str, float]:
        """Whiten the advantages of all processes together; `tokens`, and what is shown of the answers. A collective call."""
        three = torch.zeros(3, 3, dtype=torch.float64)  # of advantages, returns, and what values leave of them
        kl = torch.zeros(1, dtype=torch.float64)
        for estimate in estimates:
            for row, values in enumerate(
                (estimate.advantages, estimate.returns, estimate.returns - estimate.values.double())
            ):
                three[row] += gae.moment_sums(values, estimate.mask)
            kl += float((policy.kl_estimate(estimate.logprobs, estimate.reference) * estimate.mask).sum())
        totals, (divergence,) = self.sum_over_processes(three), self.sum_over_processes(kl).tolist()
        tokens = float(totals[0, 0])
        mean = float(totals[0, 1]) / max(1.0, tokens)
        squares = self.sum_over_processes(
            sum((gae.moment_sums(estimate.advantages, estimate.mask, mean) for estimate in estimates), torch.zeros(3))
        )
        variance = float(squares[2]) / max(1.0, tokens - 1)
        for estimate in estimates:
            estimate.advantages = gae.whiten_values(estimate.advantages, estimate.mask, mean, variance)
        explained = gae.explained_variance(totals[1], totals[2])
        return {"tokens": tokens, "kl": divergence / max(1.0, tokens), "explained_variance": explained}

    def combined_loss(
        self,
        estimate: AnswerEstimate,
        share: float,
        logits: torch.Tensor,
        targets: torch.Tensor,
        expected: torch.Tensor,
    ) -> torch.Tensor:
        """The loss of a micro-batch, and what is shown of it."""
        settings, mask = self.settings, estimate.mask
        logprobs = losses.target_logprobs(logits / settings.temperature, targets)
        policy_term = (gae.policy_loss(logprobs, estimate.logprobs, estimate.advantages, settings.clip) * mask).sum()
        value_term = (gae.value_loss(expected, estimate.values, estimate.returns, settings.value_clip) * mask).sum()
        with torch.no_grad():
            clipped = (((logprobs - estimate.logprobs).exp() - 1).abs() > settings.clip) & mask
        self.step_sums += torch.tensor(
            [float(policy_term.detach()), float(value_term.detach()), float(clipped.sum())], dtype=torch.float64
        )
        return share * (policy_term + settings.value_coefficient * value_term)
