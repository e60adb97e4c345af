"""Some rows of a select step: what was measured and what was decided, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass
class Rows:
    """Rows of a step's signals beside those of its verdicts, of the same documents. signals: one batch or several, with other columns.

    labels: the code of each row's language; label_names: what the codes stand for. exempt: which rows stay whatever is measured.
    """

    signals: list[pa.RecordBatch]
    verdicts: pa.RecordBatch
    labels: np.ndarray
    label_names: list[str]
    exempt: np.ndarray
    float_columns: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = self.verdicts.column("rules")
        self.fired_rows = pc.list_parent_indices(rules).to_numpy()
        names = pc.list_flatten(rules).dictionary_encode()
        self.rule_codes = names.indices.to_numpy(zero_copy_only=False)
        self.rule_names: list[str] = names.dictionary.to_pylist()
        self.number_fired = np.bincount(self.fired_rows, minlength=len(self))
        self.kept = self.verdicts.column("kept").to_numpy(zero_copy_only=False)

    def __len__(self) -> int:
        return len(self.verdicts)

    def column(self, name: str) -> pa.Array:
        """A column of the signals."""
        return next(batch.column(name) for batch in self.signals if name in batch.schema.names)

    def has(self, name: str) -> bool:
        """Whether it was measured."""
        return any(name in batch.schema.names for batch in self.signals)

    def values(self, name: str) -> np.ndarray:
        """A column of numbers as float64, NaN where there is none. Callers must not change it."""
        if name not in self.float_columns:
            floats = pc.cast(self.column(name), pa.float64())
            self.float_columns[name] = pc.fill_null(floats, np.nan).to_numpy(zero_copy_only=False)
        return self.float_columns[name]

    def truth_values(self, name: str) -> np.ndarray:
        """A column of truth values."""
        flags: np.ndarray = pc.fill_null(self.column(name), False).to_numpy(zero_copy_only=False)
        return flags

    def has_value(self, name: str) -> np.ndarray:
        """Which rows have a value in a column."""
        valid: np.ndarray = pc.is_valid(self.column(name)).to_numpy(zero_copy_only=False)
        return valid

    def rule_fires(self, rule: str) -> np.ndarray:
        """Which rows a rule fires on."""
        out = np.zeros(len(self), bool)
        if rule in self.rule_names:
            out[self.fired_rows[self.rule_codes == self.rule_names.index(rule)]] = True
        return out
