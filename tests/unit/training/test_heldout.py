"""The held-out text: which documents, every token scored once, and what is padded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import ManifestError
from crawl2llm.training import data, heldout


@given(st.integers(0, 300), st.integers(2, 70), st.floats(0, 0.9))
def test_windows_score_every_token_once(length: int, context: int, carry: float) -> None:
    tokens = np.arange(1, length + 1)
    scored: list[int] = []
    for ids, new in heldout.document_windows(tokens, 0, context, carry):
        assert len(ids) - 1 <= context
        assert 1 <= new < len(ids)
        assert list(ids) == list(range(ids[0], ids[-1] + 1))  # a stretch of the document, nothing left out
        assert len(ids) - 1 - new == min(len(scored), int(carry * context))
        scored += list(ids[-new:])
    assert scored == list(tokens)


@pytest.mark.parametrize("limit", [1, 500, 1_500])
def test_documents_are_chosen_until_the_limit(shards: list[Path], limit: int) -> None:
    every, available = heldout.choose_documents(shards, 10**9, 3)
    assert available == len(every) == 48
    some, _ = heldout.choose_documents(list(reversed(shards)), limit, 3)
    assert some == every[: len(some)]
    assert sum(d.tokens for d in some[:-1]) < limit <= sum(d.tokens for d in some)
    assert heldout.choose_documents([], 10, 0) == ([], 0)


@pytest.mark.parametrize("carry", [0.0, 0.5])
def test_pieces_are_the_documents(shards: list[Path], carry: float) -> None:
    documents, _ = heldout.choose_documents(shards, 10**9, 0)
    scored = [
        token for ids, new, _ in heldout.scoring_pieces(documents, 0, 32, carry) for token in ids[len(ids) - new :]
    ]
    stream = data.open_split(shards, "validation")
    assert sorted(scored) == sorted(stream.read(0, len(stream)))
    assert scored[documents[0].tokens - 1] == 0  # the first document's end


def test_padding_is_never_scored(shards: list[Path]) -> None:
    documents, _ = heldout.choose_documents(shards, 600, 0)
    batch = [*heldout.scoring_pieces(documents, 0, 32, 0.5)]
    inputs, targets = heldout.pad_windows([*batch, (batch[0][0], 0, 0)], 0)
    assert inputs.shape == targets.shape and (targets[-1] == -100).all()
    for (ids, new, _), given_, wanted in zip(batch, inputs, targets, strict=False):
        scored = np.flatnonzero(wanted != -100)
        assert list(wanted[scored]) == list(ids[-new:]) and list(given_[scored]) == list(ids[-new - 1 : -1])


def test_tokens_that_are_not_there_are_missed(shards: list[Path], tmp_path: Path) -> None:
    (document, *_), _ = heldout.choose_documents(shards, 1, 0)
    beyond = heldout.Document(0.0, "x", document.stem, document.offset, 10**6, 1)
    with pytest.raises(ManifestError, match="document x ends beyond"):
        list(heldout.scoring_pieces([beyond], 0, 32, 0.5))
    stem = tmp_path / "00000"
    stem.with_suffix(".bin").write_bytes(b"\0\0")
    stem.with_suffix(".idx").write_bytes(b"not an index at all")
    with pytest.raises(InputError, match=r"00000\.idx is not a Megatron index"):
        list(heldout.scoring_pieces([heldout.Document(0.0, "x", stem, 0, 1, 1)], 0, 32, 0.5))
