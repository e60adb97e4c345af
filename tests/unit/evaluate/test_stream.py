"""The held-out loss: every token once, every byte once, and the value that a plain computation gives."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.common.documents import rows
from scripts.common.manifest import Manifest, ManifestError
from scripts.evaluate.stream import choose, heldout, token_file, windows
from scripts.finetune.sft import load


@given(st.integers(0, 300), st.integers(2, 70), st.floats(0, 0.9))
def test_windows_score_every_token_once(length: int, context: int, carry: float) -> None:
    tokens = np.arange(1, length + 1)
    scored: list[int] = []
    for ids, new in windows(tokens, 0, context, carry):
        assert len(ids) - 1 <= context
        assert 1 <= new < len(ids)
        assert list(ids) == list(range(ids[0], ids[-1] + 1))  # a stretch of the document, nothing left out
        assert len(ids) - 1 - new == min(len(scored), int(carry * context))
        scored += list(ids[-new:])
    assert scored == list(tokens)


def test_every_byte_counts_once(inputs: dict[str, list[Path]]) -> None:
    documents, available = choose(inputs["tokens"], 10**9, 0)
    texts = {
        row["id"]: row["text"]
        for path in inputs["corpus"]
        for row in rows(Manifest.read(path).file(f"validation/{path.name[:5]}.parquet"), ["id", "text"])
    }
    assert available == len(documents) == len(texts)
    assert sum(d.bytes for d in documents) == sum(len(text.encode()) for text in texts.values())


@pytest.mark.parametrize("limit", [1, 5_000, 20_000, 50_000])
def test_documents_are_chosen_until_the_limit(inputs: dict[str, list[Path]], limit: int) -> None:
    every, _ = choose(inputs["tokens"], 10**9, 3)
    some, _ = choose(list(reversed(inputs["tokens"])), limit, 3)
    assert some == every[: len(some)]
    assert sum(d.tokens for d in some[:-1]) < limit <= sum(d.tokens for d in some)


def test_loss_is_that_of_a_plain_computation(inputs: dict[str, list[Path]]) -> None:
    import torch

    model, tokenizer = load(inputs["model"][0].parent / "model")
    model.eval()
    documents, _ = choose(inputs["tokens"], 1, 0)
    document = documents[0]
    ids = torch.from_numpy(token_file(document.stem)[document.offset :][: document.tokens].astype(np.int64))
    assert ids[-1] == tokenizer.eos_token_id
    # No context is carried: windows of 64 tokens side by side, each conditioned on the one token before it.
    stream, total = torch.cat([torch.tensor([tokenizer.eos_token_id]), ids]), 0.0
    with torch.no_grad():
        for start in range(0, len(ids), 64):
            piece = stream[start : start + 65]
            logits = model(input_ids=piece[None, :-1]).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum"))
    found = heldout(model, tokenizer.eos_token_id, documents, 64, 0.0, batch_size=5)
    assert found["loss"] == pytest.approx(total / len(ids), abs=1e-5)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / document.bytes, abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-4)
    assert found["loss"] > 5  # about ln(1024): the model knows nothing


def test_damaged_index_is_named(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    stem = tmp_path / "00000"
    stem.with_suffix(".bin").write_bytes(b"\0\0")
    stem.with_suffix(".idx").write_bytes(b"not an index at all")
    with pytest.raises(ManifestError, match=r"00000\.idx is not an index"):
        token_file(stem)
