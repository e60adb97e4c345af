"""Answers of a model, token by token: the same for any (seed, step, row, place), whatever else is drawn beside them.

Here a batch is drawn together, to the end of its longest answer, with keys and values that grow: any type can.
training/slots.py draws with keys and values in place, and gives the row of an answer that has ended to the next prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

# Token ids [n, length], the mask up to there, places, a cache or None → (fp32 logits [n, vocabulary] behind the last, the cache).
Following = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor, Any], tuple[torch.Tensor, Any]]
# What hears the tokens of a prompt's answer as they are drawn, by the prompt's number, and says whether it goes on.
Listener = Callable[[int, list[int]], bool]


@dataclass(frozen=True)
class Choice:
    """How a token is chosen, and what ends an answer.

    end: the end token's id; further_ends: tokens that end an answer, too.
    temperature 0 takes the likeliest. top_p: of the tempered distribution, the likeliest tokens that add up to it.
    with_nats: whether the nats of each token by the model itself are kept.
    """

    end: int
    temperature: float = 1.0
    top_p: float = 1.0
    with_nats: bool = False
    further_ends: tuple[int, ...] = ()

    def pick_tokens(self, logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """A token for each row of fp32 logits [n, vocabulary] by draws [n] in [0, 1): int64 [n]."""
        if self.temperature and self.top_p < 1:
            from transformers import TopPLogitsWarper

            nothing: Any = None  # it does not read what came before
            logits = TopPLogitsWarper(self.top_p)(nothing, logits / self.temperature) * self.temperature
        return sample_tokens(logits, draws, self.temperature)

    @property
    def ends(self) -> tuple[int, ...]:
        """All tokens that end an answer."""
        return (self.end, *self.further_ends)


@dataclass
class Answer:
    """Token ids, the end token among them if it came, and the nats of each if they are kept."""

    ids: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)

    def add_tokens(self, ids: list[int], nats: list[float], ends: Sequence[int], most: int) -> list[int]:
        """Add tokens up to the first of `ends`, or to `most` of the answer in all; those that were added."""
        ids = ids[: most - len(self.ids)]
        ids = ids[: next((at + 1 for at, token in enumerate(ids) if token in ends), len(ids))]
        self.ids += ids
        self.nats += nats[: len(ids)]
        return ids

    def is_finished(self, ends: Sequence[int], most: int) -> bool:
        """Whether it has its end token, or as many tokens as it may have."""
        return len(self.ids) >= most or self.ids[-1] in ends


def uniform_draws(seed: int, key: Sequence[object], count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`count` numbers in [0, 1), a function of seed and key alone: Philox, keyed by their hash."""
    import xxhash  # only here: gpu-check draws without it

    mark = xxhash.xxh3_128_intdigest("\x1f".join(map(str, (seed, *key))).encode())
    return np.random.Generator(np.random.Philox(key=mark)).random(count)


def draw_table(seed: int, keys: Sequence[Sequence[object]], count: int) -> torch.Tensor:
    """The draws of answers by their keys: float64 [keys, count]."""
    rows = np.array([uniform_draws(seed, key, count) for key in keys])
    return torch.from_numpy(rows.reshape(len(keys), count))


def sample_tokens(logits: torch.Tensor, draws: torch.Tensor, temperature: float) -> torch.Tensor:
    """A token for each row of logits [n, vocabulary]: where `draws` [n] in [0, 1) lies in its distribution; 0: the likeliest. int64 [n]."""
    if not temperature:
        return logits.argmax(1)
    below = (logits.double() / temperature).softmax(1).cumsum(1)
    return torch.searchsorted(below, (draws[:, None] * below[:, -1:])).squeeze(1).clamp(max=logits.shape[1] - 1)


