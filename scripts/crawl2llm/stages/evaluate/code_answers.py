"""Answers that are programs: each is run against its tests in a sandbox, and passes or not (pass@1)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from crawl2llm.core.console import Progress
from crawl2llm.core.errors import InputError
from crawl2llm.stages.evaluate import sandbox

FENCE = "```"
Row = dict[str, Any]


def program_of(row: Row, answer: str, ends_at_fence: bool) -> str:
    """The program that is run: the prompt and what the model wrote after it, as lm-evaluation-harness joins them.

    ends_at_fence: the answer stands in a Markdown block of code, whose end it may hold.
    """
    return str(row["prompt"]) + (answer.partition(FENCE)[0] if ends_at_fence else answer)


def judge_programs(task: str, items: Sequence[tuple[Row, str]], threads: int) -> list[Row]:
    """The verdict (sandbox.run_tests) on each program. items: (row of HumanEval, program). Raises InputError, which names the item."""
    progress = Progress(len(items), f"programs run of {task}")

    def judge_program(item: tuple[Row, str]) -> Row:
        row, program = item
        try:
            verdict = sandbox.run_tests(program, row["entry_point"], row["prompt"], row["test"])
        except InputError as error:
            raise InputError(f"{task}, {row['entry_point']}: {error}") from error
        progress.add(1)
        return verdict

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(judge_program, items))
