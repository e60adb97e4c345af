"""When a training read which tokens: from the seed and the step, so the same for any number of processes.

A step's windows are asked of what the trainer asks (data.py and mix_reader.py of training), with what it left out where it went back to
a checkpoint (training/callbacks/roll_back.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import steps
from crawl2llm.commands.trace.results import Results, row_of_document
from crawl2llm.core.errors import InputError
from crawl2llm.training import auto, data, mix_reader, schedule, window_readers
from crawl2llm.training.data import Tokens
from crawl2llm.training.mix_reader import MixReader
from crawl2llm.training.packing import STREAM
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.schedule import Plan
from crawl2llm.training.window_readers import StreamReader

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


class DataOrder:
    """The order in which a training read its stream.

    tokens: manifests of tokenize.encode. mix: the manifest of pretrain.mix, where the run has it. first, last: the steps that it took.
    rollbacks: where it went back (`from`, `to`, and `sequences` that it left out). packing: of pretrain.train. Raises InputError for a mix
    of another stream or packing.
    """

    def __init__(
        self,
        tokens: list[Path],
        plan: Plan,
        seed: int,
        mix: Path | None = None,
        steps: tuple[int, int] | None = None,
        rollbacks: Sequence[dict[str, Any]] = (),
        packing: str = STREAM,
    ) -> None:
        self.tokens, self.plan, self.context, self.seed = tokens, plan, plan.context, seed
        self.stream = data.open_split(tokens, "train")
        self.first, self.last = steps or (1, plan.steps)
        self.rollbacks = rollbacks
        self.reader = window_readers.open_reader(packing, self.stream, plan, seed, mix)
        self.mix = self.reader if isinstance(self.reader, MixReader) else None
        self.packed = None if packing == STREAM or isinstance(self.reader, StreamReader) else self.reader

    def check_step(self, step: int) -> None:
        """InputError for a step that the training did not take."""
        if not self.first <= step <= self.last:
            raise InputError(f"--step is {step}; the training took the steps {self.first} to {self.last}")

    def windows_of(self, step: int) -> Tokens:
        """The windows of a step's global batch, [sequences]; of a step that was taken again, those of the last time."""
        first, sequences = self.plan.window_span(step)
        ahead = sum(each["sequences"] for each in self.rollbacks if step > each["to"])
        return self.reader.windows_at(first + ahead, sequences)

    def places_of(self, windows: Tokens) -> list[tuple[int, int]]:
        """The places [start, end) in the stream that windows hold, in order, without those that lie in others."""
        if isinstance(self.reader, StreamReader):
            spans = [(window * self.context, (window + 1) * self.context + 1) for window in windows.tolist()]
        else:
            read_pieces = self.reader.window_pieces
            spans = [(start, start + size) for window in windows.tolist() for start, size in read_pieces(window)]
        out: list[tuple[int, int]] = []
        for start, end in sorted(set(spans)):
            if out and start <= out[-1][1]:
                out[-1] = (out[-1][0], max(end, out[-1][1]))
            else:
                out.append((start, end))
        return out

    def windows_holding(self, start: int, end: int) -> Tokens:
        """The windows, in order, that hold any of the tokens [start, end) of the stream."""
        if self.packed:
            return self.packed.windows_holding(start, end)
        if not self.mix:
            return _windows_between(start, end, self.context, self.plan.windows)
        window_groups = []
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
            window_groups.append(
                self.mix.order.bases[group] + _windows_between(place, place + end - start, self.context, windows)
            )
        return np.unique(np.concatenate(window_groups)) if window_groups else np.empty(0, np.int64)

    def steps_reading(self, start: int, end: int) -> list[int]:
        """The steps that read any of the tokens [start, end) of the stream, in order; of a step that was taken again, the last time."""
        holding_windows = self.windows_holding(start, end)
        if not len(holding_windows):
            return []
        reading_steps: list[int] = []
        for step_range in self._step_ranges():
            windows = np.concatenate([self.windows_of(step) for step in step_range])
            step_of_window = np.repeat(
                np.array(list(step_range)), [self.plan.window_span(step)[1] for step in step_range]
            )
            reading_steps += np.unique(step_of_window[np.isin(windows, holding_windows)]).tolist()
        return reading_steps

    def _step_ranges(self) -> Iterator[range]:
        range_length = max(1, AT_ONCE // self.plan.sequences)
        for first in range(self.first, self.last + 1, range_length):
            yield range(first, min(first + range_length, self.last + 1))

    def pieces_in(self, spans: list[tuple[int, int]]) -> Iterator[Piece]:
        """What lies at places of the stream, in its order, cut to them: the documents whose tokens these are."""
        starts, ends = (
            (np.array(part, np.int64) for part in zip(*spans, strict=True)) if spans else (np.empty(0, np.int64),) * 2
        )
        for shard, source, path, base, size in mix_reader.stream_files(self.tokens):
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

    def place_of(self, document: str) -> Piece | None:
        """Where a document's tokens are in the training stream; None if it has none."""
        for shard, source, path, base, _ in mix_reader.stream_files(self.tokens):
            if row := row_of_document(path, document):
                return Piece(document, shard, source, base + row["offset"], base + row["offset"] + row["tokens"])
        return None

    def file_of(self, shard: str, source: str | None) -> tuple[int, int, Path]:
        """(first token in the stream, tokens, .docs.parquet) of a shard's dataset of a source. Raises InputError for another."""
        files = {(name, of): (base, size, path) for name, of, path, base, size in mix_reader.stream_files(self.tokens)}
        matching_keys = [key for key in files if key[0] == shard and source in (None, key[1])]
        if len(matching_keys) != 1:
            known_names = ", ".join(f"{name}:{of}" for name, of in files)
            raise InputError(
                f"--tokens names {shard}{f':{source}' if source else ''}; the training stream has {known_names}; write "
                "SHARD:SOURCE:OFFSET, such as 00000:demo:1234"
            )
        return files[matching_keys[0]]


def training_order(results: Results) -> DataOrder:
    """The order in which the base model of a variant read its corpus. Raises InputError if no training has ended."""
    manifest = results.read_manifest(TRAIN)
    if manifest is None:
        raise InputError(
            f"{results.manifest_path(TRAIN)} does not exist: no training has ended whose steps can be shown"
        )
    tokens = [results.manifest_path("tokenize.encode", shard) for shard in results.shards]
    stream = data.open_split(tokens, "train")
    train = TrainSettings.model_validate(results.config["pretrain"]["train"])
    settings = auto.resolve(train, len(stream), manifest.summary["shape"]["vocabulary"])
    packed = window_readers.pack_stream(settings.packing, stream, settings.model.context)
    mix = results.manifest_path(steps.MIX) if steps.is_used(steps.MIX, results.config) else None
    step_range = manifest.summary.get("after_step", 0) + 1, int(manifest.summary["steps"])
    return DataOrder(
        tokens,
        schedule.make_plan(settings, len(stream), len(packed) if packed else None),
        settings.seed,
        mix,
        step_range,
        manifest.summary.get("rolled_back", ()),
        settings.packing,
    )


def _windows_between(start: int, end: int, context: int, windows: int) -> Tokens:
    """The windows of `context + 1` tokens, each `context` after the one before, that hold any of the tokens [start, end)."""
    first = max(0, -(-start // context) - 1)
    return np.arange(first, min((end - 1) // context + 1, windows), dtype=np.int64)
