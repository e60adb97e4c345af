"""From log-likelihoods of choices to a task's numbers: accuracy, its distance from guessing, and its error over documents."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# What a task's accuracy is by. It follows from what the choices are, not from results: where they have as many bytes as each other
# (word_order, next_word) the two measures are one; continuations differ in length, and the sum would take the shortest. QUESTIONS as in
# fine-tuning.
SUM, PER_BYTE = "acc", "acc_norm"
QUESTIONS = "heldout_questions"
HEADLINES = {"word_order": SUM, "next_word": SUM, "continuation": PER_BYTE, QUESTIONS: SUM}
RESAMPLES = 1000
DIGITS = 6

Encode = Callable[[str], Sequence[int]]


def split_tokens(encode: Encode, context: str, choices: Sequence[str]) -> tuple[list[int], list[list[int]]]:
    """(tokens that the context has in common with itself and every choice, the tokens that follow them for each choice).

    A tokenizer may join the end of a context with the beginning of a choice. What is scored then begins before the choice, and at the
    same token for all choices, so that their log-likelihoods compare. The first part is empty without a context; a part to score is
    empty only if context and choice together have no token.
    """
    before, *whole = [list(encode(context)), *(list(encode(context + choice)) for choice in choices)]
    shared = len(before)
    for ids in whole:
        most = min(shared, max(0, len(ids) - 1))
        shared = next((at for at, (a, b) in enumerate(zip(before[:most], ids, strict=False)) if a != b), most)
    return before[:shared], [ids[shared:] for ids in whole]


def best_choice(likelihoods: Sequence[float], choices: Sequence[str], measure: str) -> int:
    """The choice of the highest log-likelihood, summed (SUM) or a byte (PER_BYTE); the first of equal ones, as lm-evaluation-harness."""
    sizes = [len(text.encode()) if measure == PER_BYTE else 1 for text in choices]
    return int(np.argmax(np.array(likelihoods) / np.array(sizes)))


def judge_item(task: str, item: dict[str, Any], likelihoods: Sequence[float]) -> dict[str, Any]:
    """One line of a file of results: what was chosen by the task's headline, whether it is right, and each choice's nats."""
    choice = best_choice(likelihoods, item["choices"], HEADLINES.get(task, SUM))
    return {
        "task": task,
        "id": item["id"],
        "document": item["document"],
        "chosen": choice,
        "right": choice == item["gold"],
        "log_likelihoods": [round(float(value), DIGITS) for value in likelihoods],
    }


def standard_error(right: Sequence[float], documents: Sequence[str], seed: int, salt: str) -> float | None:
    """The standard error of an accuracy: the standard deviation over RESAMPLES sets of as many documents, drawn with replacement.

    Documents are drawn, not items: those of one document depend on each other (cluster bootstrap, Davison and Hinkley 1997, section 3.8;
    for evaluations of language models Miller 2024, arXiv:2411.00640, section 2.2). None with fewer than two documents.
    """
    names, place = np.unique(np.array(documents), return_inverse=True)
    if len(names) < 2:
        return None
    sizes, hits = np.bincount(place), np.bincount(place, weights=np.array(right, dtype=float))
    generator = np.random.default_rng([seed, zlib.crc32(salt.encode())])
    means = []
    for _ in range(RESAMPLES):
        times = np.bincount(generator.integers(len(names), size=len(names)), minlength=len(names))
        means.append(float(times @ hits / (times @ sizes)))
    return float(np.std(means, ddof=1))


def measure_task(
    task: str, items: Sequence[dict[str, Any]], likelihoods: Sequence[Sequence[float]], seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(a task's numbers, a line for each item). items: with id, document, choices, gold; likelihoods: nats of each choice of each.

    `accuracy` is that of `headline`; `centered` is (accuracy − chance)/(1 − chance): 0 is guessing, 1 all right (DCLM, arXiv:2406.11794).
    """
    lines = [judge_item(task, item, nats) for item, nats in zip(items, likelihoods, strict=True)]
    pairs = list(zip(items, likelihoods, strict=True))
    shares = {
        name: sum(best_choice(nats, item["choices"], name) == item["gold"] for item, nats in pairs) / len(pairs)
        for name in (SUM, PER_BYTE)
    }
    chance = sum(1 / len(item["choices"]) for item in items) / len(items)
    accuracy = shares[HEADLINES.get(task, SUM)]
    deviation = standard_error([line["right"] for line in lines], [line["document"] for line in lines], seed, task)
    numbers = {
        **shares,
        "accuracy": accuracy,
        "stderr": deviation,
        "centered": (accuracy - chance) / (1 - chance),
        "centered_stderr": None if deviation is None else deviation / (1 - chance),
        "chance": chance,
    }
    return {
        **{key: None if value is None else round(value, DIGITS) for key, value in numbers.items()},
        "headline": HEADLINES.get(task, SUM),
        "items": len(items),
        "documents": len({item["document"] for item in items}),
    }, lines
