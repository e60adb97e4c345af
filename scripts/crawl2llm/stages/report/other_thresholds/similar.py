"""dedup.select at several thresholds, by its own program on the similarities that were measured: which documents each keeps.

A lower threshold can bring a document back (a document that it was a duplicate of goes itself), so nothing is derived from another
threshold. A bit for each document and threshold is on the disk meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.dedup import select
from crawl2llm.filters.dedup.settings import SelectSettings
from crawl2llm.formats.documents import batches
from crawl2llm.stages.report.other_thresholds.counts import Curve, Groups, Table
from crawl2llm.stages.report.other_thresholds.rows import Rows
from crawl2llm.stages.report.other_thresholds.shards import Tables
from crawl2llm.stages.report.other_thresholds.thresholds import LEAST, RuleThreshold

STEP, KEY = "dedup.select", "dedup.select.threshold"
GRID = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
ABOUT = (
    "A document is dropped where its similarity with a kept one is at least this.",
    "Judged again at each point, on the pairs that dedup.band proposed: most of those that are too unlike for its bands are not there.",
)


class Similarity(Curve):
    """The curve of `threshold`. folder: for what is on the disk meanwhile."""

    def __init__(self, tables: Tables, settings: SelectSettings, folder: Path) -> None:
        super().__init__(RuleThreshold(KEY, ("near",), LEAST, settings.threshold, None, list(ABOUT)))
        self.tables, self.settings, self.folder = tables, settings, folder
        self.shard, self.row = "", 0
        self.kept_at = np.zeros((0, 0), np.uint8)

    def survey_rows(self, rows: Rows) -> None:
        """Every document but exact copies can be a near-duplicate at some threshold."""
        self.moving += int(np.count_nonzero(~rows.rule_fires("exact")))

    def choose_points(self, number: int, node: dict[str, Any], sources: Groups, languages: Groups) -> None:
        """Judge all documents at every point."""
        grid = [GRID[at] for at in np.unique(np.linspace(0, len(GRID) - 1, min(number, len(GRID))).round().astype(int))]
        self.points = np.unique([*grid, float(self.settings.threshold)])
        self.table = Table(sources, languages, len(self.points))
        manifests: dict[str, Any] = {
            "signals": self.tables.manifests_of("dedup.signature"),
            "exact": self.tables.manifests_of("dedup.exact")[0],
            "pairs": self.tables.manifests_of("dedup.verify"),
        }
        bits: dict[str, list[np.ndarray]] = {}
        for threshold in self.points:
            with scratch_folder(self.folder / "judged") as folder:
                args = argparse.Namespace(manifest=folder / "manifest.json", **manifests)
                files = select.body(
                    args, self.settings.model_copy(update={"threshold": float(threshold)}), Manifest(STEP, "")
                )
                for file in files:
                    verdict_parts = [
                        batch.column("kept").to_numpy(zero_copy_only=False) for batch in batches(file, ["kept"])
                    ]
                    bits.setdefault(file.stem, []).append(
                        np.packbits(np.concatenate([np.zeros(0, bool), *verdict_parts]))
                    )
        for shard, kept_bits in bits.items():
            np.save(self.folder / f"{shard}.npy", np.stack(kept_bits))

    def open_shard(self, shard: str) -> None:
        """The rows that come are those of this shard, in the order of its verdicts."""
        self.kept_at, self.row = np.load(self.folder / f"{shard}.npy"), 0

    def add_rows(self, rows: Rows, groups: tuple[np.ndarray, np.ndarray], weights: list[np.ndarray | None]) -> None:
        """See Curve.add_rows."""
        place = int(np.searchsorted(self.points, self.settings.threshold))
        first, last = self.row // 8, -(-(self.row + len(rows)) // 8)
        flags = np.unpackbits(self.kept_at[:, first:last], axis=1)[:, self.row % 8 :][:, : len(rows)].astype(bool)
        self.row += len(rows)
        self.disagreements += int(np.count_nonzero(flags[place] != rows.kept))
        for at, stays in enumerate(flags):
            kept_weights = [None if weight is None else weight[stays] for weight in weights]
            column = np.full(int(stays.sum()), at, np.int64)
            self.table.add((groups[0][stays], groups[1][stays]), kept_weights, column)

    def kept_at_points(self, sums: np.ndarray) -> np.ndarray:
        """Each column is one point."""
        return sums
