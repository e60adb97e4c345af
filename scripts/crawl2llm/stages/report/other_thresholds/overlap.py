"""Which rules of a step fire on the same dropped documents, and which documents one rule alone drops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.stages.report.other_thresholds.rows import Rows

MOST_COMBINATIONS = 1 << 16  # combinations in memory; documents of further ones count as the rest
ROWS_SHOWN = 20  # combinations that are named
SEPARATOR = "\x1f"


class Overlap:
    """Counts of a step's dropped documents by the set of rules that fire on them."""

    def __init__(self) -> None:
        self.combinations = Counter[tuple[str, ...]]()
        self.flagged, self.unique = Counter[str](), Counter[str]()
        self.dropped = self.stayed = self.unheld = 0

    def add(self, rows: Rows) -> None:
        """Count the rows that are dropped, and those that rules fire on and that stay (curated, or of a source that skips the step)."""
        self.stayed += int((rows.kept & (rows.number_fired > 0)).sum())
        rules = rows.verdicts.column("rules").filter(pa.array(~rows.kept))
        for rule_set in pc.value_counts(pc.binary_join(rules, SEPARATOR)).to_pylist():
            names, number = tuple(sorted(set(rule_set["values"].split(SEPARATOR)))), rule_set["counts"]
            self.dropped += number
            for name in names:
                self.flagged[name] += number
            if len(names) == 1:
                self.unique[names[0]] += number
            if names in self.combinations or len(self.combinations) < MOST_COMBINATIONS:
                self.combinations[names] += number
            else:
                self.unheld += number

    def as_dict(self) -> dict[str, Any]:
        """Rules with what each flags and what it alone drops, the ROWS_SHOWN most frequent combinations, and the rest together."""
        ordered = sorted(self.combinations.items(), key=lambda item: (-item[1], item[0]))
        rest = ordered[ROWS_SHOWN:]
        return {
            "dropped": self.dropped,
            "stayed": self.stayed,
            "rules": [
                {"rule": name, "flagged": number, "unique": self.unique[name]}
                for name, number in sorted(self.flagged.items(), key=lambda item: (-item[1], item[0]))
            ],
            "combinations": [{"rules": list(names), "documents": number} for names, number in ordered[:ROWS_SHOWN]],
            "rest": {"combinations": len(rest), "documents": sum(number for _, number in rest) + self.unheld},
        }


class Categories:
    """Documents by the value of a column that a rule compares with a list: how many come, stay, and that rule alone drops."""

    def __init__(self, title: str, column: str, rule: str, key: str) -> None:
        self.title, self.column, self.rule, self.key = title, column, rule, key
        self.counts = [Counter[str]() for _ in range(3)]

    def add(self, rows: Rows) -> None:
        """Count rows of the step."""
        values = pc.fill_null(rows.column(self.column), "")
        alone = ~rows.kept & rows.rule_fires(self.rule) & (rows.number_fired == 1)
        for counter, which in zip(self.counts, (None, rows.kept, alone), strict=True):
            selected = values if which is None else values.filter(pa.array(which))
            for value_count in pc.value_counts(selected).to_pylist():
                counter[value_count["values"]] += value_count["counts"]

    def as_dict(self) -> dict[str, Any]:
        """The ROWS_SHOWN most frequent values, and the rest together."""
        come, stay, alone = self.counts
        names = sorted(come, key=lambda name: (-come[name], name))
        row = lambda selected: {  # noqa: E731
            "in": sum(come[name] for name in selected),
            "kept": sum(stay[name] for name in selected),
            "alone": sum(alone[name] for name in selected),
        }
        rest = names[ROWS_SHOWN:]
        return {
            "title": self.title,
            "key": self.key,
            "rule": self.rule,
            "values": [{"value": name, **row([name])} for name in names[:ROWS_SHOWN]],
            "rest": {"values": len(rest), **row(rest)},
        }


CATEGORIES = {
    "language.select": ("Languages", "language", "language", "language.select.languages"),
    "licence.select": ("Licences", "licence", "licence", "licence.select.allowed"),
}
