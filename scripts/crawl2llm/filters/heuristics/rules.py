"""The heuristics' rules, each a measure and a threshold, in the order in which the first failing one gives the reason.

Rule `<family>.<measure>_min` (`_max`) drops a document whose measure `<family>_<measure>` is below (above) the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

from crawl2llm.core.settings import Settings
from crawl2llm.filters.heuristics.settings import SelectSettings

# By family; the keys of a section of the settings are its rules.
FAMILIES: dict[str, tuple[str, ...]] = {
    name: tuple(field.annotation.model_fields)
    for name, field in SelectSettings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
}


@dataclass(frozen=True)
class Rule:
    """A threshold on one measure: `low` drops what is below it, else what is above it is dropped."""

    name: str
    measure: str
    low: bool
    threshold: float


def active_rules(settings: SelectSettings) -> list[Rule]:
    """The rules for all languages that `heuristics.select` switches on: of the families named there, those whose threshold is not null."""
    return [
        Rule(f"{family}.{name}", f"{family}_{name.rsplit('_', 1)[0]}", name.endswith("_min"), threshold)
        for family, names in FAMILIES.items()
        if family in settings.families
        for name in names
        if (threshold := getattr(getattr(settings, family), name)) is not None
    ]
