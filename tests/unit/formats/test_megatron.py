"""Megatron's indexed dataset, read back by a reader of the test's own."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.formats.megatron import IndexedWriter, open_indexed, token_dtype
from tests.unit.formats.megatron import read


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


def indexed(folder: Path, tokens: np.ndarray, code: int, sequences: int = 1, version: int = 1) -> tuple[Path, Path]:
    tokens.tofile(folder / "a.bin")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", version, code, sequences, 2)
    (folder / "a.idx").write_bytes(head + struct.pack("<iqqq", len(tokens), 0, 0, 1))
    return folder / "a.bin", folder / "a.idx"


def test_reads_int32(tmp_path: Path) -> None:
    assert open_indexed(*indexed(tmp_path, np.array([70000, 1], np.int32), 4)).tolist() == [70000, 1]


@pytest.mark.parametrize(
    ("tokens", "changes", "message"),
    [
        (np.zeros(3, np.uint16), {"code": 5}, "type code 5"),
        (np.zeros(3, np.uint16), {"code": 8, "version": 2}, "version 2"),
        (np.zeros(3, np.uint16), {"code": 8, "sequences": 2}, "cut off"),
        (np.zeros(3, np.uint16), {"code": 4}, "has 6 bytes; its index a.idx says 12"),
    ],
)
def test_refuses_a_wrong_index(tmp_path: Path, tokens: np.ndarray, changes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_indexed(*indexed(tmp_path, tokens, **changes))


def test_refuses_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"")
    (tmp_path / "a.idx").write_bytes(b"PK\x03\x04 and so on, long enough for a header")
    with pytest.raises(InputError, match="not a Megatron index"):
        open_indexed(tmp_path / "a.bin", tmp_path / "a.idx")
