"""GRPO, RLOO and REINFORCE: a model learns from rewards of answers that it gives itself.

A step takes the next `batch_size` prompts, as fine-tuning takes pairs, and draws `generations` answers to each, by (seed, step, prompt,
number) alone. The reference is the model before the first step: engines keep it where they keep a mean of the weights
(training/average.py), which here stays where it began, shared out as the weights are, and in every checkpoint. Where an adapter is
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
from crawl2llm.stages.align.batches import Asked, once
from crawl2llm.stages.align.checks import check_rewards
from crawl2llm.stages.align.engine import Loss
from crawl2llm.stages.align.pairs import Row, read_rows
from crawl2llm.stages.align.reward_model import RewardModel
from crawl2llm.stages.align.rewards import Rewards
from crawl2llm.stages.align.run import Alignment
from crawl2llm.training import adapters, memory
from crawl2llm.training.batch import IGNORE, MicroBatch
from crawl2llm.training.engine import Update
from crawl2llm.training.model_loading import name
from crawl2llm.training.pair_batches import Cuts, cuts, dealt, micro_batch, pieces
from crawl2llm.training.question_cuts import fit_pairs
from crawl2llm.training.template import Template

Answer = tuple[int, int]  # (place of a prompt in the step, number of the answer to it)
Parts = Sequence[Sequence[Answer]]  # of each of a process's micro-batches
KEPT = {"ema": 0.5}  # has engines keep the reference; no step moves it


class Prompts(Asked):
    """The prompts of each step, and their answers on `processes` processes; `size` and `rounds` count answers."""

    def __init__(self, manifest: Path, tokenizer: Any, settings: dict[str, Any], processes: int) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        super().__init__(manifest, tokenizer, settings, processes)
        self.sequences = settings["batch_size"] * settings["generations"]
        self.rounds = math.ceil(self.sequences / (processes * settings["micro_batch"]))
        self.size = math.ceil(self.sequences / (processes * self.rounds))

    def read(self, manifest: Path) -> tuple[list[Row], Template]:
        """The prompts that leave room for an answer, and how they are laid out."""
        rows, self.template = read_rows(manifest, "train")
        every = once(rows)
        self.fitted = self.fit_prompts(every)
        if not self.fitted.rows:
            room = f"max_length {self.settings['max_length']} - max_new_tokens {self.settings['max_new_tokens']}"
            raise InputError(
                f"none of the {len(every):,} prompts of align.pairs, cut to a token of the question, has at most align.train.{room} "
                "tokens: change these"
            )
        return self.fitted.rows, self.template

    def cuts(self) -> Cuts:
        """What `max_length` does to all prompts."""
        return cuts(self.fitted)

    def answers(self, step: int, rank: int) -> list[list[Answer]]:
        """The answers of each of a process's micro-batches; every process has as many micro-batches."""
        prompts = range(len(self.order(step)))
        every = [(place, answer) for place in prompts for answer in range(self.settings["generations"])]
        return [turn[rank] for turn in dealt(every, self.processes, self.size)]


