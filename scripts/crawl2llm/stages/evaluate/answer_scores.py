"""The log-likelihoods of answers as lm-evaluation-harness defines them, with the logits of scored places alone, and in bounded memory."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from crawl2llm.stages.evaluate.truncation import Request
from crawl2llm.training.memory import LOGITS_AT_ONCE

Scored = tuple[float, bool]  # nats of the scored tokens, and whether each of them is the likeliest
Rows = list[
    tuple[tuple[int, ...], list[tuple[int, list[int]]]]
]  # what passes through the model; (number of a request, its scored tokens)


@torch.no_grad()
def score_answers(
    model: Any, requests: Sequence[Request], max_length: int, batch_size: int, count: Callable[[int], object]
) -> list[Scored]:
    """The score of each request. count: told of each batch's rows.

    max_length: of the model, in tokens; a longer request is cut on its left.
    Requests whose tokens differ in the last one alone pass through the model once.
    """
    answers: dict[tuple[int, ...], list[tuple[int, list[int]]]] = defaultdict(list)
    for number, (_, context, scored) in enumerate(requests):
        answers[tuple((context + scored)[-(max_length + 1) :][:-1])].append((number, scored))
    rows = sorted(answers.items(), key=lambda row: (-len(row[0]), row[0]))
    keeps_some = "logits_to_keep" in inspect.signature(model.forward).parameters
    out: list[Scored] = [(0.0, False)] * len(requests)
    for first in range(0, len(rows), batch_size):
        for part in split_rows(rows[first : first + batch_size], model.config.get_text_config().vocab_size, keeps_some):
            for number, result in score_rows(model, part, keeps_some):
                out[number] = result
            count(len(part))
    return out


def places_kept(rows: Rows, keeps_some: bool) -> int:
    """How many places at the end of the padded rows hold all that are scored. keeps_some: whether the model can leave out the others."""
    longest = max(len(tokens) for tokens, _ in rows)
    if not keeps_some:
        return longest
    return longest - min(len(tokens) - len(scored) for tokens, answers in rows for _, scored in answers)


def split_rows(rows: Rows, vocabulary: int, keeps_some: bool) -> Iterator[Rows]:
    """The rows in parts of which each has at most LOGITS_AT_ONCE bytes of logits in fp32, or is one row."""
    size = places_kept(rows, keeps_some) * vocabulary * 4
    at_once = max(1, LOGITS_AT_ONCE // size)
    for first in range(0, len(rows), at_once):
        yield rows[first : first + at_once]


def score_rows(model: Any, rows: Rows, keeps_some: bool) -> Iterator[tuple[int, Scored]]:
    """(number of a request, its score) of rows that pass through the model together, padded on the right."""
    longest, kept = max(len(tokens) for tokens, _ in rows), places_kept(rows, keeps_some)
    batch = torch.zeros(len(rows), longest, dtype=torch.long, device=model.device)
    for at, (tokens, _) in enumerate(rows):
        batch[at, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    logits = model(batch, **({"logits_to_keep": kept} if keeps_some else {})).logits
    for at, (tokens, answers) in enumerate(rows):
        end = len(tokens) - (longest - kept)
        start = end - max(len(scored) for _, scored in answers)
        row = torch.log_softmax(logits[at, start:end], dim=-1)
        best = row.argmax(dim=-1)
        for number, scored in answers:
            right = torch.tensor(scored, device=row.device)
            nats = row[-len(scored) :].gather(-1, right[:, None]).sum()
            yield number, (float(nats), bool((best[-len(scored) :] == right).all()))
