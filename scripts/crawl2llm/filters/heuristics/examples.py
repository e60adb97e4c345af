"""Examples of the rules of the filter heuristics: at every threshold a document passes, and beyond one of them it is dropped."""

from __future__ import annotations

from crawl2llm.filters.framework.examples import Examples
from crawl2llm.filters.heuristics.rules import active_rules
from crawl2llm.filters.heuristics.settings import SelectSettings

# C4 sets no share for its line rules; this is above what other rules allow.
SETTINGS = {"c4": {name: 0.3 for name, number in SelectSettings().c4 if number is None}}
BEYOND = 0.001
RULES = active_rules(SelectSettings.model_validate(SETTINGS))
EXAMPLES = Examples(
    passes={rule.measure: rule.threshold for rule in RULES},
    drops=[
        (rule.name, {rule.measure: rule.threshold - BEYOND if rule.low else rule.threshold + BEYOND}) for rule in RULES
    ],
    settings=SETTINGS,
)
