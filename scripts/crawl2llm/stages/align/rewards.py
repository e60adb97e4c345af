"""What an answer is worth: by a rule of the config, a Python function of the user's own, a reward model, or a model behind an endpoint.

`exact`: the answer is the row's, letters' case and white space aside. `format`: a regular expression matches the whole answer. `length`: it
has `least` to `most` words, and less the further it is from them. `function: path/to/file.py:name` calls `name(question, answer,
reference)`, where `reference` is the row's answer or None, and takes the number that it returns. Such a file is run as it is. `model`: the
score by a model of align.reward (stages/align/reward_model.py), one of the run (`name`), or of any other (`manifest`). `endpoint`: the
score that a model behind an OpenAI-compatible endpoint replies with (stages/align/endpoint.py), in align.pairs alone.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import regex

from crawl2llm.core.errors import InputError
from crawl2llm.stages.align.functions import Reward, load_function, parse_function_path
from crawl2llm.stages.align.settings import RewardEntry
from crawl2llm.text.text_key import text_key

SECONDS = 10.0  # that an expression may take on one answer
MODEL, ENDPOINT = "model", "endpoint"
# The keys of an entry, by its reward.
KEYS = {
    "exact": {"pattern"},
    "format": {"pattern"},
    "length": {"least", "most"},
    MODEL: {"name", "manifest"},
    ENDPOINT: set[str](),
}
RewardArguments = tuple[str, str, str | None]  # as the arguments of Reward


def check_entries(entries: Sequence[RewardEntry], key: str, endpoint: bool = False) -> None:
    """InputError, naming the key, for rewards that cannot be: before a run, and without running the user's code.

    endpoint: that one may judge.
    """
    for number, entry in enumerate(entries):
        _check_entry(entry, f"{key}[{number}]", endpoint)


def _check_entry(entry: RewardEntry, key: str, endpoint: bool) -> None:
    kind, kinds = entry.reward, [name for name in KEYS if endpoint or name != ENDPOINT]
    if kind == ENDPOINT and not endpoint:
        raise InputError(
            f"{key}.reward is 'endpoint', which judges in align.pairs.rewards alone: answers are drawn at each step here, and each process "
            "would wait for replies at each; teach a reward model (align.reward) what the endpoint prefers, or give one of "
            f"{', '.join(kinds)}"
        )
    if (entry.function is None) == (kind is None):
        raise InputError(f"{key} is {_as_written(entry)!r}; give `function`, or `reward`: one of {', '.join(kinds)}")
    allowed = {"weight", "function"} if kind is None else {"weight", "reward", *KEYS[kind]}
    if more := sorted(entry.model_fields_set - allowed):
        raise InputError(
            f"{key}.{more[0]} goes with another reward; allowed beside this one: {', '.join(sorted(allowed))}"
        )
    if entry.function is not None:
        _check_function(entry.function, f"{key}.function")
    elif kind == MODEL:
        if (entry.name is None) == (entry.manifest is None):
            raise InputError(
                f"{key} is {_as_written(entry)!r}; give `name`, of a model of align.reward, or `manifest`, that of one of another run"
            )
    elif kind == ENDPOINT:
        return
    elif kind == "length":
        least, most = entry.least or 0, math.inf if entry.most is None else entry.most
        if least > most or entry.least is entry.most is None:
            raise InputError(f"{key} is {_as_written(entry)!r}; give `least`, `most` or both, `least` not above `most`")
    else:
        if kind == "format" and entry.pattern is None:
            raise InputError(f"{key} lacks `pattern`, a regular expression for the whole answer")
        expression = _compile_pattern(entry.pattern or "", key)
        if kind == "exact" and entry.pattern is not None and "answer" not in expression.groupindex:
            raise InputError(f"{key}.pattern is {entry.pattern!r}; it must have a group (?P<answer>…)")


def _as_written(entry: RewardEntry) -> dict[str, Any]:
    """An entry as the config has it."""
    return entry.model_dump(exclude_unset=True)


def _check_function(name: str, key: str) -> None:
    """InputError for a function that its file does not hold; the file is not run."""
    path, function = parse_function_path(name, key)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{key} is {name!r}: {error}") from error
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if function not in names:
        raise InputError(f"{key} is {name!r}; functions of the file: {', '.join(names) or 'none'}")


def _compile_pattern(pattern: str, key: str) -> regex.Pattern[str]:
    try:
        return regex.compile(pattern, regex.DOTALL)
    except regex.error as error:
        raise InputError(f"{key}.pattern is {pattern!r}: {error}") from error


def _match_in_time(call: Callable[[], Any], pattern: str) -> Any:
    try:
        return call()
    except TimeoutError as error:
        raise InputError(
            f"a reward's pattern {pattern!r} takes over {SECONDS:g} s on an answer; write a simpler one"
        ) from error


def exact_reward(pattern: str = "") -> Reward:
    """1 where the answer is the row's, else 0; with a pattern, where its group `answer` is at its last match."""
    expression = regex.compile(pattern, regex.DOTALL)

    def reward(question: str, answer: str, reference: str | None) -> float:
        if pattern:
            matches = _match_in_time(lambda: list(expression.finditer(answer, timeout=SECONDS)), pattern)
            answer = (matches[-1]["answer"] or "") if matches else ""
        return float(bool(text_key(reference or "")) and text_key(answer) == text_key(reference or ""))

    return reward


