"""The settings of the filters' select steps, which report.whatif and report.inspect are given."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core.settings import Settings, setting


class SelectSteps(Settings):
    """What a step gets to know about the filters of a run (`select_settings` in steps.py)."""

    steps: list[str] = setting(..., "Their select steps, in order.")
    select: dict[str, dict[str, Any]] = setting(..., "By step its settings.")
    exempt: dict[str, list[str]] = setting(..., "By step the sources that skip its filter.")


def settings_of(step: str, task: SelectSteps) -> Settings:
    """The settings of a select step, with defaults for keys that its fingerprint lacks."""
    return settings_class(step).model_validate(task.select[step])
