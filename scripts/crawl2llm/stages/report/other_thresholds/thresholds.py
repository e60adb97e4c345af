"""Which thresholds can be asked about, by select step, and what each would be compared with.

Every rule here is that of the step's own `judge`; a threshold at which the two do not agree, document by document, is not shown
(stages/report/other_thresholds/counts.py compares them at the threshold of now).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from crawl2llm.chain.heuristics_rules import FAMILIES, LOOSER, Thresholds
from crawl2llm.core import language_codes
from crawl2llm.filters.decontaminate import cuts
from crawl2llm.filters.language.select import COMPARED_RULES
from crawl2llm.filters.language.select import LOOSER_THRESHOLDS as LOWER
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.masks import action_for
from crawl2llm.filters.sourcecode.select import COMPARED_MEASURES
from crawl2llm.stages.report.other_thresholds.rows import Rows

# What a threshold keeps: values of at least it, of at most it, or of less than it.
LEAST, MOST, LESS = "at least", "at most", "less than"
MeasuredRows = tuple[np.ndarray, np.ndarray | None]


@dataclass
class RuleThreshold:
    """A threshold that can be asked about.

    key: as in the config. rules: the rules of the verdicts that it decides. now: None where the rule is off. measure: (values, which rows
    fail whatever the threshold or None) of some rows, of which a value that is NaN never fails; None where no document is measured by
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


def column_measure(name: str, only: Callable[[Rows], np.ndarray] | None = None) -> Callable[[Rows], MeasuredRows]:
    """Measures a column; where it is not one of the rows of `only`, nothing."""

    def measure(rows: Rows) -> MeasuredRows:
        values = rows.values(name)
        return (values if only is None else np.where(only(rows), values, np.nan)), None

    return measure


def column_thresholds(
    step: str, settings: Mapping[str, Any], *names: tuple[str, str, str], **options: Any
) -> list[RuleThreshold]:
    """The thresholds of (key, rule, column) whose key says by its end whether it is the least or the most."""
    return [
        RuleThreshold(
            f"{step}.{key}",
            (rule,),
            LEAST if key.endswith("_min") else MOST,
            settings[key],
            column_measure(measured, **options),
        )
        for key, rule, measured in names
    ]


def by_label(labels: Iterable[str], lookup: Callable[[str], Any]) -> dict[int, Any]:
    """Code of a label → what `lookup` has of it, if it has anything."""
    return {code: result for code, label in enumerate(labels) if (result := lookup(label)) is not None}


def list_sentence(start: str, names: Collection[str]) -> list[str]:
    """`<start>: <names>.`; no sentence without names."""
    return [f"{start}: {', '.join(names)}."] if names else []


def heuristics_thresholds(settings: Mapping[str, Any], calibrated: Mapping[str, Thresholds]) -> Iterator[RuleThreshold]:
    """Each rule of the families that are switched on, also where its threshold is null."""
    rules_by_language = {
        language: {f"{family}.{name}" for family, family_rules in families.items() for name in family_rules}
        for language, families in settings.get("languages", {}).items()
    }

    def rule_measure(rule: str, name: str, low: bool) -> Callable[[Rows], MeasuredRows]:
        def has_fixed_threshold(label: str) -> bool | None:
            tables: list[Any] = [
                language_codes.lookup_label(rules_by_language, label) or (),
                language_codes.lookup_label(calibrated, label) or (),
            ]
            return True if any(rule in table for table in tables) else None

        def looser_limit(label: str) -> tuple[float | None] | None:
            table = language_codes.lookup_label(LOOSER, label) or {}
            return (table[rule],) if rule in table else None

        def measure(rows: Rows) -> MeasuredRows:
            values, failing = rows.values(name), None
            for code, (limit,) in by_label(rows.label_names, looser_limit).items():
                # The looser threshold holds: what passes it never fails.
                in_language = rows.labels == code
                if limit is not None:
                    in_language &= values >= limit if low else values <= limit
                values = np.where(in_language, np.nan, values)
            if fixed_labels := list(by_label(rows.label_names, has_fixed_threshold)):
                in_fixed = np.isin(rows.labels, fixed_labels)
                values, failing = np.where(in_fixed, np.nan, values), in_fixed & rows.rule_fires(rule)
            return values, failing

        return measure

    for family, names in FAMILIES.items():
        for name in names if family in settings["families"] else ():
            rule, low = f"{family}.{name}", name.endswith("_min")
            languages = [language for language, rules in rules_by_language.items() if rule in rules]
            about = list_sentence("Languages with a threshold of their own keep it", sorted(languages))
            if derived := sorted({language for language, table in calibrated.items() if rule in table} - {*languages}):
                about.append(
                    f"For {', '.join(derived)} the threshold that heuristics.calibrate derived is kept here; a run may derive another from "
                    "this one, as crawl2llm whatif does."
                )
            loose = [language for language, table in LOOSER.items() if rule in table]
            about += list_sentence("Looser in any case", loose)
            measure = rule_measure(rule, f"{family}_{name.rsplit('_', 1)[0]}", low)
            yield RuleThreshold(
                f"heuristics.select.{rule}", (rule,), LEAST if low else MOST, settings[family][name], measure, about
            )


