"""One alignment, or one training of a reward model, on one process: a fine-tuning (training/pair_run.py) by another loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from crawl2llm.chain import model_registry
from crawl2llm.core.manifest import json_lines, write_atomically
from crawl2llm.stages.align.batches import KTO, Asked, Preferences, once, rows_for
from crawl2llm.stages.align.checks import check_chunks
from crawl2llm.stages.align.engine import ByLoss, kind
from crawl2llm.stages.align.pairs import Row
from crawl2llm.training import checkpoint, sampling
from crawl2llm.training.batch import MicroBatch
from crawl2llm.training.engine import Engine, Job
from crawl2llm.training.heldout import Piece
from crawl2llm.training.pair_batches import Cuts, cuts, dealt, micro_batch
from crawl2llm.training.pair_run import Run, check_answers

STEP = model_registry.ALIGN_STEP
SPOKEN, SPOKEN_FILE = 10, "prompts.jsonl"  # fixed prompts that are answered before and after, and their file


class Measured(Run):
    """What is trained by losses of its own, and measured before it takes the weights of a checkpoint."""

    batches: Asked
    heldout_rows: list[Row]
    engine: ByLoss
    engine_of: Callable[[str], type[ByLoss]] = staticmethod(kind)  # the class of an engine by its name

    def built(self, job: Job) -> Engine:
        """The engine, with the weights of the model that it is made from, and what `prepare` and `measure` find of these."""
        self.engine = self.engine_of(self.kind)(job)
        self.prepare()
        self.start = self.measure()
        return self.engine

    def prepare(self) -> None:
        """What is made once, with the weights of the model that it is made from. A collective call."""

    def begin(self, found: checkpoint.Checkpoint | None) -> dict[str, float]:
        """What `measure` found before the first step, of this start or of another."""
        return self.start

    def measure(self) -> dict[str, float]:
        """As `heldout_values`. A collective call."""
        return self.heldout_values()

    def heldout_values(self) -> dict[str, float]:
        """What is measured of the held-out rows, by its name in metrics.jsonl. A collective call."""
        raise NotImplementedError

    def step(self, step: int, stopping: bool) -> tuple[dict[str, Any], bool]:
        """As `Run.step`, and every `measure_every` steps what is measured."""
        found = super().step(step, stopping)
        if (every := self.args.measure_every) and step % every == 0 and step < self.steps:
            self.shown |= self.heldout_values()
        return found

    def moved(self, batch: MicroBatch) -> MicroBatch:
        """A micro-batch on the device."""
        return batch[0].to(self.device), batch[1].to(self.device)

    def by_piece(self, rows: Sequence[Piece], values: Callable[[MicroBatch], torch.Tensor]) -> torch.Tensor:
        """A number of each row: float64 [rows], the same on every process, on the CPU. A collective call.

        values: of a micro-batch on the device, [its rows]; a collective call.
        """
        # So that a batch needs little padding.
        order = sorted(range(len(rows)), key=lambda number: len(rows[number][0]))
        found = torch.zeros(len(rows), dtype=torch.float64, device=self.device)
        for turn in dealt(order, self.processes, self.batches.size * self.batches.rows_each):
            mine = turn[self.rank]
            batch = self.moved(micro_batch([rows[number] for number in mine], self.tokenizer.eos_token_id))
            found[mine] = values(batch)[: len(mine)].double()
        return self.summed(found)

    def summed(self, found: torch.Tensor) -> torch.Tensor:
        """The sum over processes, on the CPU. A collective call."""
        there = found.to(self.device)
        dist.all_reduce(there)
        return there.cpu()

    def facts(self) -> dict[str, Any]:
        """What the manifest's summary says of the rows, and of the held-out ones before and after."""
        found: dict[str, Any] = {"pairs": len(self.batches.rows), "heldout_pairs": len(self.heldout_rows)}
        for name, value in self.before.items():
            found |= {f"{name}_before": round(value, 6), f"{name}_after": round(self.after[name], 6)}
        return found


class OnPairs(Measured):
    """What is trained on preferences or on labelled answers: rows that `reader` takes from align.pairs."""

    reader: type[Preferences] = Preferences
    batches: Preferences

    def read(self, settings: dict[str, Any]) -> Preferences:
        """What is trained on; reads what is held out, too."""
        made = self.reader(self.args.pairs, self.tokenizer, settings, self.processes)
        self.heldout_fitted = made.fit(rows_for(made.method, self.args.pairs, "heldout")[0])
        self.heldout_rows = self.heldout_fitted.rows
        self.counted = "answers" if made.method == KTO else "pairs"
        return made

    def count_cuts(self) -> tuple[Cuts, Cuts]:
        """As `Run.count_cuts`, of all rows."""
        found = self.batches.cuts(), cuts(self.heldout_fitted)
        check_answers(found[0], self.settings["max_length"], self.where)
        return found


class Alignment(Measured):
    """What all methods of align.train share."""

    where, program = STEP, "crawl2llm.stages.align.train"

    def check(self, config: Any) -> None:
        """As `Run.check`, of `loss_chunk` too."""
        super().check(config)
        check_chunks(self.settings, f"{STEP}.loss_chunk")

    def built(self, job: Job) -> Engine:
        """As `Measured.built`; the fixed prompts are answered too."""
        self.spoken_of = self.batches.fit_prompts(once([*self.heldout_rows, *self.batches.rows])).rows[:SPOKEN]
        made = super().built(job)
        self.spoken_before = self.spoken
        return made

    def measure(self) -> dict[str, float]:
        """As `heldout_values`; the answers to the fixed prompts are in `spoken`. A collective call."""
        self.spoken = self.sampled(self.spoken_of, [("fixed", row["id"]) for row in self.spoken_of], 0.0)
        return self.heldout_values()

    def sampled(self, rows: Sequence[Row], keys: Sequence[tuple[Any, ...]], temperature: float) -> list[list[int]]:
        """The tokens of an answer to each row, drawn by its key; 0: always the likeliest. Shared out by the caller. A collective call."""
        most = self.settings["max_new_tokens"]
        draws = np.array([sampling.uniforms(self.settings["seed"], key, most) for key in keys]).reshape(len(rows), most)
        prompts = [self.batches.prompt(row) for row in rows]
        end = self.tokenizer.eos_token_id
        with self.engine.generating():
            at = torch.from_numpy(draws).to(self.device)
            return sampling.answers(self.engine.following, prompts, at, temperature, end, sampling.anywhere)

    def leave(self, out: Path) -> list[Path]:
        """Write the answers to the fixed prompts, before and after; the file."""
        rows = [
            {"question": row["question"], "before": self.batches.text(before), "after": self.batches.text(after)}
            for row, before, after in zip(self.spoken_of, self.spoken_before, self.spoken, strict=True)
        ]
        write_atomically(out / SPOKEN_FILE, json_lines(map(self.priced, rows)))
        return [out / SPOKEN_FILE]

    def priced(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of that file with what its answers are worth, where there are rewards."""
        return row

    def logps(self, rows: Sequence[Piece]) -> torch.Tensor:
        """The log-probability of each answer in nats: float64 [rows], the same on every process, on the CPU. A collective call."""
        return self.by_piece(rows, lambda batch: -self.engine.evaluate(*batch))

    def facts(self) -> dict[str, Any]:
        """As `Measured.facts`, with the method."""
        return {"method": self.settings["method"], **super().facts()}
