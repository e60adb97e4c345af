"""The training of a reward model on one process: of two answers to a question, the preferred one is to score higher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crawl2llm.chain import model_registry
from crawl2llm.core.manifest import task_of
from crawl2llm.formats.public_tasks.measures import DIGITS, standard_error
from crawl2llm.stages.align import losses, reward_inputs
from crawl2llm.stages.align.batches import CHOSEN, REJECTED, Preferences
from crawl2llm.stages.align.engine import Loss
from crawl2llm.stages.align.layouts import DPO
from crawl2llm.stages.align.pairs import Row
from crawl2llm.stages.align.run import PairRun
from crawl2llm.stages.align.settings import RewardSettings
from crawl2llm.training.engine import Update
from crawl2llm.training.heldout import Piece
from crawl2llm.training.memory import Shape
from crawl2llm.training.pair_batches import MicroBatch, micro_batch

STEP = model_registry.REWARD_STEP


class Comparisons(Preferences):
    """The batches of a reward model: of each pair both answers, up to the token at which each is scored."""

    step_name = STEP

    def scored_pieces(self, rows: Iterable[Row], *names: str) -> list[Piece]:
        """What is read of questions with the answers `names`, in the order of `answers`."""
        return [
            reward_inputs.input_piece(ids, self.tokenizer.eos_token_id) for ids, *_ in self.answer_pieces(rows, *names)
        ]

    def make_micro_batch(self, numbers: Iterable[int], *names: str) -> MicroBatch:
        """As `Preferences.make_micro_batch`, of what is read."""
        rows = [self.rows[number] for number in numbers]
        return micro_batch(self.scored_pieces(rows, *(names or self.trained_texts)), self.tokenizer.eos_token_id)


class ComparisonRun(PairRun):
    """Bradley and Terry's loss (stages/align/losses.py) on pairs of answers."""

    where, program, reader = STEP, "crawl2llm.stages.align.reward", Comparisons
    batches: Comparisons
    settings: RewardSettings

    @property
    def method(self) -> str:
        """Whose rows it takes."""
        return DPO

    def configuration(self, source: Path) -> Any:
        """As `Run.configuration`: the body of that model, with a head that gives one number."""
        key = f"models.{task_of(self.args.manifest)}.from"
        return reward_inputs.reward_config(super().configuration(source), self.tokenizer.eos_token_id, key)

    def memory_shape(self, config: Any) -> Shape:
        """As `Run.memory_shape`: there are no logits."""
        return replace(super().memory_shape(config), vocabulary=1)

    def prepare_training(self) -> None:
        """The held-out answers, first all chosen ones, then the others."""
        self.heldout_pieces = self.batches.scored_pieces(self.heldout_rows, CHOSEN, REJECTED)

    def update_by(self, step: int, batch: Any) -> Update:
        """The update of a step; `extra_metrics` has scores, margin, accuracy and lengths in tokens. A collective call."""
        numbers, batch = self.batches.row_numbers(step, self.rank), self.batches.micro_batches(step, self.rank)
        share = len(batch) * self.processes / len(self.batches.step_indices(step))
        # chosen and rejected: scores, tokens; pairs that are ordered rightly, pairs
        self.step_sums = torch.zeros(6, dtype=torch.float64)
        batch_losses: list[Loss] = [partial(self.micro_batch_loss, part, share) for part in numbers]
        update = self.engine.step_by([self.to_device(part) for part in batch], self.rate, batch_losses)
        *sums, number = self.sum_over_processes(self.step_sums).tolist()
        names = ("reward_chosen", "reward_rejected", "chosen_tokens", "rejected_tokens", "accuracy")
        means = {name: value / max(number, 1) for name, value in zip(names, sums, strict=True)}
        self.extra_metrics = {**means, "reward_margin": means["reward_chosen"] - means["reward_rejected"]}
        return update

    def micro_batch_loss(
        self, part: Sequence[int], share: float, scores: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """The loss of a micro-batch of the rows `part`, and what is shown of it. scores: fp32 [rows, 1]."""
        if not part:
            return scores.sum() * 0
        chosen, rejected = scores[:, 0].double().chunk(2)
        rows = [self.batches.rows[number] for number in part]
        tokens = [scored for _, scored, _ in self.batches.answer_pieces(rows, CHOSEN, REJECTED)]
        lengths = [float(sum(tokens[: len(part)])), float(sum(tokens[len(part) :]))]
        sums = [float(values.detach().sum()) for values in (chosen, rejected, losses.pairwise_wins(chosen, rejected))]
        self.step_sums += torch.tensor([*sums[:2], *lengths, sums[2], len(part)], dtype=torch.float64)
        return share * losses.bradley_terry_loss(chosen, rejected, self.settings.center_rewards).sum()

    def heldout_values(self) -> dict[str, float]:
        """Loss, accuracy and margin of the held-out pairs; their scores are in `heldout_scores`. A collective call."""
        if not self.heldout_rows:
            return {}
        scores = self.piece_values(self.heldout_pieces, lambda batch: self.engine.logits(batch[0])[:, 0])
        self.heldout_scores = chosen, rejected = scores.chunk(2)
        loss = losses.bradley_terry_loss(chosen, rejected, self.settings.center_rewards).mean()
        values = {"preference_loss": loss, "accuracy": losses.pairwise_wins(chosen, rejected).mean()}
        values["margin"] = (chosen - rejected).mean()
        return {f"heldout_{name}": float(value) for name, value in values.items()}

    def summary_facts(self) -> dict[str, Any]:
        """As `MeasuredRun.summary_facts`, with the error of the accuracy (over questions) and what length has to do with it.

        longer_accuracy: of the rule that the longer answer, in characters, is the better one. longer_preferred: the share of pairs in which
        the model scores the longer one higher. Ties count half, everywhere.
        """
        if not (rows := self.heldout_rows):
            return super().summary_facts()
        lengths = [torch.tensor([len(row[name]) for row in rows], dtype=torch.float64) for name in (CHOSEN, REJECTED)]
        ordered, longer = losses.pairwise_wins(*self.heldout_scores), losses.pairwise_wins(*lengths)
        stderr = standard_error(ordered.tolist(), [row["question"] for row in rows], self.settings.seed, STEP)
        agree = torch.where(longer == 0.5, 0.5, torch.where(longer == 1, ordered, 1 - ordered))
        more = {
            "heldout_accuracy_stderr": stderr,
            "longer_accuracy": float(longer.mean()),
            "longer_preferred": float(agree.mean()),
            "chosen_characters": float(lengths[0].mean()),
            "rejected_characters": float(lengths[1].mean()),
        }
        return super().summary_facts() | {
            name: None if value is None else round(value, DIGITS) for name, value in more.items()
        }
