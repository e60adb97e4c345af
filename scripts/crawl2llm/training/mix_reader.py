"""The training stream in the order of a mix, for the trainer: what pretrain.mix wrote, read window by window.

A window of a group is `context + 1` tokens of the documents of that group alone, which are packed in the stream's order or by best fit; it
is read from the files of tokenize.encode. Which window a step reads follows from the step (training/mix_order.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training.data import Stream, Tokens, windows_holding
from crawl2llm.training.mix_order import MixOrder
from crawl2llm.training.mix_shares import Phase
from crawl2llm.training.packed_windows import BEST_FIT, KEY, STREAM, Packing
from crawl2llm.training.schedule import Plan

FILE, SPANS = "mix.json", "spans.npy"
ROW = "tokens_by_group"  # in a row of losses.jsonl: predictions of this step


def mix_facts(
    groups: Sequence[dict[str, Any]], phases: Sequence[Phase], stream: int, context: int, packing: str = STREAM
) -> dict[str, Any]:
    """What mix.json holds. groups: `name`, `tokens`, `windows` and `spans` of each. stream: tokens of the whole training stream."""
    phase_facts = [{"first": phase.first, "windows": phase.windows, "shares": list(phase.shares)} for phase in phases]
    more = {} if packing == STREAM else {"packing": packing}
    return {"stream": stream, "context": context, "groups": list(groups), "phases": phase_facts, **more}


class GroupReader:
    """The windows of groups, each a list of spans of the stream, in the order of a mix.

    sizes: windows of each group. spans: int64 [2, spans], the start of each in the stream and in the text of its group, group by group.
    span_counts: of each group.
    """

    def __init__(
        self,
        stream: Stream,
        context: int,
        order: MixOrder,
        names: Sequence[str],
        spans: Tokens,
        span_counts: Sequence[int],
    ) -> None:
        self.stream, self.context, self.order, self.names = stream, context, order, list(names)
        self.spans, self.ends = spans, np.cumsum(span_counts)
        # A step's windows are asked for by who reads them, a step ahead, and by who counts them.
        self._windows = lru_cache(4)(self.order.windows_at)

    def windows_at(self, first: int, count: int) -> Tokens:
        """The windows of a global batch: shape [count], the same for any number of processes. first: windows of the steps before."""
        return self._windows(first, count)

    def window_pieces(self, window: int) -> Iterable[tuple[int, int]]:
        """(first token in the stream, tokens) of each part of a window's `context + 1` tokens, in its order."""
        group = int(self.order.group_of(window))
        end = int(self.ends[group])
        begin = int(self.ends[group - 1]) if group else 0
        place, left = (window - int(self.order.bases[group])) * self.context, self.context + 1
        inside = self.spans[1, begin:end]
        number = int(np.searchsorted(inside, place, side="right")) - 1
        while left:
            offset = place - int(inside[number])
            length = (
                int(inside[number + 1]) - int(inside[number]) if number + 1 < end - begin else left + offset
            ) - offset
            length_taken = min(left, length)
            yield int(self.spans[0, begin + number]) + offset, length_taken
            place, left, number = place + length_taken, left - length_taken, number + 1

    def read(self, windows: Tokens) -> Tokens:
        """The tokens of windows [n, m], shape [n, m, context + 1]."""
        return np.stack([self._window_tokens(window) for window in windows.ravel().tolist()]).reshape(
            *windows.shape, -1
        )

    def _window_tokens(self, window: int) -> Tokens:
        return np.concatenate([self.stream.read(start, size) for start, size in self.window_pieces(window)])

    def places(self, windows: Tokens) -> list[tuple[int, int]]:
        """See WindowReader."""
        return [(start, start + size) for window in windows.tolist() for start, size in self.window_pieces(window)]

    def windows_holding(self, start: int, end: int) -> Tokens:
        """See WindowReader."""
        window_groups = [np.empty(0, np.int64)]
        for group, stop in enumerate(self.ends.tolist()):
            begin = int(self.ends[group - 1]) if group else 0
            streams, insides = self.spans[0, begin:stop], self.spans[1, begin:stop]
            number = int(np.searchsorted(streams, start, side="right")) - 1
            if number < 0:
                continue
            place = int(insides[number]) + start - int(streams[number])
            if number + 1 < stop - begin and place >= int(insides[number + 1]):
                continue  # between two of the group's spans: another group's
            windows = windows_holding(place, place + end - start, self.context, int(self.order.sizes[group]))
            window_groups.append(self.order.bases[group] + windows)
        return np.unique(np.concatenate(window_groups))

    def loss_row(self, windows: Tokens) -> dict[str, dict[str, int]]:
        """What losses.jsonl says of a step's windows: predictions by group, of the groups that it reads."""
        groups, numbers = np.unique(self.order.group_of(windows), return_counts=True)
        return {
            ROW: {
                self.names[group]: number * self.context
                for group, number in zip(groups.tolist(), numbers.tolist(), strict=True)
            }
        }


