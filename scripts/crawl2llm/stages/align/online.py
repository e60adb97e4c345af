"""GRPO, RLOO and REINFORCE: a model learns from rewards of answers that it gives itself.

A step takes the next `batch_size` prompts, as fine-tuning takes pairs, and draws `generations` answers to each, by (seed, step, prompt,
number) alone. The reference is the model before the first step: engines keep it where they keep an EMA of the weights
(training/ema.py), which here stays where it began, shared out as the weights are, and in every checkpoint. Where an adapter is
trained it is the model without that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crawl2llm.core.errors import InputError
from crawl2llm.stages.align import losses, policy
from crawl2llm.stages.align.batches import PromptBatches, unique_questions
from crawl2llm.stages.align.checks import check_rewards
from crawl2llm.stages.align.engine import Loss
from crawl2llm.stages.align.pairs import Row, read_rows
from crawl2llm.stages.align.reward_model import RewardModel
from crawl2llm.stages.align.rewards import Rewards
from crawl2llm.stages.align.run import Alignment
from crawl2llm.stages.align.settings import RewardEntry, TrainSettings
from crawl2llm.training import adapters, memory
from crawl2llm.training.batch import IGNORE, MicroBatch
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.engine import Update
from crawl2llm.training.model_loading import model_name
from crawl2llm.training.pair_batches import Cuts, cut_counts, deal_micro_batches, micro_batch, tokenized_pairs
from crawl2llm.training.question_cuts import fit_pairs
from crawl2llm.training.template import Template

Answer = tuple[int, int]  # (place of a prompt in the step, number of the answer to it)
Parts = Sequence[Sequence[Answer]]  # of each of a process's micro-batches
REFERENCE_EMA = 0.5  # has engines keep the reference; no step moves it


class Prompts(PromptBatches):
    """The prompts of each step, and their answers on `processes` processes; `size` and `rounds` count answers."""

    settings: TrainSettings

    def __init__(self, manifest: Path, tokenizer: Any, settings: TrainSettings, processes: int) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        super().__init__(manifest, tokenizer, settings, processes)
        self.sequences = settings.batch_size * settings.generations
        self.rounds = math.ceil(self.sequences / (processes * settings.micro_batch))
        self.size = math.ceil(self.sequences / (processes * self.rounds))

    def read_training_rows(self, manifest: Path) -> tuple[list[Row], Template]:
        """The prompts that leave room for an answer, and how they are laid out."""
        rows, origin = read_rows(manifest, "train")
        self.template = layout_for(origin, self.tokenizer)
        prompts = unique_questions(rows)
        self.fitted = self.fit_prompts(prompts, self.settings.max_new_tokens)
        if not self.fitted.rows:
            room = f"max_length {self.settings.max_length} - max_new_tokens {self.settings.max_new_tokens}"
            raise InputError(
                f"none of the {len(prompts):,} prompts of align.pairs, cut to a token of the question, has at most align.train.{room} "
                "tokens: change these"
            )
        return self.fitted.rows, self.template

    def count_cuts(self) -> Cuts:
        """What `max_length` does to all prompts."""
        return cut_counts(self.fitted)

    def answer_numbers(self, step: int, rank: int) -> list[list[Answer]]:
        """The answers of each of a process's micro-batches; every process has as many micro-batches."""
        prompts = range(len(self.step_indices(step)))
        all_answers = [(place, answer) for place in prompts for answer in range(self.settings.generations)]
        return [turn[rank] for turn in deal_micro_batches(all_answers, self.processes, self.size)]


