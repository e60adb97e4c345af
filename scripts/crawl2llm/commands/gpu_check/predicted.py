"""Prints as JSON how many tokens/s pretrain.plan predicts for each case of the check `steps`, on such GPUs. It needs no GPU.

python -m crawl2llm.commands.gpu_check.predicted GPU NODES PROCESSES (of a node)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from functools import partial

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.steps import CASES
from crawl2llm.core.console import print_line
from crawl2llm.training import gpus, initial
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.prediction import count
from crawl2llm.training.prediction.checked_models import CONTEXT, SIZES, VOCABULARY, llama_config
from crawl2llm.training.prediction.operations import Operation
from crawl2llm.training.prediction.predict import Step, add_up, whole_step
from crawl2llm.training.prediction.rates import sheet_rates


def _count_layers(settings: EngineSettings, micro_batch: int, layers: int) -> list[Operation]:
    config = llama_config("1B", VOCABULARY, CONTEXT, num_hidden_layers=layers)
    return count.count_step(config, settings, micro_batch, CONTEXT)


def predict_rates(gpu: str, nodes: int, processes: int, names: Collection[str] = tuple(CASES)) -> dict[str, float]:
    """tokens/s of each GPU, by case, without those of fp8. gpu: a name of gpus.KINDS; processes: of each node."""
    kind = gpus.find(gpu)
    rates = sheet_rates(kind) if kind else None
    if rates is None:
        return {}
    whole, predicted = initial.empty_model(llama_config("1B", VOCABULARY, CONTEXT)), {}
    parameters = sum(value.numel() for value in whole.parameters())
    for name in names:
        micro_batch, changes, _ = CASES[name]
        settings = models.engine_settings(**changes)
        if settings.precision != "bf16":
            continue

        count_layers = partial(_count_layers, settings, micro_batch)
        parts = whole_step(count_layers, SIZES["1B"][1], rates, settings.compile_layers)
        step = Step(1, nodes * processes, processes, parameters, settings.zero_stage, 2, 4)
        predicted[name] = micro_batch * CONTEXT / add_up(parts, step, rates)[0]
    return predicted


if __name__ == "__main__":
    print_line(json.dumps(predict_rates(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
