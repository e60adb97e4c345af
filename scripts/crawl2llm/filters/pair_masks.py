"""Personal data in pairs and preferences from files: masked as in documents, where the run uses the filter `pii`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from crawl2llm.filters.pii.settings import PiiSettings

REASON = "personal_data"  # why a row is dropped


class Masks(Protocol):
    """filters/pii/masks.py."""

    masked_counts: Counter[str]

    def __call__(self, texts: Sequence[str], counted: bool = True) -> list[str] | None:
        """The texts of a row with placeholders; None if the row is dropped."""


def pii_masks(settings: PiiSettings | None) -> Masks | None:
    """What masks texts; None if the run does not use the filter, and so there are no settings of it."""
    if settings is None:
        return None
    # By its name: an import would have every edit of the filter rerun the pairs of runs that do not use it. Of those that do, the corpus
    # is made by the same code, and their fingerprints name it.
    masks: Masks = import_module("crawl2llm.filters.pii.masks").Masks(settings.score, settings.select)
    return masks