class ByReward(Alignment):
    """GRPO, RLOO and REINFORCE."""

    batch = counted = "prompts"
    batches: Prompts

    def read(self, settings: dict[str, Any]) -> Prompts:
        """What is trained on; reads what is held out, too."""
        check_rewards(settings, "align.train.{}".format)
        if not adapters.wanted(self.settings):
            self.settings |= KEPT
        made = Prompts(self.args.pairs, self.tokenizer, settings, self.processes)
        given = {name(path): path for path in self.args.rewards}

        def scorer(entry: dict[str, Any], key: str) -> RewardModel:
            own = "name" in entry
            if own and entry["name"] not in given:
                there = ", ".join(given) or "none"
                raise InputError(f"{key}.name is {entry['name']!r}; reward models that --rewards names: {there}")
            found = given[entry["name"]] if own else Path(entry["manifest"])
            return RewardModel(found, own, self.source, made.template, key)

        self.rewards = Rewards(settings["rewards"], "align.train.rewards", scorer)
        heldout = once(read_rows(self.args.pairs, "heldout")[0])
        self.heldout_fitted = made.fit_prompts(heldout)
        self.heldout_rows = self.heldout_fitted.rows[: settings["heldout_prompts"]]
        return made

    def shape(self, config: Any) -> memory.Shape:
        """As `Run.shape`, of a model that draws answers, with the reward models that score these."""
        found = super().shape(config)
        judges = [judge.model for judge in self.rewards.calls if isinstance(judge, RewardModel)]
        return replace(found, drawn=found.layers, scored=sum(p.numel() for model in judges for p in model.parameters()))

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """What `max_length` does to all prompts, of training and held-out."""
        return self.batches.cuts(), cuts(self.heldout_fitted)

    def prepare(self) -> None:
        """The tokens of the answers that held-out rows have, by which the model's loss on them is measured."""
        self.rewards.place(self.device)
        template, length = self.batches.template, self.settings["max_length"]
        rows = fit_pairs([row for row in self.heldout_rows if "answer" in row], template, self.tokenizer, length).rows
        self.heldout_pieces = list(pieces(rows, template, self.tokenizer, length))

    def worth(self, rows: Sequence[Row], answers: Sequence[Sequence[int]]) -> torch.Tensor:
        """The rewards of answers to rows, whether each ended by itself, and its tokens: float64 [answers, …]."""
        asked = [
            (row["question"], self.batches.text(ids), row.get("answer")) for row, ids in zip(rows, answers, strict=True)
        ]
        end = self.tokenizer.eos_token_id
        found = [
            [self.rewards.total(each), *each, float(bool(ids) and ids[-1] == end), float(len(ids))]
            for each, ids in zip(self.rewards.every(asked), answers, strict=True)
        ]
        return torch.tensor(found, dtype=torch.float64).reshape(len(found), len(self.rewards.names) + 3)

    def judged(self, found: torch.Tensor) -> dict[str, float]:
        """The means of `worth` of answers, float64 [answers, …], by their names in metrics.jsonl."""
        total, *each, ended, tokens = found.mean(0).tolist()
        named = {f"reward/{name}": value for name, value in zip(self.rewards.names, each, strict=True)}
        return {"reward": total, **(named if len(named) > 1 else {}), "ended": ended, "answer_tokens": tokens}

    def update_by(self, step: int) -> Update:
        """The update of a step; `shown` has reward, divergence from the reference and lengths. A collective call."""
        settings, mine = self.settings, self.batches.answers(step, self.rank)
        rows, many = [self.batches.rows[number] for number in self.batches.order(step)], settings["generations"]
        batch, found = self._drawn(step, rows, mine)
        reference = self.reference(batch)
        rewards = found[:, 0].reshape(len(rows), many)
        flat = (rewards.std(1) == 0).double().mean() if many > 1 else 0.0
        if settings["method"] != policy.GRPO and settings["kl_coefficient"]:
            rewards = rewards - self._penalty(len(found), mine, batch, reference).reshape(rewards.shape)
        advantages = policy.advantages(rewards, settings["method"]).flatten()
        self.seen = torch.zeros(2, dtype=torch.float64)
        update = self.engine.step_by(batch, self.rate, self._losses(mine, batch, reference, advantages))
        kl, total = self.summed(self.seen).tolist()
        self.shown = {**self.judged(found), "kl": kl / max(1.0, total), "flat_groups": float(flat)}
        return update

    def _drawn(self, step: int, rows: Sequence[Row], mine: Parts) -> tuple[list[MicroBatch], torch.Tensor]:
        """(this process's micro-batches of answers `mine` to the step's rows, `worth` of all processes' answers). A collective call."""
        many, batch = self.settings["generations"], list[MicroBatch]()
        found = torch.zeros(len(rows) * many, len(self.rewards.names) + 3, dtype=torch.float64)
        for part in mine:
            asked, keys = [rows[place] for place, _ in part], [("answer", step, *one) for one in part]
            drawn = self.sampled(asked, keys, self.settings["temperature"])
            batch.append(self.laid_out(asked, drawn))
            found[[place * many + answer for place, answer in part]] = self.worth(asked, drawn)
        return batch, self.summed(found)

    def _penalty(
        self, answers: int, mine: Parts, batch: Sequence[MicroBatch], reference: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """What the divergence of each of the step's `answers` costs: float64 [answers]. A collective call."""
        many = self.settings["generations"]
        kl = torch.zeros(answers, dtype=torch.float64)
        for part, one, of in zip(mine, batch, reference, strict=True):
            ratios = (self.logps_of(one) - of).sum(1).double().cpu()
            for row, (place, answer) in enumerate(part):
                kl[place * many + answer] = ratios[row]
        return self.summed(kl) * self.settings["kl_coefficient"]

    def _losses(
        self, mine: Parts, batch: Sequence[MicroBatch], reference: Sequence[torch.Tensor], advantages: torch.Tensor
    ) -> list[Loss]:
        """The loss of each micro-batch. advantages: float64 [answers of the step]. A collective call."""
        tokens = sum(int((targets != IGNORE).sum()) for _, targets in batch)
        counted = float(self.summed(torch.tensor([float(tokens)], dtype=torch.float64)))
        by_token = self.settings["method"] == policy.GRPO
        share = len(batch) * self.processes / (max(1.0, counted) if by_token else len(advantages))
        found: list[Loss] = []
        for part, of in zip(mine, reference, strict=True):
            own = [place * self.settings["generations"] + answer for place, answer in part]
            found.append(partial(self.of, advantages[own].to(self.device), of, share))
        return found

    def laid_out(self, rows: Sequence[Row], answers: Sequence[Sequence[int]]) -> MicroBatch:
        """A micro-batch of questions and drawn answers, of whose tokens all count."""
        prompts = [self.batches.prompt(row) for row in rows]
        held = [
            (np.array([*prompt, *ids], np.int64), len(ids), 0) for prompt, ids in zip(prompts, answers, strict=True)
        ]
        return self.moved(micro_batch(held, self.tokenizer.eos_token_id))

    def logps_of(self, batch: MicroBatch) -> torch.Tensor:
        """The log-probability of each answer's token as it was drawn: fp32 [n, length]. A collective call."""
        return losses.by_token(self.engine.logits(batch[0]) / self.settings["temperature"], batch[1])

    def reference(self, batch: Sequence[MicroBatch]) -> list[torch.Tensor]:
        """The same of the model before the first step. A collective call."""
        with adapters.off(self.engine.model) if self.adapted else self.engine.averaged():
            return [self.logps_of(part) for part in batch]

    def of(
        self,
        advantages: torch.Tensor,
        reference: torch.Tensor,
        share: float,
        logits: torch.Tensor,
        targets: torch.Tensor,
    ) -> torch.Tensor:
        """The loss of a micro-batch of answers by their advantages, and what is shown of it."""
        own, counted = losses.by_token(logits / self.settings["temperature"], targets), targets != IGNORE
        if not len(advantages):
            return own.sum() * 0
        with torch.no_grad():
            self.seen[0] += float((policy.divergence(own, reference) * counted).sum())
            self.seen[1] += int(counted.sum())
        if self.settings["method"] == policy.GRPO:
            return share * policy.by_tokens(own, reference, counted, advantages, self.settings["kl_coefficient"])
        return share * policy.by_answers(own, counted, advantages)

    def heldout_values(self) -> dict[str, float]:
        """Rewards of answers to the held-out prompts, drawn as in training, and the loss on the answers that these have, in nats a token.

        The same draws each time. A collective call.
        """
        rows = self.heldout_rows
        if not rows:
            return {}
        found = torch.zeros(len(rows), len(self.rewards.names) + 3, dtype=torch.float64)
        for turn in dealt(range(len(rows)), self.processes, self.batches.size):
            part = turn[self.rank]
            some = [rows[number] for number in part]
            drawn = self.sampled(some, [("heldout", row["id"]) for row in some], self.settings["temperature"])
            found[part] = self.worth(some, drawn)
        out = {f"heldout_{name}": value for name, value in self.judged(self.summed(found)).items()}
        tokens = sum(scored for _, scored, _ in self.heldout_pieces)
        return out | ({"heldout_answer_loss": -float(self.logps(self.heldout_pieces).sum()) / tokens} if tokens else {})

    def priced(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the fixed prompts with the rewards of its answers."""
        known = {one["question"]: one.get("answer") for one in self.spoken_of}
        each = [self.rewards.each(row["question"], row[when], known[row["question"]]) for when in ("before", "after")]
        return {**row, "reward_before": self.rewards.total(each[0]), "reward_after": self.rewards.total(each[1])}
