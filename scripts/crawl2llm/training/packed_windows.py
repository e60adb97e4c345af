"""Windows of whole documents, as pretrain.pack and pretrain.mix wrote them (training/packing.py), mapped and read at random positions.

Three files of rows of fixed width, named after the context. `windows`: of each window the number of the piece after its last, int64.
`pieces`: PIECE, what stands in the windows, one after another. `blocks`: BLOCK, the documents that were packed together. Blocks are in the
order in which they were packed, and windows and pieces in that of the blocks. Training numbers the windows group by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.megatron import document_start
from crawl2llm.training.data import Stream, Tokens

KEY = "pretrain.train.packing"
STREAM, BEST_FIT = "stream", "best_fit"  # its values
PACKING = "packing"  # in a manifest's summary: by context what best fit made of the documents
END = np.dtype("<i8")
PIECE = np.dtype([("start", "<i8"), ("tokens", "<i4")])  # the first token in the stream, and how many of the window's
# The windows of a block, and [start, end) of the stream, in which all its documents lie.
BLOCK = np.dtype([("group", "<i8"), ("windows", "<i8"), ("start", "<i8"), ("end", "<i8")])
ROWS = {"windows": END, "pieces": PIECE, "blocks": BLOCK}
CHECKED_PIECES = 16  # that are compared with the stream's documents: each takes some twenty small reads of an index


def packing_files(context: int) -> list[str]:
    """The names of the files of windows, pieces and blocks. A name that began with digits could be taken for a shard's."""
    return [f"context-{context}.{name}" for name in ROWS]


def read_totals(manifests: Sequence[Path], context: int, verify: bool = False) -> dict[str, int]:
    """What best fit made of all documents; {} without a manifest. manifests: of pretrain.pack or of pretrain.mix, at most one.

    verify: read the files for their checksums. Raises InputError if it has no windows of `context` tokens, ManifestError for damaged ones.
    """
    for path in manifests:
        manifest = Manifest.read(path)
        try:
            totals: dict[str, int] = manifest.summary_part(PACKING, str(context))
        except KeyError:
            raise InputError(
                f"{path} has no packed windows of {context} tokens: it was made for another {KEY} or context; run its step again"
            ) from None
        if verify:
            manifest.verify_files(f"context-{context}.")
        return totals
    return {}


def totals_text(totals: dict[str, int]) -> str:
    """What best fit made of the documents, in words."""
    documents, windows, share = (
        totals["documents"],
        totals["windows"],
        totals["tokens_repeated"] / max(1, totals["tokens"]),
    )
    return (
        f"Best-fit packing: {documents:,} documents in {windows:,} windows, {totals['documents_cut']:,} of them longer and cut; "
        f"{totals['tokens_repeated']:,} tokens ({100 * share:.2g} %) are read twice, to fill windows."
    )


class Packing:
    """The packed windows of a stream, numbered through all groups.

    Raises InputError if they were made of another stream.
    """

    def __init__(self, manifest: Manifest, stream: Stream, context: int) -> None:
        self.stream, self.context, self.path = stream, context, manifest.path
        files = [manifest.file(name) for name in packing_files(context)]
        self.ends, self.pieces, blocks = map(_map_rows, files, ROWS.values())
        if blocks["windows"].sum() != len(self.ends) or (len(blocks) and blocks["end"].max() > len(stream)):
            raise InputError(f"{self.path} was made of other tokens than {len(stream):,}: run its step again")
        if not all(map(self._begins_as_packed, self._some_starts())):
            raise InputError(f"{self.path} was made of other documents than the training's: run its step again")
        # In the order of the groups: the first window of each block, and its row in the file.
        order = np.argsort(blocks["group"], kind="stable")
        self.blocks = blocks[order]
        self.bases = np.concatenate([[0], np.cumsum(self.blocks["windows"])])
        self.rows = (np.cumsum(blocks["windows"]) - blocks["windows"])[order]

    def __len__(self) -> int:
        return len(self.ends)

    def _some_starts(self) -> list[int]:
        """The first tokens of pieces from all parts of the file."""
        numbers = np.linspace(0, len(self.pieces) - 1, min(CHECKED_PIECES, len(self.pieces))).astype(np.int64)
        return [int(start) for start in self.pieces["start"][numbers]]

    def _begins_as_packed(self, start: int) -> bool:
        """Whether a piece may begin there: with a document, or whole windows after its beginning."""
        if not 0 <= start < len(self.stream):
            return False
        part = int(np.searchsorted(self.stream.starts, start, side="right")) - 1
        inside = start - int(self.stream.starts[part])
        return (inside - document_start(self.stream.parts[part][0].with_suffix(".idx"), inside)) % self.context == 0

    def window_pieces(self, window: int) -> list[tuple[int, int]]:
        """(first token in the stream, tokens) of each piece of a window, in its order, without the token before the first.

        Raises InputError for a window that is not full: its file is damaged.
        """
        block = int(np.searchsorted(self.bases, window, side="right")) - 1
        row = int(self.rows[block]) + window - int(self.bases[block])
        inside = self.pieces[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])]
        if inside["tokens"].sum() != self.context:
            raise InputError(f"{self.path}: window {window:,} is damaged: remove the manifest and run its step again")
        return list(zip(inside["start"].tolist(), inside["tokens"].tolist(), strict=True))

    def read(self, window: int) -> Tokens:
        """The `context + 1` tokens of a window.

        The first is the one before the first piece in the stream: the end-of-text token, except for the later pieces of a long document.
        The stream's first document has the stream's last token before it, which is end-of-text too.
        """
        pieces = self.window_pieces(window)
        before = (pieces[0][0] or len(self.stream)) - 1
        return np.concatenate([self.stream.read(start, size) for start, size in [(before, 1), *pieces]])

    def windows_holding(self, start: int, end: int) -> Tokens:
        """The windows, in order, that hold any of the tokens [start, end) of the stream: the pieces of the blocks there are compared."""
        out = [np.empty(0, np.int64)]
        for number in np.flatnonzero((self.blocks["start"] < end) & (self.blocks["end"] > start)).tolist():
            row = int(self.rows[number])
            ends = self.ends[row : row + int(self.blocks["windows"][number])]
            first = int(self.ends[row - 1]) if row else 0
            pieces = self.pieces[first : int(ends[-1])]
            holds = first + np.flatnonzero((pieces["start"] < end) & (pieces["start"] + pieces["tokens"] > start))
            out.append(self.bases[number] + np.unique(np.searchsorted(ends, holds, side="right")))
        return np.concatenate(out)


def _map_rows(path: Path, row: np.dtype) -> npt.NDArray[Any]:
    """The rows of a file, mapped. numpy refuses to map an empty file."""
    return np.asarray(np.memmap(path, row, mode="r")) if path.stat().st_size else np.empty(0, row)
