"""A model's logits, no more than LOGITS_AT_ONCE bytes of them at once: a long text's and a large vocabulary's would fill any memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from crawl2llm.training.memory import LOGITS_AT_ONCE


def tokens_at_once(model: Any) -> int:
    """How many tokens' logits, in fp32, take LOGITS_AT_ONCE bytes; one at least."""
    return max(1, LOGITS_AT_ONCE // (4 * int(model.config.get_text_config().vocab_size)))


@torch.no_grad()
def logit_pieces(model: Any, inputs: torch.Tensor, places: torch.Tensor) -> Iterator[torch.Tensor]:
    """The logits of `places`, bool [n, length], of token ids [n, length], in order: pieces [k, vocabulary] as they are asked for.

    The layers run once; each piece passes through all that the model does behind them, as gemma2 bounds its logits after the head.
    """
    body, rows = model.base_model, tokens_at_once(model)
    if places.numel() <= rows or body is model:
        yield model(input_ids=inputs).logits[places]
        return
    output = body(input_ids=inputs, use_cache=False)
    for hidden in output.last_hidden_state[places].split(rows):
        output["last_hidden_state"] = hidden[None]
        with _fixed_output(body, output):
            logits = model(input_ids=inputs[:1, :1], use_cache=False).logits[0]
        yield logits


@contextmanager
def _fixed_output(body: Any, output: Any) -> Iterator[None]:
    """Have a module return `output`, whatever it is called with."""
    before = body.__dict__.get("forward")  # which some libraries set
    body.forward = lambda *_, **__: output
    try:
        yield
    finally:
        del body.forward
        if before is not None:
            body.forward = before
