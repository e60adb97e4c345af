"""The entries of `finetune.pairs` that say where pairs come from."""

from typing import Literal

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import NonEmpty, Settings, optional, setting


class PairsPattern(Settings):
    """What makes a pair of a text."""

    preset: Literal["summary", "title", "lead"] | None = optional()
    pattern: NonEmpty | None = optional()
    question: NonEmpty | None = optional()


class PairsFile(Settings):
    """A file of instructions or conversations."""

    path: NonEmpty = setting()
    layout: Literal["columns", "alpaca", "chat"] | None = optional()
    question: NonEmpty | None = optional()
    answer: NonEmpty | None = optional()
    labels: dict[str, NonEmpty] | None = optional(min_length=2)
    columns: list[NonEmpty] | None = optional(min_length=1, unique=True)
    heldout: Share | None = optional()