def language_thresholds(settings: Mapping[str, Any], compared: bool) -> Iterator[RuleThreshold]:
    """The least score, and what language.compare measured where the run has that."""
    loose = {name: (LOWER[name], False) for name in settings["languages"] if name in LOWER}
    own_limits: dict[str, tuple[float, bool]] = {
        **loose,
        **{name: (limit, True) for name, limit in settings["thresholds"].items()},
    }

    def measure(rows: Rows) -> MeasuredRows:
        values, failing = rows.values("score"), np.zeros(len(rows), bool)
        fired = rows.rule_fires("score")
        for code, (limit, fixed) in by_label(
            rows.label_names, lambda label: language_codes.lookup_label(own_limits, label)
        ).items():
            in_language = rows.labels == code
            values = np.where(in_language & (fixed | (values >= limit)), np.nan, values)
            failing |= in_language & fixed & fired
        return values, failing

    about = list_sentence("Languages with a threshold of their own keep it", sorted(settings["thresholds"]))
    about += list_sentence("Lower in any case", sorted(loose))
    yield RuleThreshold("language.select.threshold", ("score",), LEAST, settings["threshold"], measure, about)
    for name, key in COMPARED_RULES.items() if compared else ():
        yield RuleThreshold(f"language.select.{key}", (key,), LEAST, settings[key], column_measure(name))


def sourcecode_thresholds(settings: Mapping[str, Any]) -> Iterator[RuleThreshold]:
    """The measures of source files; those of lines are others for languages of long lines."""

    def file_measure(name: str, data: bool | None) -> Callable[[Rows], MeasuredRows]:
        rule = f"{name}_max"

        def measure(rows: Rows) -> MeasuredRows:
            code, values = rows.has_value("extension"), rows.values(name)
            if data is None:
                return np.where(code, values, np.nan), None
            is_kind = rows.truth_values("data") == data
            return np.where(code & is_kind, values, np.nan), ~is_kind & rows.rule_fires(
                rule
            ) if name == "longest_line" else None

        return measure

    for name in COMPARED_MEASURES:
        rule = f"{name}_{'min' if name.startswith('alpha') else 'max'}"
        lines = name in ("longest_line", "mean_line")
        keeps = LEAST if rule.endswith("_min") else MOST
        yield RuleThreshold(
            f"sourcecode.select.{rule}", (rule,), keeps, settings[rule], file_measure(name, False if lines else None)
        )
    now = settings["data_longest_line_max"]
    yield RuleThreshold(
        "sourcecode.select.data_longest_line_max", ("longest_line_max",), MOST, now, file_measure("longest_line", True)
    )


def toxicity_thresholds(settings: Mapping[str, Any]) -> Iterator[RuleThreshold]:
    """Listed words, their share, and the probability of classifiers that have no threshold of their own."""

    def term_share(rows: Rows) -> np.ndarray:
        words = rows.values("words")
        return np.divide(rows.values("hits"), words, out=np.zeros(len(rows)), where=words > 0)

    def classifier_values(rows: Rows) -> MeasuredRows:
        lists = rows.column("probabilities")
        at, names = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(rows.column("classifiers")).to_pylist()
        values = pc.list_flatten(lists).to_numpy(zero_copy_only=False).astype(float)
        own_thresholds = np.array([settings["thresholds"].get(name, np.nan) for name in names], float)
        highest, failing = np.full(len(rows), -np.inf), np.zeros(len(rows), bool)
        np.maximum.at(highest, at[np.isnan(own_thresholds)], values[np.isnan(own_thresholds)])
        failing[at[values > own_thresholds]] = True
        return np.where(np.isneginf(highest), np.nan, highest), failing

    yield from column_thresholds("toxicity.select", settings, ("terms_max", "terms", "terms"))
    least, most = settings["share_terms_min"], settings["share_max"]
    measure = lambda rows: (np.where(rows.values("terms") >= least, term_share(rows), np.nan), None)  # noqa: E731
    yield RuleThreshold("toxicity.select.share_max", ("share",), MOST, most, measure)
    if most is not None:
        counted = lambda rows: (np.where(term_share(rows) > most, rows.values("terms"), np.nan), None)  # noqa: E731
        yield RuleThreshold("toxicity.select.share_terms_min", ("share",), LESS, least, counted)
    about = list_sentence("Classifiers with a threshold of their own keep it", sorted(settings["thresholds"]))
    yield RuleThreshold(
        "toxicity.select.threshold", ("classifier",), MOST, settings["threshold"], classifier_values, about
    )


