"""Answers of a model, token by token: the same for any (seed, step, row, place), whatever else is drawn beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

# Token ids [n, length], the mask up to there, places, a cache or None → (fp32 logits [n, vocabulary] behind the last, the cache).
Following = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Any], tuple[torch.Tensor, Any]]


def uniform_draws(seed: int, key: Sequence[object], count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`count` numbers in [0, 1), a function of seed and key alone: Philox, keyed by their hash."""
    import xxhash  # only here: gpu-check draws without it

    mark = xxhash.xxh3_128_intdigest("\x1f".join(map(str, (seed, *key))).encode())
    return np.random.Generator(np.random.Philox(key=mark)).random(count)


def sample_tokens(logits: torch.Tensor, draws: torch.Tensor, temperature: float) -> torch.Tensor:
    """A token for each row of logits [n, vocabulary]: where `draws` [n] in [0, 1) lies in its distribution; 0: the likeliest. int64 [n]."""
    if not temperature:
        return logits.argmax(1)
    below = (logits.double() / temperature).softmax(1).cumsum(1)
    return torch.searchsorted(below, (draws[:, None] * below[:, -1:])).squeeze(1).clamp(max=logits.shape[1] - 1)


def next_logits(
    model: Any, inputs: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """A model of transformers as `Following`: one forward pass with keys and values kept.

    inputs, places: int64 [n, length]. mask: int64 [n, all so far], 0 if there is padding. cache: what it returned before, or None.
    """
    output = model(
        input_ids=inputs,
        attention_mask=mask,
        position_ids=places,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1].float(), output.past_key_values


def any_unfinished(going: torch.Tensor) -> bool:
    """Whether an answer goes on in any process. A collective call."""
    left = going.any().float()
    dist.all_reduce(left, op=dist.ReduceOp.MAX)
    return bool(left)


@torch.no_grad()
def generate_answers(
    following: Following,
    prompts: Sequence[Sequence[int]],
    draws: torch.Tensor,
    temperature: float,
    end: int,
    goes_on: Callable[[torch.Tensor], bool],
) -> list[list[int]]:
    """What the model goes on with after each prompt, up to the end token, which it has, or as many tokens as `draws` [prompts, most] has.

    With `any_unfinished` as `goes_on`, every process makes as many forward passes as the others, also one without a prompt.
    """
    device, most = draws.device, draws.shape[1]
    rows, width = max(1, len(prompts)), max((len(ids) for ids in prompts), default=1)
    inputs = torch.full((rows, width), end, dtype=torch.int64)
    mask = torch.zeros((rows, width), dtype=torch.int64)
    mask[:, -1] = 1  # so that a row of padding has something to look at
    for row, ids in enumerate(prompts):  # on the left: all end at the same place
        inputs[row, width - len(ids) :] = torch.tensor(ids)
        mask[row, width - len(ids) :] = 1
    inputs, mask = inputs.to(device), mask.to(device)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    # What is drawn stays on the device: to ask for each row's token would wait for it so many times a step.
    drawn, lengths = (torch.zeros(shape, dtype=torch.int64, device=device) for shape in ((rows, most), (rows,)))
    going = torch.full((rows,), bool(prompts), device=device)
    cache: Any = None
    for number in range(most):
        logits, cache = following(inputs, mask, places, cache)
        draw = draws[:, number] if len(prompts) else torch.zeros(rows, dtype=torch.float64, device=device)
        tokens = sample_tokens(logits, draw, temperature)
        drawn[:, number] = tokens
        lengths += going
        going &= tokens != end
        if not goes_on(going):
            break
        inputs, places = tokens[:, None], places[:, -1:] + 1
        mask = torch.cat([mask, torch.ones((rows, 1), dtype=torch.int64, device=device)], 1)
    ids_of = zip(drawn.tolist(), lengths.tolist(), strict=True)
    return [ids[:length] for ids, length in ids_of][: len(prompts)]