class RewardRun(Alignment):
    """GRPO, RLOO and REINFORCE."""

    batch_noun = row_noun = "prompts"
    batches: Prompts

    def read_batches(self) -> Prompts:
        """What is trained on; reads what is held out, too."""
        settings = self.settings
        check_rewards(settings, "align.train.{}".format)
        if not adapters.is_used(self.engine_settings):
            self.engine_settings = replace(self.engine_settings, ema=REFERENCE_EMA)
        prompts = Prompts(self.args.pairs, self.tokenizer, settings, self.processes)
        manifest_by_name = {model_name(path): path for path in self.args.rewards}

        def reward_model_of(entry: RewardEntry, key: str) -> RewardModel:
            if entry.name is None:
                assert entry.manifest is not None  # see rewards.check_entries
                return RewardModel(Path(entry.manifest), False, self.source, prompts.template, key)
            if entry.name not in manifest_by_name:
                allowed = ", ".join(manifest_by_name) or "none"
                raise InputError(f"{key}.name is {entry.name!r}; reward models that --rewards names: {allowed}")
            return RewardModel(manifest_by_name[entry.name], True, self.source, prompts.template, key)

        self.rewards = Rewards(settings.rewards, "align.train.rewards", reward_model_of)
        heldout = unique_questions(read_rows(self.args.pairs, "heldout")[0])
        self.heldout_fitted = prompts.fit_prompts(heldout, settings.max_new_tokens)
        self.heldout_rows = self.heldout_fitted.rows[: settings.heldout_prompts]
        return prompts

    def memory_shape(self, config: Any) -> memory.Shape:
        """As `Run.memory_shape`, of a model that draws answers, with the reward models that score these."""
        shape = super().memory_shape(config)
        judges = [judge.model for judge in self.rewards.calls if isinstance(judge, RewardModel)]
        return replace(
            shape,
            cached_layers=shape.layers,
            drawn_rows=self.settings.answers_at_once,
            reward_parameters=sum(p.numel() for model in judges for p in model.parameters()),
        )

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """What `max_length` does to all prompts, of training and held-out."""
        return self.batches.count_cuts(), cut_counts(self.heldout_fitted)

    def prepare_training(self) -> None:
        """The tokens of the answers that held-out rows have, by which the model's loss on them is measured."""
        self.rewards.move_to(self.device)
        template, length = self.batches.template, self.settings.max_length
        rows = fit_pairs([row for row in self.heldout_rows if "answer" in row], template, self.tokenizer, length).rows
        self.heldout_pieces = list(tokenized_pairs(rows, template, self.tokenizer, length))

    def answer_rewards(self, rows: Sequence[Row], answers: Sequence[Sequence[int]]) -> torch.Tensor:
        """The rewards of answers to rows, whether each ended by itself, and its tokens: float64 [answers, …]."""
        texts = [
            (row["question"], self.answer_text(ids), row.get("answer")) for row, ids in zip(rows, answers, strict=True)
        ]
        table = [
            [self.rewards.weighted_sum(values), *values, float(bool(ids) and ids[-1] in self.ends), float(len(ids))]
            for values, ids in zip(self.rewards.reward_values(texts), answers, strict=True)
        ]
        return torch.tensor(table, dtype=torch.float64).reshape(len(table), len(self.rewards.names) + 3)

    def reward_means(self, table: torch.Tensor) -> dict[str, float]:
        """The means of `answer_rewards` of answers, float64 [answers, …], by their names in metrics.jsonl."""
        total, *values, ended, tokens = table.mean(0).tolist()
        by_name = {f"reward/{name}": value for name, value in zip(self.rewards.names, values, strict=True)}
        return {"reward": total, **(by_name if len(by_name) > 1 else {}), "ended": ended, "answer_tokens": tokens}

    def update_by(self, step: int, batch: Any) -> Update:
        """The update of a step; `extra_metrics` has reward, divergence from the reference and lengths. A collective call."""
        settings, mine = self.settings, self.batches.answer_numbers(step, self.rank)
        rows = [self.batches.rows[number] for number in self.batches.step_indices(step)]
        generations = settings.generations
        batch, table = self._draw_answers(step, rows, mine)
        idle = self.idle_share()
        reference = self.reference_logprobs(batch)
        rewards = table[:, 0].reshape(len(rows), generations)
        flat = (rewards.std(1) == 0).double().mean() if generations > 1 else 0.0
        if settings.method != policy.GRPO and settings.kl_coefficient:
            rewards = rewards - self._kl_penalties(len(table), mine, batch, reference).reshape(rewards.shape)
        advantages = policy.advantages(rewards, settings.method).flatten()
        self.step_sums = torch.zeros(2, dtype=torch.float64)
        update = self.engine.step_by(batch, self.rate, self._batch_losses(mine, batch, reference, advantages))
        kl, total = self.sum_over_processes(self.step_sums).tolist()
        self.extra_metrics = {
            **self.reward_means(table),
            **idle,
            "kl": kl / max(1.0, total),
            "flat_groups": float(flat),
        }
        return update

    def _draw_answers(self, step: int, rows: Sequence[Row], mine: Parts) -> tuple[list[MicroBatch], torch.Tensor]:
        """(this process's micro-batches of answers `mine` to the step's rows, `answer_rewards` of all processes' answers). A collective
        call.
        """
        generations, batch = self.settings.generations, list[MicroBatch]()
        table = torch.zeros(len(rows) * generations, len(self.rewards.names) + 3, dtype=torch.float64)
        parts = [
            ([rows[place] for place, _ in part], [("answer", step, *numbers) for numbers in part]) for part in mine
        ]
        drawn = self.sample_parts(parts, self.settings.temperature)
        for part, (part_rows, _), answers in zip(mine, parts, drawn, strict=True):
            batch.append(self.make_micro_batch(part_rows, answers))
            table[[place * generations + answer for place, answer in part]] = self.answer_rewards(part_rows, answers)
        return batch, self.sum_over_processes(table)

    def idle_share(self) -> dict[str, float]:
        """Of the positions that all processes computed for the answers drawn last, the share of padding and of what came behind an end: as
        `idle_positions`; empty if they were not drawn in slots. A collective call.
        """
        if self.positions is None:
            return {}
        counts = torch.tensor([self.positions.idle, self.positions.computed], dtype=torch.float64)
        idle, computed = self.sum_over_processes(counts).tolist()
        return {"idle_positions": idle / max(1.0, computed)}

    def _kl_penalties(
        self, answers: int, mine: Parts, batch: Sequence[MicroBatch], reference: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """What the divergence of each of the step's `answers` costs: float64 [answers]. A collective call."""
        generations = self.settings.generations
        kl = torch.zeros(answers, dtype=torch.float64)
        for part, part_batch, part_reference in zip(mine, batch, reference, strict=True):
            ratios = (self.token_logprobs(part_batch) - part_reference).sum(1).double().cpu()
            for row, (place, answer) in enumerate(part):
                kl[place * generations + answer] = ratios[row]
        return self.sum_over_processes(kl) * self.settings.kl_coefficient

    def _batch_losses(
        self, mine: Parts, batch: Sequence[MicroBatch], reference: Sequence[torch.Tensor], advantages: torch.Tensor
    ) -> list[Loss]:
        """The loss of each micro-batch. advantages: float64 [answers of the step]. A collective call."""
        tokens = sum(int((targets != IGNORE).sum()) for _, targets in batch)
        token_count = float(self.sum_over_processes(torch.tensor([float(tokens)], dtype=torch.float64)))
        by_token = self.settings.method == policy.GRPO
        share = len(batch) * self.processes / (max(1.0, token_count) if by_token else len(advantages))
        batch_losses: list[Loss] = []
        for part, part_reference in zip(mine, reference, strict=True):
            numbers = [place * self.settings.generations + answer for place, answer in part]
            batch_losses.append(
                partial(self.micro_batch_loss, advantages[numbers].to(self.device), part_reference, share)
            )
        return batch_losses

    def make_micro_batch(self, rows: Sequence[Row], answers: Sequence[Sequence[int]]) -> MicroBatch:
        """A micro-batch of questions and drawn answers, of whose tokens all count."""
        prompts = [self.batches.prompt_ids(row) for row in rows]
        answer_pieces = [
            (np.array([*prompt, *ids], np.int64), len(ids), 0) for prompt, ids in zip(prompts, answers, strict=True)
        ]
        return self.to_device(micro_batch(answer_pieces, self.tokenizer.eos_token_id))

    def token_logprobs(self, batch: MicroBatch) -> torch.Tensor:
        """The log-probability of each answer's token as it was drawn: fp32 [n, length]. A collective call."""
        return losses.target_logprobs(self.engine.logits(batch[0]) / self.settings.temperature, batch[1])

    def reference_logprobs(self, batch: Sequence[MicroBatch]) -> list[torch.Tensor]:
        """The same of the model before the first step. A collective call."""
        with adapters.without_adapter(self.engine.model) if self.adapted else self.engine.using_ema():
            return [self.token_logprobs(part) for part in batch]

    def micro_batch_loss(
        self,
        advantages: torch.Tensor,
        reference: torch.Tensor,
        share: float,
        logits: torch.Tensor,
        targets: torch.Tensor,
    ) -> torch.Tensor:
        """The loss of a micro-batch of answers by their advantages, and what is shown of it."""
        logprobs, mask = losses.target_logprobs(logits / self.settings.temperature, targets), targets != IGNORE
        if not len(advantages):
            return logprobs.sum() * 0
        with torch.no_grad():
            self.step_sums[0] += float((policy.kl_estimate(logprobs, reference) * mask).sum())
            self.step_sums[1] += int(mask.sum())
        if self.settings.method == policy.GRPO:
            return share * policy.token_loss(logprobs, reference, mask, advantages, self.settings.kl_coefficient)
        return share * policy.answer_loss(logprobs, mask, advantages)

    def heldout_values(self) -> dict[str, float]:
        """Rewards of answers to the held-out prompts, drawn as in training, and the loss on the answers that these have, in nats a token.

        The same draws each time. A collective call.
        """
        rows = self.heldout_rows
        if not rows:
            return {}
        table = torch.zeros(len(rows), len(self.rewards.names) + 3, dtype=torch.float64)
        mine = [turn[self.rank] for turn in deal_micro_batches(range(len(rows)), self.processes, self.batches.size)]
        parts = [
            ([rows[number] for number in part], [("heldout", rows[number]["id"]) for number in part]) for part in mine
        ]
        drawn = self.sample_parts(parts, self.settings.temperature)
        for part, (part_rows, _), answers in zip(mine, parts, drawn, strict=True):
            table[part] = self.answer_rewards(part_rows, answers)
        out = {f"heldout_{name}": value for name, value in self.reward_means(self.sum_over_processes(table)).items()}
        tokens = sum(scored for _, scored, _ in self.heldout_pieces)
        return out | (
            {"heldout_answer_loss": -float(self.answer_logprobs(self.heldout_pieces).sum()) / tokens} if tokens else {}
        )

    def with_rewards(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the fixed prompts with the rewards of its answers."""
        references = {prompt["question"]: prompt.get("answer") for prompt in self.fixed_prompts}
        values = [
            self.rewards.answer_values(row["question"], row[when], references[row["question"]])
            for when in ("before", "after")
        ]
        return {
            **row,
            "reward_before": self.rewards.weighted_sum(values[0]),
            "reward_after": self.rewards.weighted_sum(values[1]),
        }
