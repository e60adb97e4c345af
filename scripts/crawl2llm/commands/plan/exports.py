"""What a plan says of exports that its config does not ask for yet, and that its trainings would make impossible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from crawl2llm.chain.model_registry import trains_base
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.stages.compress import gguf_support

DECIDING_STEPS = ("tokenize.train", "pretrain.train")  # what they are made with cannot be changed afterwards


def export_obstacle_lines(tasks: Iterable[Task], variants: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A line for each reason why llama.cpp could not take what is trained. variants: their complete configs.

    A config that asks for such an export is refused before its plan (gguf_support.check_exports).
    """
    changing = {task.variant for task in tasks if task.step in DECIDING_STEPS}
    configs = [
        config
        for name, config in variants.items()
        if name in changing and trains_base(config) and not gguf_support.gguf_exports(config)
    ]
    for obstacle in dict.fromkeys(obstacle for config in configs for obstacle in gguf_support.gguf_problems(config)):
        yield f"no export as GGUF afterwards: {obstacle}"
