"""Held-out loss of a model over the validation split: the measure of the pretraining's own validation (pretrain/heldout.py)."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from scripts.pretrain.data import Tokens
from scripts.pretrain.heldout import IGNORE, Document, padded, pieces
from scripts.pretrain.measures import bits_per_byte
from scripts.workflow.console import Progress
from scripts.workflow.errors import InputError

SORTED = 64  # batches' worth of windows that are put in order of length before they are batched


def _nats(model: Any, batch: list[tuple[Tokens, int]], pad: int) -> float:
    """The negative log-likelihood of the scored tokens of a batch of windows, in nats."""
    import torch

    inputs, targets = (torch.from_numpy(part).to(model.device) for part in padded(batch, pad))
    scored = targets != IGNORE
    with torch.no_grad():
        logits = model(input_ids=inputs).logits[scored]
        nats = torch.nn.functional.cross_entropy(logits.float(), targets[scored], reduction="none")
    return float(nats.double().sum())


def heldout(
    model: Any, eos: int, documents: list[Document], context: int, carry: float, batch_size: int
) -> dict[str, Any]:
    """Loss (nats a token), perplexity and bits per byte over `documents`, and what they were measured on."""
    tokens = sum(document.tokens for document in documents)
    size = sum(document.bytes for document in documents)
    if not tokens or not size:
        raise InputError("the validation split holds no text; raise corpus.split.validation_fraction, or add documents")
    progress = Progress(tokens, "validation tokens")
    total, stream = 0.0, pieces(documents, eos, context, carry)
    while part := list(islice(stream, batch_size * SORTED)):
        part.sort(key=lambda piece: len(piece[0]))
        for start in range(0, len(part), batch_size):
            batch = part[start : start + batch_size]
            total += _nats(model, batch, eos)
            progress.add(sum(new for _, new in batch))
    loss = total / tokens
    return {
        "loss": round(loss, 6),
        "perplexity": round(math.exp(min(loss, 700.0)), 4),
        "bits_per_byte": round(bits_per_byte(total, size), 6),
        "tokens": tokens,
        "bytes": size,
        "documents": len(documents),
        "context": context,
        "carry": carry,
    }
