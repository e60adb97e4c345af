"""Answers that a model writes greedily, as lm-evaluation-harness asks for them: an answer that has its end leaves the batch.

The harness's own loop goes on with all answers until each has the same one of its stop texts, or as many tokens as it may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from crawl2llm.training.checks import MASKED_TYPES
from crawl2llm.training.sampling import next_logits

# What a generation_config may hold that changes no greedy answer.
NEUTRAL = {
    "bos_token_id", "eos_token_id", "pad_token_id", "max_length", "max_new_tokens", "do_sample", "temperature", "top_p", "top_k",
    "use_cache", "transformers_version", "_from_model_config",
}  # fmt: skip
LOOK_BACK = 2  # tokens more than a stop text has by itself: in an answer it may have other tokens


def is_plain(model: Any, options: dict[str, Any]) -> bool:
    """Whether the likeliest tokens alone are asked for, of a type that keeps padding out of a text. options: of lm-eval's generation."""
    is_greedy = not options.get("do_sample") and not options.get("temperature")
    is_usual = options.keys() <= {"do_sample", "temperature", "attention_mask"}
    set_names = {name for name, value in model.generation_config.to_diff_dict().items() if value not in (None, False)}
    return is_greedy and is_usual and set_names <= NEUTRAL and model.config.model_type in MASKED_TYPES


@torch.no_grad()
def write_answers(
    model: Any, tokenizer: Any, context: torch.Tensor, mask: torch.Tensor, max_length: int, stop: Sequence[str]
) -> torch.Tensor:
    """Prompts with their answers, padded on the right: int64 [n, at most max_length].

    context, mask: int64 [n, length], padded on the left; mask is 0 there. stop: texts of which the first in an answer is its end.
    """
    rows, width = context.shape
    answers = context.new_full((rows, max_length - width), tokenizer.pad_token_id)
    ends = model.generation_config.eos_token_id
    end_tokens = set(ends if isinstance(ends, list) else [ends])
    look_back = LOOK_BACK + max(len(tokenizer.encode(text, add_special_tokens=False)) for text in stop)
    going = torch.arange(rows, device=context.device)  # the rows that have no end yet
    places = (mask.cumsum(1) - 1).clamp(min=0)
    logits, cache = next_logits(model, context, mask, places, None)
    for at in range(max_length - width):
        tokens = logits.argmax(1)
        answers[going, at] = tokens
        tails = tokenizer.batch_decode(answers[going, max(0, at + 1 - look_back) : at + 1])
        kept = [
            place
            for place, (token, tail) in enumerate(zip(tokens.tolist(), tails, strict=True))
            if token not in end_tokens and not any(text in tail for text in stop)
        ]
        if not kept or at + 1 == max_length - width:
            return torch.cat([context, answers[:, : at + 1]], dim=1)
        if len(kept) < len(going):
            chosen = torch.tensor(kept, device=context.device)
            cache.batch_select_indices(chosen)
            going, tokens, mask, places = going[chosen], tokens[chosen], mask[chosen], places[chosen]
        mask, places = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1), places[:, -1:] + 1
        logits, cache = next_logits(model, tokens[:, None], mask, places, cache)
    return context
