"""Held-out documents in the tokens of a model that has a tokenizer of its own: the same text, or a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.stages.evaluate.documents import documents_digest, find_in_tokens
from crawl2llm.training.heldout import choose_documents
from tests.unit.stages.evaluate.conftest import encoded
from tests.unit.training.tiny_published import tiny_tokenizer

pytestmark = pytest.mark.slow  # encodes a corpus


def test_two_tokenizers_are_scored_on_one_text(inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer().backend_tokenizer
    tokenizer.add_special_tokens(["<|endoftext|>"])
    other = [encoded(corpus, tmp_path / "tokens" / corpus.name, tokenizer) for corpus in inputs["corpus"]]
    own, _ = choose_documents(inputs["tokens"], 2500, 0)
    by_other_tokens, _ = choose_documents(other, 2500, 0)
    assert documents_digest(by_other_tokens) != documents_digest(own)  # fewer documents hold as many of its tokens
    same = find_in_tokens(own, other)
    assert documents_digest(same) == documents_digest(own)
    assert sum(document.tokens for document in same) > sum(document.tokens for document in own)
    assert {document.stem.is_relative_to(tmp_path) for document in same} == {True}
    Manifest("tokenize.reencode", "0" * 16).write(tmp_path / "tokens/few.manifest.json", [])
    with pytest.raises(
        ManifestError, match=f"held-out document {own[0].id} has {own[0].bytes} bytes .* and no in the model's"
    ):
        find_in_tokens(own, [tmp_path / "tokens/few.manifest.json"])
