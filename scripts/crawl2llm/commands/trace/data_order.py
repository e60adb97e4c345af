"""When a training read which tokens: from the seed and the step, so the same for any number of processes.

A step's windows are asked of what the trainer asks (data.py and mix_reader.py of training), with what it left out where it went back to
a checkpoint (training/rollback.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import config_schema, steps
from crawl2llm.commands.trace.results import Results, one
from crawl2llm.core.errors import InputError
from crawl2llm.training import auto, data, mix_reader, schedule
from crawl2llm.training.data import Tokens
from crawl2llm.training.schedule import Plan

TRAIN = "pretrain.train"
AT_ONCE = 1 << 20  # windows whose steps are compared together


@dataclass(frozen=True)
class Piece:
    """Tokens of a document in the training stream: [start, end), and where the shard's dataset of its source begins."""

    document: str
    shard: str
    source: str
    start: int
    end: int


class Reading:
    """The order in which a training read its stream.

    tokens: manifests of tokenize.encode. mix: the manifest of pretrain.mix, where the run has it. first, last: the steps that it took.
    rolled: where it went back (`from`, `to`, and `sequences` that it left out). Raises InputError for a mix of another stream.
    """

    def __init__(
        self,
        tokens: list[Path],
        plan: Plan,
        seed: int,
        mix: Path | None = None,
        steps: tuple[int, int] | None = None,
        rolled: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.tokens, self.plan, self.context, self.seed = tokens, plan, plan.context, seed
        self.stream = data.open_split(tokens, "train")
        self.first, self.last = steps or (1, plan.steps)
        self.rolled = rolled
        self.mix = mix_reader.Mixed(mix, self.stream, plan, seed) if mix else None

    def check(self, step: int) -> None:
        """InputError for a step that the training did not take."""
        if not self.first <= step <= self.last:
            raise InputError(f"--step is {step}; the training took the steps {self.first} to {self.last}")

    def windows(self, step: int) -> Tokens:
        """The windows of a step's global batch, [sequences]; of a step that was taken again, those of the last time."""
        first, sequences = self.plan.span(step)
        ahead = sum(each["sequences"] for each in self.rolled if step > each["to"])
        if self.mix:
            return self.mix.windows(first + ahead, sequences)
        return data.windows_from(first + ahead, sequences, self.plan.windows, self.seed)

    def places(self, windows: Tokens) -> list[tuple[int, int]]:
        """The places [start, end) in the stream that windows hold, in order, without those that lie in others."""
        if self.mix:
            spans = [(start, start + size) for window in windows.tolist() for start, size in self.mix.pieces(window)]
        else:
            spans = [(window * self.context, (window + 1) * self.context + 1) for window in windows.tolist()]
        out: list[tuple[int, int]] = []
        for start, end in sorted(set(spans)):
            if out and start <= out[-1][1]:
                out[-1] = (out[-1][0], max(end, out[-1][1]))
            else:
                out.append((start, end))
        return out

    def holding(self, start: int, end: int) -> Tokens:
        """The windows, in order, that hold any of the tokens [start, end) of the stream."""
        if not self.mix:
            return _between(start, end, self.context, self.plan.windows)
        found = []
        for group, stop in enumerate(self.mix.ends.tolist()):
            begin = int(self.mix.ends[group - 1]) if group else 0
            streams, insides = self.mix.spans[0, begin:stop], self.mix.spans[1, begin:stop]
            number = int(np.searchsorted(streams, start, side="right")) - 1
            if number < 0:
                continue
            place = int(insides[number]) + start - int(streams[number])
            if number + 1 < stop - begin and place >= int(insides[number + 1]):
                continue  # between two of the group's spans: another group's
            windows = int(self.mix.order.sizes[group])
            found.append(self.mix.order.bases[group] + _between(place, place + end - start, self.context, windows))
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def steps(self, start: int, end: int) -> list[int]:
        """The steps that read any of the tokens [start, end) of the stream, in order; of a step that was taken again, the last time."""
        wanted = self.holding(start, end)
        if not len(wanted):
            return []
        found: list[int] = []
        for some in self._runs():
            windows = np.concatenate([self.windows(step) for step in some])
            of = np.repeat(np.array(list(some)), [self.plan.span(step)[1] for step in some])
            found += np.unique(of[np.isin(windows, wanted)]).tolist()
        return found

    def _runs(self) -> Iterator[range]:
        each = max(1, AT_ONCE // self.plan.sequences)
        for first in range(self.first, self.last + 1, each):
            yield range(first, min(first + each, self.last + 1))

    def documents(self, spans: list[tuple[int, int]]) -> Iterator[Piece]:
        """What lies at places of the stream, in its order, cut to them: the documents whose tokens these are."""
        starts, ends = (
            (np.array(part, np.int64) for part in zip(*spans, strict=True)) if spans else (np.empty(0, np.int64),) * 2
        )
        for shard, source, path, base, size in mix_reader.files(self.tokens):
            if not ((starts < base + size) & (ends > base)).any():
                continue
            for batch in data.batches(path, ["id", "offset", "tokens"]):
                begins = base + batch.column("offset").to_numpy()
                stops = begins + batch.column("tokens").to_numpy()
                names = batch.column("id")
                first = np.searchsorted(ends, begins, side="right")
                last = np.searchsorted(starts, stops, side="left")
                for row in np.flatnonzero(first < last).tolist():
                    for number in range(int(first[row]), int(last[row])):
                        low, high = max(int(starts[number]), int(begins[row])), min(int(ends[number]), int(stops[row]))
                        yield Piece(names[row].as_py(), shard, source, low, high)

    def place(self, document: str) -> Piece | None:
        """Where a document's tokens are in the training stream; None where it has none."""
        for shard, source, path, base, _ in mix_reader.files(self.tokens):
            if row := one(path, document):
                return Piece(document, shard, source, base + row["offset"], base + row["offset"] + row["tokens"])
        return None

    def file_of(self, shard: str, source: str | None) -> tuple[int, int, Path]:
        """(first token in the stream, tokens, .docs.parquet) of a shard's dataset of a source. Raises InputError for another."""
        found = {(name, of): (base, size, path) for name, of, path, base, size in mix_reader.files(self.tokens)}
        some = [key for key in found if key[0] == shard and source in (None, key[1])]
        if len(some) != 1:
            known = ", ".join(f"{name}:{of}" for name, of in found)
            raise InputError(
                f"--tokens names {shard}{f':{source}' if source else ''}; the training stream has {known}; write "
                "SHARD:SOURCE:OFFSET, such as 00000:demo:1234"
            )
        return found[some[0]]


def of(results: Results) -> Reading:
    """The order in which the base model of a variant read its corpus. Raises InputError where no training has ended."""
    made = results.made(TRAIN)
    if made is None:
        raise InputError(f"{results.path(TRAIN)} is not there: no training has ended whose steps could be told")
    tokens = [results.path("tokenize.encode", shard) for shard in results.shards]
    number = len(data.open_split(tokens, "train"))
    settings = config_schema.completed(TRAIN, results.config["pretrain"]["train"])
    settings = auto.resolve(settings, number, made.summary["shape"]["vocabulary"])
    mix = results.path(steps.MIX) if steps.is_used(steps.MIX, results.config) else None
    taken = made.summary.get("after_step", 0) + 1, int(made.summary["steps"])
    return Reading(
        tokens, schedule.plan(settings, number), settings["seed"], mix, taken, made.summary.get("rolled_back", ())
    )


def _between(start: int, end: int, context: int, windows: int) -> Tokens:
    """The windows of `context + 1` tokens, each `context` after the one before, that hold any of the tokens [start, end)."""
    first = max(0, -(-start // context) - 1)
    return np.arange(first, min((end - 1) // context + 1, windows), dtype=np.int64)
