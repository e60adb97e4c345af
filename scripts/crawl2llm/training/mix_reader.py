"""The training stream in the order of a mix, for the trainer: what pretrain.mix wrote, read window by window.

A window of a group is `context + 1` tokens of the documents of that group alone, which are packed in the stream's order or by best fit; it
is read from the files of tokenize.encode. Which window a step reads follows from the step (training/mix_order.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.megatron import open_indexed
from crawl2llm.training.data import Stream, Tokens
from crawl2llm.training.mix_order import MixOrder
from crawl2llm.training.mix_shares import Phase
from crawl2llm.training.packing import BEST_FIT, KEY, STREAM, Packing, add_totals
from crawl2llm.training.schedule import Plan

FILE, SPANS = "mix.json", "spans.npy"
ROW = "tokens_by_group"  # in a row of losses.jsonl: predictions of this step


def stream_files(tokens: Iterable[Path]) -> Iterator[tuple[str, str, Path, int, int]]:
    """(shard, source, `.docs.parquet`, first token in the stream, tokens) of each file of the training stream, in its order.

    tokens: manifests of tokenize.encode. The order is that of `data.open_split`.
    """
    base = 0
    for path in sorted(tokens):
        manifest = Manifest.read(path)
        for name in sorted(name for name in manifest.files if name.startswith("train/") and name.endswith(".bin")):
            stem = name.removesuffix(".bin")
            size = len(open_indexed(manifest.file(name), manifest.file(f"{stem}.idx")))
            yield task_of(path), "/".join(name.split("/")[1:-1]), manifest.file(f"{stem}.docs.parquet"), base, size
            base += size


def piece_document_ids(tokens: Iterable[Path], pieces: Iterable[tuple[int, int]]) -> list[str]:
    """The ids of the documents that any of the pieces of the stream (first token, tokens) has tokens of, in the stream's order.

    Pieces that overlap by more than a token begin at the same one. tokens: manifests of tokenize.encode.
    """
    starts, ends = (
        np.array(part) for part in zip(*((start, start + size) for start, size in sorted(set(pieces))), strict=True)
    )
    ids: list[str] = []
    for _, _, path, base, size in stream_files(tokens):
        if not ((starts < base + size) & (ends > base)).any():
            continue
        table = pq.read_table(path, columns=["id", "offset", "tokens"])
        first = base + table["offset"].to_numpy()
        # The pieces are sorted, and so are their ends: the first that ends behind a document's start.
        number = np.searchsorted(ends, first, side="right")
        begins = np.append(starts, np.iinfo(np.int64).max)[number]
        ids += table["id"].filter(begins < first + table["tokens"].to_numpy()).to_pylist()
    return ids


def pack_groups(
    stream: Stream, context: int, spans: npt.NDArray[np.int64], tokens: Sequence[int], counts: Sequence[int]
) -> list[Packing]:
    """The documents of each group, packed. spans: as SPANS has them; tokens, counts: of each group, and how many spans it has."""
    packings = []
    for part, size in zip(np.split(spans, np.cumsum(counts)[:-1], axis=1), tokens, strict=True):
        ends = part[0] + np.diff(part[1], append=size)
        packings.append(Packing(stream, context, np.stack([part[0], ends]), len(tokens)))
    return packings


def count_windows(packing: Packing) -> int:
    """How many windows a group has: none if its tokens are too few for one, whatever would fill the rest."""
    return len(packing) if packing.totals["tokens"] > packing.context else 0


def mix_facts(
    groups: Sequence[dict[str, Any]], phases: Sequence[Phase], stream: int, context: int, packing: str = STREAM
) -> dict[str, Any]:
    """What mix.json holds. groups: `name`, `tokens`, `windows` and `spans` of each. stream: tokens of the whole training stream."""
    phase_facts = [{"first": phase.first, "windows": phase.windows, "shares": list(phase.shares)} for phase in phases]
    more = {} if packing == STREAM else {"packing": packing}
    return {"stream": stream, "context": context, "groups": list(groups), "phases": phase_facts, **more}


class MixReader:
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
        self.stream, self.context = stream, plan.context
        self.names = [group["name"] for group in facts["groups"]]
        sizes = [group["windows"] for group in facts["groups"]]
        phases = [Phase(each["first"], each["windows"], tuple(each["shares"])) for each in facts["phases"]]
        self.spans = np.load(mix_manifest.file(SPANS), mmap_mode="r", allow_pickle=False)
        self.ends = np.cumsum([group["spans"] for group in facts["groups"]])
        tokens, spans = ([group[key] for group in facts["groups"]] for key in ("tokens", "spans"))
        self.packings = pack_groups(stream, plan.context, self.spans, tokens, spans) if packing == BEST_FIT else []
        if facts.get("packing", STREAM) != packing or (
            self.packings and sizes != list(map(count_windows, self.packings))
        ):
            raise InputError(
                f"{manifest} was made for another {KEY} than {packing}, or other documents: run pretrain.mix again"
            )
        self.order = MixOrder(phases, self.names, sizes, seed, [each.permute for each in self.packings])
        # A step's windows are asked for by who reads them, a step ahead, and by who counts them.
        self._windows = lru_cache(4)(self.order.windows_at)

    def windows_at(self, first: int, count: int) -> Tokens:
        """The windows of a global batch: shape [count], the same for any number of processes. first: windows of the steps before."""
        return self._windows(first, count)

    def window_pieces(self, window: int) -> Iterable[tuple[int, int]]:
        """(first token in the stream, tokens) of each part of a window's `context + 1` tokens, in its order; of a packing without the first
        token."""
        group = int(self.order.group_of(window))
        if self.packings:
            yield from self.packings[group].window_pieces(window - int(self.order.bases[group]))
            return
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
        if self.packings:
            group = int(self.order.group_of(window))
            return self.packings[group].read(window - int(self.order.bases[group]))
        return np.concatenate([self.stream.read(start, size) for start, size in self.window_pieces(window)])

    def windows_holding(self, start: int, end: int) -> Tokens:
        """The windows, in order, that hold any of the tokens [start, end) of the stream; of packings alone."""
        holding = [
            self.order.bases[group] + packing.windows_holding(start, end)
            for group, packing in enumerate(self.packings)
            if self.order.sizes[group]
        ]
        return np.concatenate(holding)

    def document_ids(self, tokens: Iterable[Path], windows: npt.ArrayLike) -> list[str]:
        """The ids of the documents that any of `windows` holds tokens of, in the stream's order. tokens: manifests of tokenize.encode."""
        return piece_document_ids(
            tokens, (piece for window in np.unique(np.asarray(windows)) for piece in self.window_pieces(int(window)))
        )

    def packing_totals(self) -> dict[str, int]:
        """What `best_fit` made of the documents, over all groups; {} for `stream`."""
        return add_totals(self.packings)

    def loss_row(self, windows: Tokens) -> dict[str, dict[str, int]]:
        """What losses.jsonl says of a step's windows: predictions by group, of the groups that it reads."""
        groups, numbers = np.unique(self.order.group_of(windows), return_counts=True)
        return {
            ROW: {
                self.names[group]: number * self.context
                for group, number in zip(groups.tolist(), numbers.tolist(), strict=True)
            }
        }


def manifest_summary(mix: MixReader | None, rows: Iterable[dict[str, Any]], done: int) -> dict[str, Any]:
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
