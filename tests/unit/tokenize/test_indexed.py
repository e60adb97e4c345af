"""Megatron's indexed dataset, read back by a reader of the test's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.tokenize.indexed import IndexedWriter, token_dtype
from tests.unit.tokenize.megatron import read


@given(st.lists(st.lists(st.integers(0, 65_499), max_size=20), max_size=8), st.sampled_from([np.uint16, np.int32]))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], kind: type) -> None:
    stem = tmp_path_factory.getbasetemp() / "indexed" / "00000"
    with IndexedWriter(stem, np.dtype(kind)) as writer:
        for tokens in documents:
            writer.add(np.array(tokens, dtype=kind))
    if any(documents):
        dtype, found = read(stem)
        assert dtype == np.dtype(kind) and found == documents
    else:  # what Megatron cannot map is not there, nor are the files of the example before
        assert not list(stem.parent.iterdir())


def test_ids_that_need_more_than_16_bits(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "a", token_dtype(70_000)) as writer:
        writer.add(np.array([69_999, 0], dtype=np.int64))
    assert read(tmp_path / "a") == (np.dtype(np.int32), [[69_999, 0]])


@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(258, "uint16"), (65_499, "uint16"), (65_500, "int32"), (10**6, "int32")]
)
def test_dtype_is_megatrons_choice(vocabulary: int, dtype: str) -> None:
    assert token_dtype(vocabulary) == np.dtype(dtype)


def test_no_index_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), IndexedWriter(tmp_path / "a", np.dtype(np.uint16)) as writer:
        writer.add(np.array([1], dtype=np.uint16))
        raise RuntimeError
    assert not (tmp_path / "a.idx").exists()