def token_nats(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The nats of tokens [n] by fp32 logits [n, vocabulary]: fp32 [n]."""
    return -logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]


def next_logits(
    model: Any, inputs: torch.Tensor, mask: torch.Tensor | None, places: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """A model of transformers as `Following`: one forward pass with keys and values kept.

    inputs, places: int64 [n, length]. mask: int64 [n, all so far], 0 if there is padding; None if the cache masks. cache: what it returned
    before, or None.
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


def any_unfinished_here(going: torch.Tensor) -> bool:
    """Whether an answer goes on in this process."""
    return bool(going.any())


@torch.no_grad()
def draw_together(
    following: Following,
    prompts: Sequence[Sequence[int]],
    draws: torch.Tensor,
    choice: Choice,
    goes_on: Callable[[torch.Tensor], bool] = any_unfinished_here,
    stride: int = 1,
    listen: Listener | None = None,
) -> list[Answer]:
    """What the model goes on with after each prompt, up to the end token or as many tokens as `draws` [prompts, most] has.

    draws: on the model's device. stride: how many tokens are drawn before the host waits for the device. With `any_unfinished` as
    `goes_on`, every process makes as many forward passes as the others, also one without a prompt.
    """
    device, most = draws.device, draws.shape[1]
    inputs, mask = (part.to(device) for part in _pad_left(prompts, choice.end))
    rows, places = len(inputs), (mask.cumsum(1) - 1).clamp(min=0)
    # What is drawn stays on the device: to ask for each row's token would wait for it so many times a step.
    drawn = torch.zeros((rows, most), dtype=torch.int64, device=device)
    nats = torch.zeros((rows, most if choice.with_nats else 0), device=device)
    going = torch.full((rows,), bool(prompts), device=device)
    answers, cache = [Answer() for _ in prompts], None
    heard = dict(enumerate(answers))  # those whose listener wants more
    for number in range(most):
        logits, cache = following(inputs, mask, places, cache)
        draw = draws[:, number] if len(prompts) else torch.zeros(rows, dtype=torch.float64, device=device)
        tokens = choice.pick_tokens(logits, draw)
        drawn[:, number] = tokens
        if choice.with_nats:
            nats[:, number] = token_nats(logits, tokens)
        for end in choice.ends:
            going &= tokens != end
        if (number + 1) % stride == 0 or number + 1 == most:
            if listen:
                _hear_tokens(heard, going, drawn[:, : number + 1], choice.ends, listen)
            if not goes_on(going):
                break
        inputs, places = tokens[:, None], places[:, -1:] + 1
        mask = torch.cat([mask, torch.ones((rows, 1), dtype=torch.int64, device=device)], 1)
    for answer, ids, values in zip(answers, drawn[:, : number + 1].tolist(), nats.tolist(), strict=False):
        if not listen:
            answer.add_tokens(ids, [], choice.ends, most)
        answer.nats = values[: len(answer.ids)]
    return answers


def _pad_left(prompts: Sequence[Sequence[int]], end: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(token ids, mask) of prompts, all of which end at the same place: int64 [prompts, longest]; of none a row of padding."""
    rows, width = max(1, len(prompts)), max((len(ids) for ids in prompts), default=1)
    inputs = torch.full((rows, width), end, dtype=torch.int64)
    mask = torch.zeros((rows, width), dtype=torch.int64)
    mask[:, -1] = 1  # so that a row of padding has something to look at
    for row, ids in enumerate(prompts):
        inputs[row, width - len(ids) :] = torch.tensor(ids)
        mask[row, width - len(ids) :] = 1
    return inputs, mask


def _hear_tokens(
    answers: dict[int, Answer], going: torch.Tensor, drawn: torch.Tensor, ends: Sequence[int], listen: Listener
) -> None:
    """Hand the new tokens of answers, by number, to `listen`, which may end one; those that have ended are left out from then on.

    going: bool [answers]. drawn: int64 [answers, so far].
    """
    rows, most = drawn.tolist(), drawn.shape[1]
    for number, answer in list(answers.items()):
        goes_on = listen(number, answer.add_tokens(rows[number][len(answer.ids) :], [], ends, most))
        if not goes_on:
            going[number] = False
        if not goes_on or answer.ids[-1] in ends:
            del answers[number]
