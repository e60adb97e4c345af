"""The held-out loss: every token once, every byte once, and the value that a plain computation gives."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.formats.megatron import open_indexed
from crawl2llm.stages.evaluate.heldout_loss import first_token, measure_heldout
from crawl2llm.stages.evaluate.multiple_choice import Task, task_results
from crawl2llm.training.heldout import choose_documents
from crawl2llm.training.model_loading import load_model


@pytest.mark.slow  # seconds
def test_every_byte_counts_once(inputs: dict[str, list[Path]]) -> None:
    documents, available = choose_documents(inputs["tokens"], 10**9, 0)
    texts = {
        row["id"]: row["text"]
        for path in inputs["corpus"]
        for row in rows(Manifest.read(path).file(f"validation/{path.name[:5]}.parquet"), ["id", "text"])
    }
    assert available == len(documents) == len(texts)
    assert sum(d.bytes for d in documents) == sum(len(text.encode()) for text in texts.values())


@pytest.mark.slow  # seconds
def test_loss_is_that_of_a_plain_computation(inputs: dict[str, list[Path]]) -> None:
    import torch

    model, tokenizer = load_model(inputs["model"][0].parent / "model")
    model.eval()
    documents, _ = choose_documents(inputs["tokens"], 1, 0)
    document = documents[0]
    stem = document.stem
    stored = open_indexed(stem.with_suffix(".bin"), stem.with_suffix(".idx"))
    ids = torch.from_numpy(stored[document.offset :][: document.tokens].astype(np.int64))
    assert ids[-1] == tokenizer.eos_token_id
    # No context is carried: windows of 64 tokens side by side, each conditioned on the one token before it.
    stream, total = torch.cat([torch.tensor([tokenizer.eos_token_id]), ids]), 0.0
    with torch.no_grad():
        for start in range(0, len(ids), 64):
            piece = stream[start : start + 65]
            logits = model(input_ids=piece[None, :-1]).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum"))
    found, (line,) = measure_heldout(model, first_token(tokenizer), documents, 64, 0.0, batch_size=5)
    assert (line["document"], line["bytes"]) == (document.id, document.bytes)
    assert line["nats"] == pytest.approx(total, abs=0.01)
    assert found["loss"] == pytest.approx(total / len(ids), abs=1e-5)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / document.bytes, abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-4)
    assert found["loss"] > 5  # about ln(1024): the model knows nothing


def test_a_document_begins_behind_the_token_that_its_tokenizer_puts_before_a_text() -> None:
    """Behind the end of a text, which never begins one in their training, Gemma's models know nothing."""
    alone = Tokenizer(WordLevel({"<bos>": 0, "<eos>": 1, "word": 2}))
    for before, first in ((None, 1), (TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)]), 0)):
        alone.post_processor = before
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=alone)
        tokenizer.add_special_tokens({"eos_token": "<eos>"})
        assert first_token(tokenizer) == first


@pytest.mark.slow  # seconds
def test_a_model_without_finite_numbers_has_no_result(inputs: dict[str, list[Path]]) -> None:
    """Of choices whose log-likelihood is no number the first would count as chosen, as by guessing."""
    import torch

    model, tokenizer = load_model(inputs["model"][0].parent / "model")
    with torch.no_grad():
        next(iter(model.parameters())).fill_(math.nan)
    documents, _ = choose_documents(inputs["tokens"], 1, 0)
    with pytest.raises(InputError, match="not a finite number"):
        measure_heldout(model.eval(), tokenizer.eos_token_id, documents, 64, 0.0, batch_size=5)
    row = {"id": "i", "document": "d", "context": "The", "choices": [" a", " b"], "gold": 0}
    task = Task("next_word", [row])
    samples = {"next_word": [{"doc_id": 0, "filtered_resps": [(math.nan, False), (-1.0, False)]}]}
    with pytest.raises(InputError, match=r"next_word: .* not all finite"):
        task_results([task], samples, 0)
