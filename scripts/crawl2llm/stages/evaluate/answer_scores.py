"""The log-likelihoods of answers as lm-evaluation-harness defines them, with the logits of scored places alone, and in bounded memory."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from crawl2llm.stages.evaluate.logit_pieces import logit_pieces, tokens_at_once
from crawl2llm.stages.evaluate.truncation import Request

Scored = tuple[float, bool]  # nats of the scored tokens, and whether each of them is the likeliest
Answers = list[tuple[int, list[int]]]  # (number of a request, its scored tokens), which all end where the row does
Rows = list[tuple[tuple[int, ...], Answers]]  # (what passes through the model, what is scored of it)


@torch.no_grad()
def score_answers(
    model: Any, requests: Sequence[Request], max_length: int, batch_size: int, count: Callable[[int], object]
) -> list[Scored]:
    """The score of each request. count: told of each batch's rows.

    max_length: of the model, in tokens; a longer request is cut on its left.
    Requests whose tokens differ in the last one alone pass through the model once.
    """
    answers: dict[tuple[int, ...], Answers] = defaultdict(list)
    for number, (_, context, scored) in enumerate(requests):
        answers[tuple((context + scored)[-(max_length + 1) :][:-1])].append((number, scored))
    rows = sorted(answers.items(), key=lambda row: (-len(row[0]), row[0]))
    keeps_some = "logits_to_keep" in inspect.signature(model.forward).parameters
    out: list[Scored] = [(0.0, False)] * len(requests)
    for first in range(0, len(rows), batch_size):
        for part in split_rows(rows[first : first + batch_size], tokens_at_once(model), keeps_some):
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


def split_rows(rows: Rows, tokens: int, keeps_some: bool) -> Iterator[Rows]:
    """The rows in parts of which each has the logits of at most so many tokens, or is one row."""
    at_once = max(1, tokens // places_kept(rows, keeps_some))
    for first in range(0, len(rows), at_once):
        yield rows[first : first + at_once]


def score_rows(model: Any, rows: Rows, keeps_some: bool) -> Iterator[tuple[int, Scored]]:
    """(number of a request, its score) of rows that pass through the model together, padded on the right."""
    longest, kept = max(len(tokens) for tokens, _ in rows), places_kept(rows, keeps_some)
    batch = torch.zeros(len(rows), longest, dtype=torch.long, device=model.device)
    for at, (tokens, _) in enumerate(rows):
        batch[at, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    if kept > tokens_at_once(model):  # of one row
        places = torch.zeros_like(batch, dtype=torch.bool)
        places[:, longest - places_scored(rows[0][1]) :] = True
        yield from score_pieces(logit_pieces(model, batch, places), rows[0][1])
        return
    logits = model(batch, **({"logits_to_keep": kept} if keeps_some else {})).logits
    for at, (tokens, answers) in enumerate(rows):
        end = len(tokens) - (longest - kept)
        yield from score_pieces([logits[at, end - places_scored(answers) : end]], answers)


def places_scored(answers: Answers) -> int:
    """The places at the end of a row that any of its answers has."""
    return max(len(scored) for _, scored in answers)


def score_pieces(pieces: Iterable[torch.Tensor], answers: Answers) -> Iterator[tuple[int, Scored]]:
    """(number of a request, its score) of a row's answers. pieces: of its `places_scored` logits [k, vocabulary], in order."""
    nats, likeliest, done = [0.0] * len(answers), [True] * len(answers), 0
    for logits in pieces:
        row = torch.log_softmax(logits, dim=-1)
        best, left = row.argmax(dim=-1), places_scored(answers) - done
        for at, (_, scored) in enumerate(answers):
            skipped = max(0, left - len(scored))  # places of longer answers
            right = torch.tensor(scored[len(scored) - left + skipped :][: len(row) - skipped], device=row.device)
            if len(row) > skipped:
                nats[at] += float(row[skipped:].gather(-1, right[:, None]).sum())
                likeliest[at] &= bool((best[skipped:] == right).all())
        done += len(row)
    for (number, _), total, is_likeliest in zip(answers, nats, likeliest, strict=True):
        yield number, (total, is_likeliest)
