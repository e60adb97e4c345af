"""When a training read which tokens: from the seed and the step, so the same for any number of processes.

A step's windows are asked of what the trainer asks (training/window_readers.py), with what it left out where it went back to
a checkpoint (training/callbacks/roll_back.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import steps
from crawl2llm.commands.trace.results import Results, row_of_document
from crawl2llm.core.errors import InputError
from crawl2llm.training import auto, data, schedule, stream_documents, window_readers
from crawl2llm.training.data import Tokens
from crawl2llm.training.packed_windows import BEST_FIT, STREAM, read_totals
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.schedule import Plan
from crawl2llm.training.stream_documents import Piece

TRAIN = "pretrain.train"
AT_ONCE = 1 << 20  # windows whose steps are compared together


class DataOrder:
    """The order in which a training read its stream.

    tokens: manifests of tokenize.encode. mix, packs: the manifest of pretrain.mix or pretrain.pack, if the run has it. first, last: the
    steps that it took. rollbacks: where it went back (`from`, `to`, and `sequences` that it left out). packing: of pretrain.train. Raises
    InputError for a mix of another stream or packing.
    """

    def __init__(
        self,
        tokens: list[Path],
        plan: Plan,
        seed: int,
        mix: Sequence[Path] = (),
        packs: Sequence[Path] = (),
        steps: tuple[int, int] | None = None,
        rollbacks: Sequence[dict[str, Any]] = (),
        packing: str = STREAM,
    ) -> None:
        self.tokens, self.plan, self.context, self.seed = tokens, plan, plan.context, seed
        self.stream = data.open_split(tokens, "train")
        self.first, self.last = steps or (1, plan.steps)
        self.rollbacks = rollbacks
        self.reader = window_readers.open_reader(packing, self.stream, plan, seed, mix, packs)

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
        return stream_documents.merge_places(self.reader.places(windows))

    def steps_reading(self, start: int, end: int) -> list[int]:
        """The steps that read any of the tokens [start, end) of the stream, in order; of a step that was taken again, the last time."""
        holding_windows = self.reader.windows_holding(start, end)
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

    def pieces_in(self, places: list[tuple[int, int]]) -> Iterator[Piece]:
        """What lies at places of the stream, see `stream_documents.pieces_in`."""
        return stream_documents.pieces_in(self.tokens, places)

    def place_of(self, document: str) -> Piece | None:
        """Where a document's tokens are in the training stream; None if it has none."""
        for shard, source, path, base, _ in stream_documents.stream_files(self.tokens):
            if row := row_of_document(path, document):
                return Piece(document, shard, source, base + row["offset"], base + row["offset"] + row["tokens"])
        return None

    def file_of(self, shard: str, source: str | None) -> tuple[int, int, Path]:
        """(first token in the stream, tokens, .docs.parquet) of a shard's dataset of a source. Raises InputError for another."""
        files = {
            (name, of): (base, size, path) for name, of, path, base, size in stream_documents.stream_files(self.tokens)
        }
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
    mix, packs = (
        [results.manifest_path(step)] if steps.is_used(step, results.config) else [] for step in (steps.MIX, steps.PACK)
    )
    packed = read_totals([*mix, *packs], settings.model.context) if settings.packing == BEST_FIT else {}
    return DataOrder(
        tokens,
        schedule.make_plan(settings, len(stream), packed.get("windows")),
        settings.seed,
        mix,
        packs,
        (manifest.summary.get("after_step", 0) + 1, int(manifest.summary["steps"])),
        manifest.summary.get("rolled_back", ()),
        settings.packing,
    )
