"""Held-out loss of a model over the validation split: the measure of the pretraining's own validation (training/heldout.py)."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.training.heldout import (
    IGNORE,
    Document,
    Piece,
    pad_windows,
    scoring_pieces,
    source_names,
    summarize_scores,
)

BATCHES_SORTED = 64  # batches' worth of windows that are put in order of length before they are batched


def _batch_nats(model: Any, batch: list[Piece], pad: int) -> list[float]:
    """The negative log-likelihood of the scored tokens of each of a batch of windows, in nats; of its logits a piece is there at once."""
    import torch

    from crawl2llm.stages.evaluate.logit_pieces import logit_pieces, tokens_at_once

    width = max(len(ids) for ids, *_ in batch) - 1
    if len(batch) > (at_once := max(1, tokens_at_once(model) // width)):
        parts = [batch[start : start + at_once] for start in range(0, len(batch), at_once)]
        return [nats for part in parts for nats in _batch_nats(model, part, pad)]
    inputs, targets = (torch.from_numpy(part).to(model.device) for part in pad_windows(batch, pad))
    scored = targets != IGNORE
    with torch.no_grad():
        losses, scored_targets = [], targets[scored]
        for logits in logit_pieces(model, inputs, scored):
            right, scored_targets = scored_targets[: len(logits)], scored_targets[len(logits) :]
            losses.append(torch.nn.functional.cross_entropy(logits.float(), right, reduction="none"))
        nats = torch.cat(losses)
    rows = torch.zeros(len(batch), dtype=torch.float64, device=model.device)
    return list(rows.index_add_(0, scored.nonzero()[:, 0], nats.double()).tolist())


def first_token(tokenizer: Any) -> int:
    """The token behind which a document begins: what the tokenizer puts before a text, as Llama's and Gemma's do, else the end token.

    lm-evaluation-harness scores a text behind it too (`prefix_token_id` in lm_eval/models/huggingface.py).
    """
    before: list[int] = tokenizer("")["input_ids"]
    return int([*before, tokenizer.eos_token_id][0])


def measure_heldout(
    model: Any, first: int, documents: list[Document], context: int, carry: float, batch_size: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(loss in nats a token, perplexity and bits per byte of `documents`, what they were measured on, and the same `by_source` of several;
    id, bytes, tokens and nats of each of them). first: of `first_token`.
    """
    tokens = sum(document.tokens for document in documents)
    size = sum(document.bytes for document in documents)
    if not tokens or not size:
        raise InputError("the validation split holds no text; raise corpus.split.validation_fraction, or add documents")
    progress = Progress(tokens, "validation tokens")
    document_nats, stream = [0.0] * len(documents), scoring_pieces(documents, first, context, carry, by_document=True)
    while part := list(islice(stream, batch_size * BATCHES_SORTED)):
        part.sort(key=lambda piece: len(piece[0]))
        for start in range(0, len(part), batch_size):
            batch = part[start : start + batch_size]
            for (*_, number), nats in zip(batch, _batch_nats(model, batch, first), strict=True):
                document_nats[number] += nats
            progress.add(sum(new for _, new, _ in batch))
    if not math.isfinite(sum(document_nats)):
        raise InputError(
            "the model's loss on held-out text is not a finite number: its weights are damaged, or its training diverged"
        )
    nats_by_source = {name: 0.0 for name in source_names(documents)}
    for document, nats in zip(documents, document_nats, strict=True):
        nats_by_source[document.source] += nats
    measures = summarize_scores(documents, list(nats_by_source.values()))
    parts = measures.pop("by_source")
    lines = [
        {"document": document.id, "bytes": document.bytes, "tokens": document.tokens, "nats": round(nats, 4)}
        for document, nats in zip(documents, document_nats, strict=True)
    ]
    return {
        **round_measures(measures),
        "perplexity": round(math.exp(min(measures["loss"], 700.0)), 4),
        **({"by_source": {name: round_measures(part) for name, part in parts.items()}} if len(parts) > 1 else {}),
        "context": context,
        "carry": carry,
    }, lines


def round_measures(measures: dict[str, Any]) -> dict[str, Any]:
    """Measures with six decimals; counts, and what is None, as they are."""
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in measures.items()}
