"""dedup.verify: the same similarities in blocks of any size, and an error for documents that have moved."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from scripts.dedup.tables import PAIR
from scripts.dedup.verify import histogram, similarities, texts
from scripts.formats.documents import DOCUMENT, Writer
from scripts.workflow.errors import InputError

TEXTS = {
    "00000": {"a": "one two three four", "b": "one two three four five", "c": "six"},
    "00001": {"d": "two three four", "e": "six", "f": "three four five six"},
}


@pytest.fixture
def documents(tmp_path: Path) -> dict[str, Path]:
    for shard, rows in TEXTS.items():
        with Writer(tmp_path / f"{shard}.parquet", DOCUMENT, batch=2) as writer:
            for name, text in rows.items():
                writer.add({"id": name, "text": text})
    return {shard: tmp_path / f"{shard}.parquet" for shard in TEXTS}


def pairs(*ends: tuple[str, str, str]) -> pa.Table:
    rows = [{"id_low": low, "shard_high": shard, "id_high": high} for low, shard, high in ends]
    return pa.Table.from_pylist(rows, schema=PAIR)


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_similarities(documents: dict[str, Path], most: int) -> None:
    table = pairs(("a", "00000", "b"), ("a", "00001", "d"), ("b", "00001", "f"), ("c", "00001", "e"))
    assert similarities(table, "00000", documents, 2, most).tolist() == [3 / 4, 2 / 3, 2 / 5, 1.0]


def test_a_document_that_is_not_there(documents: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"1 candidate pairs .* a of shard 00000 and c of shard 00001"):
        similarities(pairs(("a", "00001", "c"), ("a", "00000", "b")), "00000", documents, 2)


def test_texts_in_the_order_of_the_shard(documents: dict[str, Path]) -> None:
    assert list(texts(documents["00000"], pa.array(["c", "x", "a"]))) == [("a", "one two three four"), ("c", "six")]


def test_histogram() -> None:
    counts = histogram(np.array([0.0, 0.04, 0.5, 0.99, 1.0]))
    assert (len(counts), counts[0], counts[10], counts[19]) == (20, 2, 1, 2)
