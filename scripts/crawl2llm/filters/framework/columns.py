"""What was measured of some documents, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]


@dataclass
class Columns:
    """Columns of signals. signals: one table or several of the same documents, with other columns.

    labels: the code of each document's language; label_names: what the codes stand for.
    """

    signals: Sequence[pa.Table | pa.RecordBatch]
    labels: npt.NDArray[np.integer]
    label_names: list[str]
    float_columns: dict[str, Numbers] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def column(self, name: str) -> pa.Array:
        """A column of the signals; KeyError names one that was not measured."""
        column = next((table.column(name) for table in self.signals if name in table.schema.names), None)
        if column is None:
            raise KeyError(name)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def has_column(self, name: str) -> bool:
        """Whether it was measured."""
        return any(name in table.schema.names for table in self.signals)

    def values(self, name: str) -> Numbers:
        """A column of numbers as float64, NaN if there is none. Callers must not change it."""
        if name not in self.float_columns:
            floats = pc.cast(self.column(name), pa.float64())
            self.float_columns[name] = pc.fill_null(floats, np.nan).to_numpy(zero_copy_only=False)
        return self.float_columns[name]

    def truth_values(self, name: str) -> Truths:
        """A column of truth values; null is false."""
        flags: Truths = pc.fill_null(self.column(name), False).to_numpy(zero_copy_only=False)
        return flags

    def has_value(self, name: str) -> Truths:
        """Which documents have a value in a column."""
        valid: Truths = pc.is_valid(self.column(name)).to_numpy(zero_copy_only=False)
        return valid

    def by_label(self, number_of: Callable[[str], float]) -> Numbers:
        """A number of each document's language."""
        return np.array([number_of(name) for name in self.label_names], np.float64)[self.labels]


def columns_of_document(numbers: Mapping[str, float | None], language: str = "") -> Columns:
    """The columns of a document that is in no table, which has these numbers; None: it has none."""
    columns = Columns([], np.zeros(1, np.int64), [language])
    columns.float_columns = {name: np.array([number], np.float64) for name, number in numbers.items()}
    return columns


def encode_labels(labels: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """(code of each label, names) of a column of strings; null is ""."""
    column = pc.fill_null(labels, "")
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    dictionary = column.dictionary_encode()
    return dictionary.indices.to_numpy(zero_copy_only=False).astype(np.int64), dictionary.dictionary.to_pylist()
