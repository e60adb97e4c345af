"""Which thresholds can be asked about, by select step, and what each would be compared with.

Every rule here is that of the step itself; a threshold at which the two do not agree, document by document, is not shown
(stages/report/other_thresholds/counts.py compares them at the threshold of now).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crawl2llm.core.settings import Settings
from crawl2llm.filters.decontaminate import cuts
from crawl2llm.filters.decontaminate import settings as decontaminate
from crawl2llm.filters.framework.rules import Rule, Rules, value_at
from crawl2llm.filters.quality import settings as quality
from crawl2llm.stages.report.other_thresholds.rows import Rows

# What a threshold keeps: values of at least it, of at most it, or of less than it.
LEAST, MOST, LESS = "at least", "at most", "less than"
KEEPS = {"<": LEAST, ">": MOST, ">=": LESS}  # by how a value that a rule drops stands to the threshold
MeasuredRows = tuple[np.ndarray, np.ndarray | None]


@dataclass
class RuleThreshold:
    """A threshold that can be asked about.

    key: as in the config. rules: the rules of the verdicts that it decides. now: None if the rule is off. measure: (values, which rows
    fail whatever the threshold or None) of some rows, of which a value that is NaN never fails; None if no document is measured by
    itself. about: what one has to know, in sentences.
    """

    key: str
    rules: tuple[str, ...]
    keeps: str
    now: float | None
    measure: Callable[[Rows], MeasuredRows] | None
    about: list[str] = field(default_factory=list)

    def places_of(self, values: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Of each value, from which of the ascending points on it is kept; for LEAST, before which of them."""
        return np.searchsorted(points, values, side="left" if self.keeps == MOST else "right")


def column_measure(name: str) -> Callable[[Rows], MeasuredRows]:
    """Measures a column."""
    return lambda rows: (rows.values(name), None)


def threshold_of_rules(key: str, rules: Sequence[Rule], settings: Settings) -> RuleThreshold:
    """The threshold of a key of the filter's `select` that decides rules. Several of them drop what the worst of their values does."""
    first = rules[0]
    worst = np.fmin if first.low else np.fmax

    def measure(rows: Rows) -> MeasuredRows:
        values, failing = np.full(len(rows), np.nan), np.zeros(len(rows), bool)
        for rule in rules:
            rule_values, fixed = rule.movable_values(rows, settings)
            values = worst(values, rule_values)
            failing |= fixed & rows.rule_fires(rule.name)
        return values, failing

    names = tuple(rule.name for rule in rules)
    return RuleThreshold(key, names, KEEPS[first.drops], first.threshold_for_all(settings), measure, list(first.about))


def threshold_of_condition(step: str, rule: Rule, also: tuple[str, str], settings: Settings) -> RuleThreshold:
    """The threshold of a rule's condition `also`, with the rule's own as it is."""
    name, threshold = also

    def measure(rows: Rows) -> MeasuredRows:
        limit = replace(rule, also=None).limit(rows, settings)
        return np.where(limit.failing_documents(), rows.values(name), np.nan), None

    return RuleThreshold(f"{step}.{threshold}", (rule.name,), LESS, value_at(settings, threshold), measure)


def thresholds_of_rules(step: str, rules: Rules, settings: Settings) -> list[RuleThreshold]:
    """The thresholds of a filter's rules that are keys, in the order of the rules; further ones of a rule behind the others."""
    rules_by_key: dict[str, list[Rule]] = {}
    for rule in rules:
        if isinstance(rule, Rule) and isinstance(rule.threshold, str):
            rules_by_key.setdefault(rule.threshold, []).append(rule)
    out: list[RuleThreshold] = []
    further: list[RuleThreshold] = []
    names = set[str]()
    for key, same_key in rules_by_key.items():
        threshold = threshold_of_rules(f"{step}.{key}", same_key, settings)
        (further if names.issuperset(threshold.rules) else out).append(threshold)
        names |= {*threshold.rules}
        out += [
            threshold_of_condition(step, rule, rule.also, settings)
            for rule in same_key
            if rule.also and rule.threshold_for_all(settings) is not None
        ]
    return out + further


def thresholds_of_step(step: str, settings: Settings, rules: Rules = (), method: str = "ngram") -> list[RuleThreshold]:
    """The thresholds of a select step that one document's own measures decide. rules: those that the filter declares, if they are measured;
    method: that of decontaminate.score.
    """
    match settings:
        case quality.SelectSettings(method="threshold"):
            now, measure = settings.threshold, column_measure("score")
            return [RuleThreshold(f"{step}.threshold", ("threshold",), LEAST, now, measure)]
        case decontaminate.SelectSettings(action=cuts.DROP):
            now, measure = cuts.overlap_limit(settings.overlap_max, method), column_measure("overlap")
            return [RuleThreshold(f"{step}.overlap_max", (cuts.OVERLAP_RULE,), MOST, now, measure)]
    return thresholds_of_rules(step, rules, settings)


# Keys that are a number and are not shown, and why.
LEFT_OUT = {
    "quality.select.alpha": ("pareto", "method", "a hash of each document is compared with it"),
    "decontaminate.select.cut_max": (cuts.CUT, "action", "it depends on what overlap_max has cut"),
    "decontaminate.select.overlap_max": (cuts.CUT, "action", "what is cut, and so what cut_max drops, depends on it"),
}


def omitted_keys(step: str, settings: Settings) -> list[dict[str, str]]:
    """The keys of a step that take a number and are not shown under these settings: `key`, `why`."""
    return [
        {"key": key, "why": why}
        for key, (value, name, why) in LEFT_OUT.items()
        if key.startswith(f"{step}.") and value_at(settings, name) == value
    ]
