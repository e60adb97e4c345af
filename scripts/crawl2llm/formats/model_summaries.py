"""What the summary of a step that makes a model says of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def parameter_count(summary: Mapping[str, Any] | None) -> Any:
    """The parameters of a model: the number, or `total` of {total, non_embedding}; None if the summary does not say."""
    counts = (summary or {}).get("parameters")
    return counts.get("total") if isinstance(counts, Mapping) else counts