def pii_thresholds(settings: Mapping[str, Any]) -> Iterator[RuleThreshold]:
    """From how many finds on a kind whose action is `drop` drops, and the most finds of all kinds."""
    dropping = tuple(kind for kind in KINDS if settings["actions"].get(kind) == "drop")
    counted = [kind for kind in KINDS if action_for(kind, settings) != "keep"]
    if dropping:
        most = lambda rows: (np.max([rows.values(kind) for kind in dropping], axis=0), None)  # noqa: E731
        yield RuleThreshold("pii.select.drop_from", dropping, LESS, settings["drop_from"], most)
    total = lambda rows: (np.sum([rows.values(kind) for kind in counted], axis=0), None)  # noqa: E731
    if counted:
        yield RuleThreshold("pii.select.total_max", ("total_max",), MOST, settings["total_max"], total)


def edit_thresholds(step: str, settings: Mapping[str, Any]) -> list[RuleThreshold]:
    """Of filters that take parts out: what has to be left of a document that something was taken out of, and the most that is taken."""
    has_edits = lambda rows: rows.values("taken") > 0  # noqa: E731
    return [
        *column_thresholds(step, settings, ("words_min", "words_min", "words"), only=has_edits),
        *column_thresholds(step, settings, ("removed_max", "removed_max", "removed")),
    ]


def thresholds_of_step(
    step: str,
    settings: Mapping[str, Any],
    compared: bool = False,
    calibrated: Mapping[str, Thresholds] | None = None,
    method: str = "ngram",
) -> list[RuleThreshold]:
    """The thresholds of a select step that one document's own measures decide. compared: whether the run has language.compare;
    calibrated: thresholds of heuristics.calibrate; method: that of decontaminate.score.
    """
    thresholds: Iterable[RuleThreshold] = ()
    match step:
        case "url.select":
            thresholds = column_thresholds(step, settings, ("words_max", "words", "words"))
        case "language.select":
            thresholds = language_thresholds(settings, compared)
        case "multilingual.select":
            rules = ("characters_min", "characters_min", "characters"), ("foreign_max", "foreign_max", "foreign")
            thresholds = column_thresholds(step, settings, *rules)
        case "heuristics.select":
            thresholds = heuristics_thresholds(settings, calibrated or {})
        case "lines.select":
            rules = ("sentences_min", "sentences_min", "sentences"), ("flagged_max", "flagged_max", "flagged")
            thresholds = column_thresholds(step, settings, *rules)
        case "licence.select":
            has_licence = lambda rows: rows.has_value("licence")  # noqa: E731
            thresholds = column_thresholds(step, settings, ("beside_max", "beside", "beside"), only=has_licence)
        case "sourcecode.select":
            thresholds = sourcecode_thresholds(settings)
        case "toxicity.select":
            thresholds = toxicity_thresholds(settings)
        case "pii.select":
            thresholds = pii_thresholds(settings)
        case "boilerplate.select" | "paragraphs.select" | "substrings.select":
            thresholds = edit_thresholds(step, settings)
        case "quality.select" if settings["method"] == "threshold":
            now, measure = settings["threshold"], column_measure("score")
            thresholds = [RuleThreshold(f"{step}.threshold", ("threshold",), LEAST, now, measure)]
        case "decontaminate.select" if settings["action"] == cuts.DROP:
            now, measure = cuts.overlap_limit(settings, method), column_measure("overlap")
            thresholds = [RuleThreshold(f"{step}.overlap_max", (cuts.OVERLAP_RULE,), MOST, now, measure)]
    return list(thresholds)


# Keys that are a number and are not shown, and why.
LEFT_OUT = {
    "quality.select.alpha": ("pareto", "method", "a hash of each document is compared with it"),
    "decontaminate.select.cut_max": (cuts.CUT, "action", "it depends on what overlap_max has cut"),
    "decontaminate.select.overlap_max": (cuts.CUT, "action", "what is cut, and so what cut_max drops, depends on it"),
}


def omitted_keys(step: str, settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """The keys of a step that take a number and are not shown under these settings: `key`, `why`."""
    return [
        {"key": key, "why": why}
        for key, (value, name, why) in LEFT_OUT.items()
        if key.startswith(f"{step}.") and settings[name] == value
    ]
