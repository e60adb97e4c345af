"""Personal data in pairs and preferences from files: masked as in documents, where the run uses the filter `pii`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

REASON = "personal_data"  # why a row is dropped


class Masks(Protocol):
    """filters/pii/masks.py."""

    masked_counts: Counter[str]

    def __call__(self, texts: Sequence[str], counted: bool = True) -> list[str] | None:
        """The texts of a row with placeholders; None where the row is dropped."""


def pii_masks(settings: dict[str, Any]) -> Masks | None:
    """What masks texts; None where the run does not use the filter. settings: of the step, with those of the filter as `pii`."""
    if "pii" not in settings:
        return None
    # By its name: an import would have every edit of the filter rerun the pairs of runs that do not use it. Of those that do, the corpus
    # is made by the same code, and their fingerprints name it.
    masks: Masks = import_module("crawl2llm.filters.pii.masks").Masks(settings["pii"])
    return masks
