"""Training on of a smaller model, whose zeroed weights stay zero."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import masks
from crawl2llm.training import engine, text_run
from crawl2llm.training.shared_settings import TextTrainingSettings

WHERE = "compress.prune"


class Run(text_run.Run):
    """A training on text whose zeroed weights stay zero.

    source: the folder of the smaller model. zeroed: names of its parameters with zeros to keep.
    """

    where = WHERE
    program = "crawl2llm.stages.compress.prune"
    tokens_key = "retrain_tokens"

    def __init__(
        self, args: argparse.Namespace, settings: TextTrainingSettings, folder: Path, source: Path, zeroed: list[str]
    ) -> None:
        self.zeroed = zeroed
        super().__init__(args, settings, folder, source)

    def check_settings(self, config: Any) -> None:
        """InputError for settings that cannot go with the windows, the processes or the zeros."""
        super().check_settings(config)
        check_zeros(self.settings, bool(self.zeroed), self.where)

    def build_engine(self, job: engine.Job) -> engine.Engine:
        """The engine, with the pruned model, whose zeros it keeps."""
        built_engine = super().build_engine(job)
        masks.keep_zeros(built_engine.model, self.zeroed)
        return built_engine


def check_zeros(settings: TextTrainingSettings, masked: bool, where: str = WHERE) -> None:
    """InputError for zeros that an engine's shards would not keep."""
    if masked and settings.zero_stage:
        raise InputError(
            f"{where}.zero_stage is {settings.zero_stage}; zeros of method 'magnitude' or '2:4' stay zero under stage 0 alone"
        )
