"""Some rows of a select step: what was measured and what was decided, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.filters.framework.columns import Columns


@dataclass
class Rows(Columns):
    """Rows of a step's signals beside those of its verdicts, of the same documents. exempt: which rows stay whatever is measured."""

    verdicts: pa.RecordBatch
    exempt: np.ndarray

    def __post_init__(self) -> None:
        rules = self.verdicts.column("rules")
        self.fired_rows = pc.list_parent_indices(rules).to_numpy()
        names = pc.list_flatten(rules).dictionary_encode()
        self.rule_codes = names.indices.to_numpy(zero_copy_only=False)
        self.rule_names: list[str] = names.dictionary.to_pylist()
        self.number_fired = np.bincount(self.fired_rows, minlength=len(self))
        self.kept = self.verdicts.column("kept").to_numpy(zero_copy_only=False)

    def rule_fires(self, rule: str) -> np.ndarray:
        """Which rows a rule fires on."""
        out = np.zeros(len(self), bool)
        if rule in self.rule_names:
            out[self.fired_rows[self.rule_codes == self.rule_names.index(rule)]] = True
        return out
