"""The engine that trains, by its name."""

from __future__ import annotations

from crawl2llm.training.engine import Engine
from crawl2llm.training.engines.deepspeed import DeepSpeed
from crawl2llm.training.engines.torch import Torch

ENGINES: dict[str, type[Engine]] = {"deepspeed": DeepSpeed, "torch": Torch}  # by pretrain.train.engine
