"""One alignment, or one training of a reward model, on one process: a fine-tuning (training/pair_run.py) by another loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.chain import model_registry
from crawl2llm.core.manifest import json_lines, write_atomically
from crawl2llm.stages.align.batches import KTO, Preferences, PromptBatches, rows_for, unique_questions
from crawl2llm.stages.align.checks import check_chunks
from crawl2llm.stages.align.engine import LossEngine, engine_class
from crawl2llm.stages.align.heldout_measures import HeldoutMeasures
from crawl2llm.stages.align.pairs import Row
from crawl2llm.stages.align.settings import RewardSettings, TrainSettings
from crawl2llm.training import checkpoint, sampling, slots
from crawl2llm.training.batch import MicroBatch
from crawl2llm.training.end_tokens import answer_text, further_ends_in
from crawl2llm.training.engine import Engine, Job
from crawl2llm.training.heldout import Piece
from crawl2llm.training.pair_batches import Cuts, cut_counts, deal_micro_batches, micro_batch
from crawl2llm.training.pair_run import Run, check_answers

STEP = model_registry.ALIGN_STEP
FIXED_PROMPTS = 10  # prompts that are answered before and after
FIXED_PROMPTS_FILE = "prompts.jsonl"


class MeasuredRun(Run):
    """What is trained by losses of its own, and measured before it takes the weights of a checkpoint."""

    batches: PromptBatches
    settings: TrainSettings | RewardSettings
    heldout_rows: list[Row]
    engine: LossEngine
    engine_of: Callable[[str], type[LossEngine]] = staticmethod(engine_class)  # the class of an engine by its name

    def build_engine(self, job: Job) -> Engine:
        """The engine with the weights of the model that it is made from, prepared, and measured on the held-out rows."""
        self.engine = self.engine_of(self.kind)(job)
        self.prepare_training()
        self.start = self.measure_heldout()
        if every := self.settings.measure_every:
            self.extra_callbacks = [
                HeldoutMeasures(every, self.steps, self.heldout_values, self.show_measures, self.room)
            ]
        return self.engine

    def show_measures(self, measures: dict[str, float]) -> None:
        """Have the step's row of metrics.jsonl say what was measured."""
        self.extra_metrics |= measures

    def prepare_training(self) -> None:
        """What is made once, with the weights of the model that it is made from. A collective call."""

    def measure_before(self, resume_point: checkpoint.Checkpoint | None) -> dict[str, float]:
        """What `measure_heldout` found before the first step, of this start or of another."""
        return self.start

    def measure_heldout(self) -> dict[str, float]:
        """As `heldout_values`. A collective call."""
        return self.heldout_values()

    def heldout_values(self) -> dict[str, float]:
        """What is measured of the held-out rows, by its name in metrics.jsonl. A collective call."""
        raise NotImplementedError

    def next_batch(self, step: int) -> None:
        """Nothing: an update reads, or draws, its own."""

    def to_device(self, batch: MicroBatch) -> MicroBatch:
        """A micro-batch on the device."""
        return batch[0].to(self.device), batch[1].to(self.device)

    def piece_values(self, rows: Sequence[Piece], values: Callable[[MicroBatch], torch.Tensor]) -> torch.Tensor:
        """A number of each row: float64 [rows], the same on every process, on the CPU. A collective call.

        values: of a micro-batch on the device, [its rows]; a collective call.
        """
        # So that a batch needs little padding.
        order = sorted(range(len(rows)), key=lambda number: len(rows[number][0]))
        results = torch.zeros(len(rows), dtype=torch.float64, device=self.device)
        for turn in deal_micro_batches(order, self.processes, self.batches.size * self.batches.rows_each):
            mine = turn[self.rank]
            batch = self.to_device(micro_batch([rows[number] for number in mine], self.tokenizer.eos_token_id))
            results[mine] = values(batch)[: len(mine)].double()
        return self.sum_over_processes(results)

    def sum_over_processes(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over processes, on the CPU. A collective call."""
        total = tensor.to(self.device)
        dist.all_reduce(total)
        return total.cpu()

    def summary_facts(self) -> dict[str, Any]:
        """What the manifest's summary says of the rows, and of the held-out ones before and after."""
        facts: dict[str, Any] = {"pairs": len(self.batches.rows), "heldout_pairs": len(self.heldout_rows)}
        for name, value in self.before.items():
            facts |= {f"{name}_before": round(value, 6), f"{name}_after": round(self.after[name], 6)}
        return facts


class PairRun(MeasuredRun):
    """What is trained on preferences or on labelled answers: rows that `reader` takes from align.pairs."""

    reader: type[Preferences] = Preferences
    batches: Preferences

    @property
    def method(self) -> str:
        """The method of align.train whose rows it takes."""
        raise NotImplementedError

    def read_batches(self) -> Preferences:
        """What is trained on; reads what is held out, too."""
        batches = self.reader(self.args.pairs, self.tokenizer, self.settings, self.processes, self.method)
        self.heldout_fitted = batches.fit_rows(rows_for(batches.method, self.args.pairs, "heldout")[0])
        self.heldout_rows = self.heldout_fitted.rows
        self.row_noun = "answers" if batches.method == KTO else "pairs"
        return batches

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """As `Run.count_cuts`, of all rows."""
        counts = self.batches.count_cuts(), cut_counts(self.heldout_fitted)
        check_answers(counts[0], self.settings.max_length, self.where)
        return counts


class Alignment(MeasuredRun):
    """What all methods of align.train share."""

    where, program = STEP, "crawl2llm.stages.align.train"
    settings: TrainSettings
    positions: slots.Positions | None = None  # of the answers that were drawn last, in slots

    def check_settings(self, config: Any) -> None:
        """As `Run.check_settings`, of `loss_chunk` too."""
        super().check_settings(config)
        check_chunks(self.settings, f"{STEP}.loss_chunk")

    def build_engine(self, job: Job) -> Engine:
        """As `MeasuredRun.build_engine`; the fixed prompts are answered too."""
        questions = unique_questions([*self.heldout_rows, *self.batches.rows])
        self.fixed_prompts = self.batches.fit_prompts(questions, self.settings.max_new_tokens).rows[:FIXED_PROMPTS]
        built_engine = super().build_engine(job)
        self.answers_before = self.fixed_answers
        return built_engine

    def measure_heldout(self) -> dict[str, float]:
        """As `heldout_values`; the answers to the fixed prompts are in `fixed_answers`. A collective call."""
        self.fixed_answers = self.sample_answers(
            self.fixed_prompts, [("fixed", row["id"]) for row in self.fixed_prompts], 0.0
        )
        return self.heldout_values()

    def sample_answers(
        self, rows: Sequence[Row], keys: Sequence[tuple[Any, ...]], temperature: float
    ) -> list[list[int]]:
        """The tokens of an answer to each row, drawn by its key; 0: always the likeliest. Shared out by the caller. A collective call."""
        return self.sample_parts([(rows, keys)], temperature)[0]

    def sample_parts(
        self, parts: Sequence[tuple[Sequence[Row], Sequence[tuple[Any, ...]]]], temperature: float
    ) -> list[list[list[int]]]:
        """The same of several parts, each rows and their keys: drawn in slots if `answers_at_once` says so, or on a GPU; otherwise one part
        after the other. A collective call.
        """
        at_once = self.settings.answers_at_once
        if not at_once and self.device.type == "cuda":
            at_once = self.batches.size * self.batches.rows_each
        choice = sampling.Choice(self.ends[0], temperature, further_ends=self.ends[1:])
        sizes = [len(rows) for rows, _ in parts]
        calls = [([row for rows, _ in parts for row in rows], [key for _, keys in parts for key in keys])]
        answers: list[list[int]] = []
        with self.engine.answer_drawer(choice, self.device, at_once) as drawer:
            for rows, keys in calls if isinstance(drawer, slots.SlotDrawer) else parts:
                draws = sampling.draw_table(self.settings.seed, keys, self.settings.max_new_tokens)
                prompts = [self.batches.prompt_ids(row) for row in rows]
                answers += [answer.ids for answer in drawer.draw(prompts, draws)]
        self.positions = drawer.positions if isinstance(drawer, slots.SlotDrawer) else None
        ends = list(accumulate(sizes))
        return [answers[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end an answer: the tokenizer's, and further ones of the model that it is made from."""
        end = self.tokenizer.eos_token_id
        return (end, *further_ends_in(self.source, end))

    def answer_text(self, ids: Sequence[int]) -> str:
        """What an answer says, without its end token."""
        return answer_text(self.tokenizer, ids, self.ends[1:])

    def write_extra_files(self, out: Path) -> list[Path]:
        """Write the answers to the fixed prompts, before and after; the file."""
        rows = [
            {
                "question": row["question"],
                "before": self.answer_text(before),
                "after": self.answer_text(after),
            }
            for row, before, after in zip(self.fixed_prompts, self.answers_before, self.fixed_answers, strict=True)
        ]
        write_atomically(out / FIXED_PROMPTS_FILE, json_lines(map(self.with_rewards, rows)))
        return [out / FIXED_PROMPTS_FILE]

    def with_rewards(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of that file with what its answers are worth, if there are rewards."""
        return row

    def answer_logprobs(self, rows: Sequence[Piece]) -> torch.Tensor:
        """The log-probability of each answer in nats: float64 [rows], the same on every process, on the CPU. A collective call."""
        return self.piece_values(rows, lambda batch: -self.engine.evaluate(*batch))

    def summary_facts(self) -> dict[str, Any]:
        """As `MeasuredRun.summary_facts`, with the method."""
        return {"method": self.settings.method, **super().summary_facts()}