def format_reward(pattern: str) -> Reward:
    """1 where the expression matches the whole answer, else 0."""
    expression = regex.compile(pattern, regex.DOTALL)
    return lambda question, answer, reference: float(
        _match_in_time(lambda: expression.fullmatch(answer, timeout=SECONDS), pattern) is not None
    )


def length_reward(least: int = 0, most: float = math.inf) -> Reward:
    """1 for `least` to `most` words; below it words / least, above it most / words."""

    def reward(question: str, answer: str, reference: str | None) -> float:
        words = len(answer.split())
        if words < least:
            return words / least
        return most / words if words > most else 1.0

    return reward


class Judge(Protocol):
    """A reward model, of stages/align/reward_model.py, or an endpoint: without what it imports, a check of the config is quick."""

    def move_to(self, device: Any) -> None:
        """Judge on a device from now on."""

    def scores(self, answers: Sequence[RewardArguments]) -> list[float]:
        """The score of each answer; not a number (nan) if there is none."""


REWARD_MAKERS: dict[str | None, Callable[[RewardEntry], Reward]] = {
    "exact": lambda entry: exact_reward(entry.pattern or ""),
    "format": lambda entry: format_reward(entry.pattern or ""),
    "length": lambda entry: length_reward(entry.least or 0, math.inf if entry.most is None else entry.most),
}


class Rewards:
    """The rewards of a config: each by its name and weight. judge: makes what judges of an entry, by that and its key.

    endpoint: that one may judge.
    """

    def __init__(
        self,
        entries: Sequence[RewardEntry],
        key: str,
        judge: Callable[[RewardEntry, str], Judge] | None = None,
        endpoint: bool = False,
    ) -> None:
        check_entries(entries, key, endpoint)
        self.names: list[str] = []
        self.weights = [float(1 if entry.weight is None else entry.weight) for entry in entries]
        self.calls: list[Reward | Judge] = []
        for number, entry in enumerate(entries):
            name = _metric_name(entry)
            self.names.append(name if name not in self.names else f"{name}_{number}")
            if entry.function is not None:
                self.calls.append(load_function(entry.function, f"{key}[{number}].function"))
            elif entry.reward in REWARD_MAKERS:
                self.calls.append(REWARD_MAKERS[entry.reward](entry))
            else:
                assert judge is not None
                self.calls.append(judge(entry, f"{key}[{number}]"))

    def move_to(self, device: Any) -> None:
        """Have what judges do so on a device."""
        for call in self.calls:
            if not callable(call):
                call.move_to(device)

    def reward_values(self, answers: Sequence[RewardArguments]) -> list[list[float]]:
        """What each of some answers is worth by each reward, without weights."""
        columns = [
            [call(*arguments) for arguments in answers] if callable(call) else call.scores(answers)
            for call in self.calls
        ]
        return [list(each) for each in zip(*columns, strict=True)]

    def answer_values(self, question: str, answer: str, reference: str | None) -> list[float]:
        """The same of one answer."""
        return self.reward_values([(question, answer, reference)])[0]

    def weighted_sum(self, values: Sequence[float]) -> float:
        """The weighted sum; not a number where one of them is none."""
        return sum(weight * value for weight, value in zip(self.weights, values, strict=True))


def _metric_name(entry: RewardEntry) -> str:
    """What metrics call a reward."""
    if entry.reward == MODEL:
        return entry.name or Path(entry.manifest or "").name.partition(".")[0]
    return entry.reward or (entry.function or "").rpartition(":")[2]
