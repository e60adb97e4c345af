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
from crawl2llm.stages.align.online import ByReward
from crawl2llm.training import initial, memory, model, start_from
from crawl2llm.training.batch import IGNORE, MicroBatch
from crawl2llm.training.engine import Engine, Job, Update
from crawl2llm.training.estimate.shape import with_values

FROM = "models.{}.from"


@dataclass
class Estimated:
    """What a step knows of a micro-batch of its answers, each [answers, length]; see stages/align/gae.py."""

    counted: torch.Tensor  # bool
    own: torch.Tensor  # log-probabilities by the model that drew, fp32
    reference: torch.Tensor
    values: torch.Tensor  # fp32
    advantages: torch.Tensor  # float64, whitened in the end
    returns: torch.Tensor  # float64


class ByPPO(ByReward):
    """PPO."""

    engine: value_model.Valued
    engine_of = staticmethod(value_model.kind)

    def check(self, config: Any) -> None:
        """As `Alignment.check`, of PPO's own settings too."""
        super().check(config)
        check_ppo(self.settings, f"{self.where}.{{}}".format)

    def configuration(self, source: Path) -> Any:
        """As `Run.configuration`, with a model of values beside the language model, which alone is `policy`."""
        self.policy = super().configuration(source)
        self.policy.use_cache = False
        return value_model.configuration(
            self.policy, self.tokenizer.eos_token_id, FROM.format(task_of(self.args.manifest))
        )

    def shape(self, config: Any) -> memory.Shape:
        """As `Run.shape`, of both bodies."""
        return with_values(replace(super().shape(config), parameters=model.size(self.policy)))

    def built(self, job: Job) -> Engine:
        """As `Alignment.built`; what is written down of the model is the language model's alone."""
        key = FROM.format(task_of(self.args.manifest))
        stored = start_from.check_weights(initial.empty(self.policy), self.source, self.source / "tokenizer.json", key)

        def parent(name: str) -> torch.Tensor | None:
            return stored.value(name) if name in stored.parts else None

        def beginning() -> initial.Weights:
            return value_model.begin(job.values(), parent)

        made = super().built(replace(job, values=beginning))
        made.model.config = self.policy
        self.size = model.size(self.policy)
        return made

    def update_by(self, step: int) -> Update:
        """The updates of a step as one; `shown` has reward, divergence, lengths, both losses, and what values explain. A collective call.

        Where one of them is not applied, those after it are left out, and the step counts as skipped.
        """
        settings, mine = self.settings, self.batches.answers(step, self.rank)
        rows = [self.batches.rows[number] for number in self.batches.order(step)]
        batch, found = self._drawn(step, rows, mine)
        scores = found[:, 0] - settings["missing_end_penalty"] * (1 - found[:, -2])
        known = [
            self._estimated(one, of, scores[[place * settings["generations"] + answer for place, answer in part]])
            for part, one, of in zip(mine, batch, self.reference(batch), strict=True)
        ]
        told = self._whiten(known)
        tokens = max(1.0, told.pop("tokens"))
        share = len(batch) * self.processes / tokens
        # Sums over tokens: the policy's loss, that of values, and how many ratios were clipped.
        self.seen = torch.zeros(3, dtype=torch.float64)
        made: list[Update] = []
        while len(made) < settings["passes"] and all(update.applied for update in made):
            by: list[value_model.ValuedLoss] = [partial(self.of_both, one, share) for one in known]
            made.append(self.engine.step_valued(batch, self.rate, by))
        sums = (self.summed(self.seen) / tokens / len(made)).tolist()
        named = zip(("policy_loss", "value_loss", "clipped"), sums, strict=True)
        self.shown = {**self.judged(found), **told, **dict(named)}
        return replace(made[-1], loss=torch.stack([update.loss for update in made]).mean())

    def _estimated(self, batch: MicroBatch, reference: torch.Tensor, scores: torch.Tensor) -> Estimated:
        """What is known of a micro-batch before the first update. scores: float64 [answers], on the CPU. A collective call."""
        settings, counted = self.settings, batch[1] != IGNORE
        logits, expected = self.engine.valued(batch[0])
        own = losses.by_token(logits / settings["temperature"], batch[1])
        scores = torch.zeros(len(counted), dtype=torch.float64).index_copy(0, torch.arange(len(scores)), scores)
        paid = gae.token_rewards(scores.to(self.device), own, reference, counted, settings["kl_coefficient"])
        better = gae.advantages(paid, expected, counted, settings["gamma"], settings["gae_lambda"])
        return Estimated(counted, own, reference, expected, better, better + expected.double() * counted)

    def _whiten(self, known: Sequence[Estimated]) -> dict[str, float]:
        """Whiten the advantages of all processes together; `tokens`, and what is shown of the answers. A collective call."""
        three = torch.zeros(3, 3, dtype=torch.float64)  # of advantages, returns, and what values leave of them
        kl = torch.zeros(1, dtype=torch.float64)
        for one in known:
            for row, found in enumerate((one.advantages, one.returns, one.returns - one.values.double())):
                three[row] += gae.sums(found, one.counted)
            kl += float((policy.divergence(one.own, one.reference) * one.counted).sum())
        every, (divergence,) = self.summed(three), self.summed(kl).tolist()
        tokens = float(every[0, 0])
        mean = float(every[0, 1]) / max(1.0, tokens)
        squares = self.summed(sum((gae.sums(one.advantages, one.counted, mean) for one in known), torch.zeros(3)))
        variance = float(squares[2]) / max(1.0, tokens - 1)
        for one in known:
            one.advantages = gae.whitened(one.advantages, one.counted, mean, variance)
        explained = gae.explained(every[1], every[2])
        return {"tokens": tokens, "kl": divergence / max(1.0, tokens), "explained_variance": explained}

    def of_both(
        self, known: Estimated, share: float, logits: torch.Tensor, targets: torch.Tensor, expected: torch.Tensor
    ) -> torch.Tensor:
        """The loss of a micro-batch, and what is shown of it."""
        settings, counted = self.settings, known.counted
        own = losses.by_token(logits / settings["temperature"], targets)
        moved = (gae.policy_loss(own, known.own, known.advantages, settings["clip"]) * counted).sum()
        missed = (gae.value_loss(expected, known.values, known.returns, settings["value_clip"]) * counted).sum()
        with torch.no_grad():
            clipped = (((own - known.own).exp() - 1).abs() > settings["clip"]) & counted
        self.seen += torch.tensor(
            [float(moved.detach()), float(missed.detach()), float(clipped.sum())], dtype=torch.float64
        )
        return share * (moved + settings["value_coefficient"] * missed)
