"""Documents, bytes and tokens that each of several thresholds keeps, in all, by source and by language."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from crawl2llm.stages.report.other_thresholds.points import Spread, choose_thresholds
from crawl2llm.stages.report.other_thresholds.rows import Rows
from crawl2llm.stages.report.other_thresholds.thresholds import LEAST, RuleThreshold

MOST_GROUPS = 30  # sources, and languages, that are counted by themselves: those with the most documents; the rest are counted together
UNITS = ("documents", "bytes", "tokens")


class Groups:
    """Sources or languages: those with the most documents by name, the rest as one."""

    def __init__(self, counts: Counter[str]) -> None:
        self.names = sorted(sorted(counts), key=lambda name: -counts[name])[:MOST_GROUPS]
        self.rest = len(counts) - len(self.names)
        self.number = len(self.names) + bool(self.rest)
        self.code = {name: code for code, name in enumerate(self.names)}

    def codes_of(self, names: list[str]) -> np.ndarray:
        """The code of each name; that of the rest for one that has none of its own."""
        return np.array([self.code.get(name, len(self.names)) for name in names], np.int64)

    def as_dict(self) -> dict[str, Any]:
        """names, and how many more are counted together in the row behind them."""
        return {"names": self.names, "more": self.rest}


class Table:
    """Sums of UNITS by source and by language in columns: arrays of int64, (groups, columns) for each unit."""

    def __init__(self, sources: Groups, languages: Groups, columns: int) -> None:
        self.columns = columns
        self.sums = [
            {unit: np.zeros((groups.number, columns), np.int64) for unit in UNITS} for groups in (sources, languages)
        ]

    def add(self, groups: tuple[np.ndarray, np.ndarray], weights: list[np.ndarray | None], at: np.ndarray) -> None:
        """Add rows. groups: codes of source and language; weights: of UNITS, None for one each; at: the column of each row."""
        for sums, codes in zip(self.sums, groups, strict=True):
            for unit, weight in zip(UNITS, weights, strict=True):
                shape = sums[unit].shape
                sums_by_cell = np.bincount(codes * self.columns + at, weight, minlength=shape[0] * shape[1])
                sums[unit] += sums_by_cell.astype(np.int64).reshape(shape)

    def as_dict(self, summarize: Any = lambda sums: sums) -> dict[str, Any]:
        """`documents`, `bytes` and `tokens`, each `all`, `source` and `language`. summarize: what is made of an array of sums."""
        out = {}
        for unit in UNITS:
            by_source, by_language = (summarize(sums[unit]) for sums in self.sums)
            out[unit] = {
                "all": by_source.sum(axis=0).tolist(),
                "source": by_source.tolist(),
                "language": by_language.tolist(),
            }
        return out


class Curve:
    """One threshold at several points."""

    def __init__(self, threshold: RuleThreshold) -> None:
        self.ask = threshold
        self.spread = Spread()
        self.moving = self.disagreements = 0
        self.points = np.zeros(0)

    def split_rows(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """(values, which rows are dropped whatever the threshold); a value is NaN if the threshold does not decide."""
        assert self.ask.measure, self.ask.key
        values, failing = self.ask.measure(rows)
        owned = np.sum([rows.rule_fires(rule) for rule in self.ask.rules], axis=0)
        dropped = rows.number_fired > owned
        if failing is not None:
            dropped = dropped | failing
        dropped = dropped & ~rows.exempt
        return np.where(dropped | rows.exempt, np.nan, values), dropped

    def survey_rows(self, rows: Rows) -> None:
        """The first pass: how the values that the threshold decides on are spread."""
        values, _ = self.split_rows(rows)
        self.moving += int(np.count_nonzero(~np.isnan(values)))
        self.spread.add(values)

    def choose_points(self, number: int, node: dict[str, Any], sources: Groups, languages: Groups) -> None:
        """Choose the points, about `number`, and count from here on."""
        self.points = np.array(choose_thresholds(self.spread, number, self.ask.now, node, self.ask.keeps == LEAST))
        self.table = Table(sources, languages, len(self.points) + 1)

    def add_rows(self, rows: Rows, groups: tuple[np.ndarray, np.ndarray], weights: list[np.ndarray | None]) -> None:
        """The second pass. See Table.add; compares the verdicts at the threshold of now with those of the run."""
        values, dropped = self.split_rows(rows)
        moving = ~np.isnan(values)
        always = len(self.points) if self.ask.keeps == LEAST else 0
        at = np.full(len(rows), always, np.int64)
        at[moving] = self.ask.places_of(values[moving], self.points)
        stays = ~dropped
        if self.ask.now is not None:
            place = int(np.searchsorted(self.points, self.ask.now))
            now = stays & ((at > place) if self.ask.keeps == LEAST else (at <= place))
        else:
            now = stays
        self.disagreements += int(np.count_nonzero(now != rows.kept))
        kept_weights = [None if weight is None else weight[stays] for weight in weights]
        self.table.add((groups[0][stays], groups[1][stays]), kept_weights, at[stays])

    def kept_at_points(self, sums: np.ndarray) -> np.ndarray:
        """Sums by place (groups, points + 1) → kept at each point (groups, points)."""
        if self.ask.keeps == LEAST:
            return np.cumsum(sums[:, ::-1], axis=1)[:, ::-1][:, 1:]
        return np.cumsum(sums, axis=1)[:, :-1]

    def as_dict(self, node: dict[str, Any]) -> dict[str, Any]:
        """What whatif.json says of it."""
        kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
        whole = "integer" in kinds
        number = lambda value: int(value) if whole and float(value).is_integer() else float(value)  # noqa: E731
        return {
            "key": self.ask.key,
            "rules": list(self.ask.rules),
            "keeps": self.ask.keeps,
            "now": None if self.ask.now is None else number(self.ask.now),
            "moving": self.moving,
            "about": self.ask.about,
            "points": [number(value) for value in self.points],
            "kept": self.table.as_dict(self.kept_at_points),
        }
