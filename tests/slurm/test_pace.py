"""The queue is asked often enough that the end of a short task is noticed soon."""

from __future__ import annotations

import pytest
from snakemake_executor_plugin_slurm import Executor

from crawl2llm.slurm import pace


@pytest.mark.parametrize(("asked", "waited"), [(20, 20), (180, pace.LONGEST)])
def test_the_executors_pauses_are_bounded(asked: float, waited: float) -> None:
    executor = object.__new__(Executor)
    pace.limit_pause(executor)
    assert isinstance(executor, Executor)
    executor.next_seconds_between_status_checks = asked
    assert executor.next_seconds_between_status_checks == waited


def test_another_executor_is_left_alone() -> None:
    other = object()
    pace.limit_pause(other)
    assert type(other) is object