class MixReader(GroupReader):
    """The windows of a mix. manifest: of pretrain.mix. stream: the training stream that it was made of. packing: pretrain.train.packing.

    Raises InputError if it was made of another stream, context, packing or number of windows.
    """

    def __init__(self, manifest: Path, stream: Stream, plan: Plan, seed: int, packing: str = STREAM) -> None:
        mix_manifest = Manifest.read(manifest)
        facts = json.loads(mix_manifest.file(FILE).read_text(encoding="utf-8"))
        window_count = sum(phase["windows"] for phase in facts["phases"])
        own_sizes = (len(stream), plan.context, plan.window_span(plan.steps + 1)[0])
        if own_sizes != (facts["stream"], facts["context"], window_count):
            raise InputError(
                f"{manifest} was made for {facts['stream']:,} tokens, a context of {facts['context']} and {window_count:,} windows; this "
                f"training has {own_sizes[0]:,}, {own_sizes[1]} and {own_sizes[2]:,}: run pretrain.mix again"
            )
        if facts.get("packing", STREAM) != packing:
            raise InputError(f"{manifest} was made for another {KEY} than {packing}: run pretrain.mix again")
        groups = facts["groups"]
        names = [group["name"] for group in groups]
        phases = [Phase(each["first"], each["windows"], tuple(each["shares"])) for each in facts["phases"]]
        spans = np.load(mix_manifest.file(SPANS), mmap_mode="r", allow_pickle=False)
        order = MixOrder(phases, names, [group["windows"] for group in groups], seed)
        super().__init__(stream, plan.context, order, names, spans, [group["spans"] for group in groups])
        self.packing = Packing(mix_manifest, stream, plan.context) if packing == BEST_FIT else None

    def window_pieces(self, window: int) -> Iterable[tuple[int, int]]:
        """See GroupReader; of a packing without the first token."""
        return super().window_pieces(window) if self.packing is None else self.packing.window_pieces(window)

    def _window_tokens(self, window: int) -> Tokens:
        return super()._window_tokens(window) if self.packing is None else self.packing.read(window)

    def windows_holding(self, start: int, end: int) -> Tokens:
        """See WindowReader."""
        if self.packing is None:
            return super().windows_holding(start, end)
        return self.packing.windows_holding(start, end)


def manifest_summary(mix: GroupReader | None, rows: Iterable[dict[str, Any]], done: int) -> dict[str, Any]:
    """For the manifest's summary: tokens that each group gave, as the rows of losses.jsonl up to step `done` say, their share and epochs;
    {} without a mix. Steps that were skipped were read too.
    """
    if mix is None:
        return {}
    total = dict.fromkeys(mix.names, 0)
    for row in rows:
        for name, number in row.get(ROW, {}).items() if row["step"] <= done else ():
            total[name] += number
    total_tokens = sum(total.values())
    sizes = [max(1, size) * mix.context for size in mix.order.sizes.tolist()]
    return {
        "by_group": {
            name: {"tokens": read, "share": read / total_tokens, "epochs": read / size}
            for (name, read), size in zip(total.items(), sizes, strict=True)
        }
    }
