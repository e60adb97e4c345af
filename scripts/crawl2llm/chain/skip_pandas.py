"""What a program of the data half does without, to start sooner: a small run is mostly starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.chain.steps import CRAWL, STEPS, WHATIF

# Trainings and evaluations use libraries that do need pandas, the demo's crawl documents it, and transformers asks whether it is there:
# in the plan of a training, too, which counts a step of it.
DATA_STEPS = tuple(
    step
    for step in (*tuple(STEPS)[: tuple(STEPS).index(BASE_STEP)], WHATIF)
    if step not in (CRAWL, "quality.transformers", "pretrain.plan", "pretrain.rung")
)


class PackageBlocker(MetaPathFinder):
    """Finds every package but this one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, *_: Any) -> None:
        """Nothing; raises ModuleNotFoundError for the one that is not to be found."""
        if fullname == self.name:
            raise ModuleNotFoundError(f"{fullname} is left out here")


@contextmanager
def without_pandas(step: str) -> Iterator[None]:
    """Inside, in a step of the data half, pandas counts as not installed.

    pyarrow imports it at its first conversion, to know pandas' values when it meets them, of which we have none: 0.2 seconds of each
    process, and of each shard's (core/shard_pool.py).
    """
    if step not in DATA_STEPS or "pandas" in sys.modules:
        yield
        return
    finder = PackageBlocker("pandas")
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
