"""The tables of the page over all variants: numbers as text with units, each row with what it is sorted by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crawl2llm.stages.report.differences import shown as written
from crawl2llm.stages.report.page import NOTHING, duration, integer, percent, short, signed, significant
from crawl2llm.stages.report.sweeps import scores, verdicts
from crawl2llm.stages.report.tasks import NAMES

Row = dict[str, Any]
WORDS = {
    verdicts.BETTER: "better",
    verdicts.WORSE: "worse",
    verdicts.UNCLEAR: "not to be told apart",
    verdicts.UNKNOWN: "noise between trainings unknown",
}
AGAINST = {
    verdicts.BETTER: "better than main",
    verdicts.WORSE: "worse than main",
    verdicts.UNCLEAR: "not to be told apart from main",
    verdicts.UNKNOWN: "noise between trainings unknown",
}
SIGNS = {verdicts.BETTER: "▲ ", verdicts.WORSE: "▼ ", verdicts.UNCLEAR: "", verdicts.UNKNOWN: "? "}
CLASSES = {verdicts.BETTER: "gained", verdicts.WORSE: "lost", verdicts.UNCLEAR: "muted", verdicts.UNKNOWN: "muted"}
LONG = 60  # characters of a value


def cell(text: str, by: float | str | None = None, kind: str = "n", note: str = "") -> Row:
    """A cell: its text, what it is sorted by (its text without), its CSS class, and a second line."""
    return {"text": text, "by": text if by is None else by, "kind": kind, "note": note}


def value(of: Any) -> str:
    """A value of the config as its file has it, cut where it is long."""
    text = written(of)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


def beside(old: Any, new: Any) -> str:
    """`without dedup`: the parts of main's list that another lacks and is the same without; "" for any other change."""
    if not (isinstance(old, list) and isinstance(new, list)) or not new:
        return ""
    less = [part for part in old if part not in new]
    if not less or [part for part in old if part in new] != new:
        return ""
    names = [str(part.get("name", written(part))) if isinstance(part, dict) else str(part) for part in less]
    text = f"without {', '.join(names)}"
    return text if len(text) <= LONG else ""


def changes(setting: Row) -> list[tuple[str, str]]:
    """(key, `old → new`) of what a setting changes; of a list that lacks parts these alone."""
    return [(key, beside(old, new) or f"{value(old)} → {value(new)}") for key, (old, new) in setting["changes"].items()]


def measure_name(name: str) -> str:
    """What a measure is called for a reader."""
    if name.startswith(scores.BY_SOURCE):
        return f"Bits per byte: {name.removeprefix(scores.BY_SOURCE)}"
    if name.startswith(scores.TASK):
        return NAMES.get(name.removeprefix(scores.TASK), name.removeprefix(scores.TASK))
    return "Bits per byte"


def number(name: str, of: float | None) -> str:
    """A value of a measure."""
    return NOTHING if of is None else signed(of, 3) if name.startswith(scores.TASK) else f"{of:.4f}"


def change(name: str, of: float | None) -> str:
    """A difference of a measure."""
    return NOTHING if of is None else signed(of, 3 if name.startswith(scores.TASK) else 4)


def total(row: Row) -> float:
    """The standard error of a setting's mean: of seeds, where it is known, and of documents."""
    return float(((row["stderr_seeds"] or 0) ** 2 + row["stderr_documents"] ** 2) ** 0.5)


def seeds_words(row: Row, measure: str, wanted: float) -> str:
    """`to see a difference of 0.01, 7 seeds`."""
    if row["verdict"] in (verdicts.BETTER, verdicts.WORSE, verdicts.UNKNOWN) or "smallest" not in row:
        return ""
    size = change(measure, abs(row["difference"])).lstrip("+")
    if row["seeds_needed"] is None:
        return f"to see a difference of {size}: no number of seeds up to {verdicts.MOST_SEEDS:,}; more held-out documents are needed"
    return f"to see a difference of {size}: {row['seeds_needed']:,} seeds each (power {percent(wanted, 0)})"


def verdict_rows(model: Row, settings: Mapping[str, Row], options: Row) -> list[Row]:
    """A row for each setting of a model by bits per byte: name, changes, cells."""
    measure = model["measures"][0]
    rows = []
    by_place = {row["second"]: row for row in measure["to_main"]}
    for place, name in enumerate(model["settings"]):
        own, found = measure["settings"][place], by_place.get(place)
        deviation = own["deviation"]
        value_of = cell(
            number(measure["name"], own["mean"]),
            own["mean"],
            note=f"± {total(own):.4f}" + (f", between seeds {deviation:.4f}" if deviation is not None else ""),
        )
        if found is None:
            cells = [
                cell("what the others are compared with", "", "plain muted"),
                cell(NOTHING, 0.0),
                cell(NOTHING, ""),
                cell(NOTHING, ""),
            ]
        else:
            level, smallest = percent(options["confidence"], 0), found.get("smallest")
            cells = [
                cell(
                    SIGNS[found["verdict"]] + WORDS[found["verdict"]],
                    WORDS[found["verdict"]],
                    f"plain verdict {CLASSES[found['verdict']]}",
                    note=seeds_words(found, measure["name"], options["power"]),
                ),
                cell(
                    change(measure["name"], found["difference"]),
                    found["difference"],
                    note=f"{level}: {change(measure['name'], found['low'])} to {change(measure['name'], found['high'])}",
                ),
                cell(p_words(found.get("p_corrected")), found.get("p_corrected", "")),
                cell(change(measure["name"], smallest).lstrip("+"), smallest if smallest is not None else ""),
            ]
        cells += [value_of, cell(integer(own["seeds"]), own["seeds"])]
        rows.append({"name": name, "changes": changes(settings[name]), "cells": cells})
    return rows


def p_words(of: float | None) -> str:
    """A p-value; the smallest are not written out."""
    return NOTHING if of is None else "< 0.0001" if of < 1e-4 else f"{of:.4f}"


def matrix(model: Row) -> Row:
    """Settings by measures: `heads`, and rows of (name, cells): the difference to main and its error, marked by its verdict."""
    names = [measure["name"] for measure in model["measures"]]
    rows = []
    for place, name in enumerate(model["settings"]):
        cells = []
        for measure in model["measures"]:
            found = next((row for row in measure["to_main"] if row["second"] == place), None)
            own = measure["settings"][place]
            if found is None:
                cells.append(cell(number(measure["name"], own["mean"]), own["mean"], "n", f"± {total(own):.4f}"))
                continue
            cells.append(
                cell(
                    SIGNS[found["verdict"]] + change(measure["name"], found["difference"]),
                    found["difference"],
                    f"n heat {CLASSES[found['verdict']]}",
                    f"± {found['stderr']:.4f}",
                )
            )
        rows.append({"name": name, "cells": cells})
    return {"heads": [measure_name(name) for name in names], "rows": rows}


def any_two(model: Row) -> Row | None:
    """The verdicts of any two settings by bits per byte: `names`, rows of cells: the row's setting less the column's. None without."""
    if not model["pairs"] or len(model["settings"]) < 3:
        return None
    names = model["settings"]
    held = {(row["first"], row["second"]): row for row in model["pairs"]}
    rows = []
    for one, name in enumerate(names):
        cells = []
        for other in range(len(names)):
            if one == other:
                cells.append(cell("", "", "n"))
                continue
            row = held[min(one, other), max(one, other)]
            turned = one < other  # the row holds second less first
            difference = -row["difference"] if turned else row["difference"]
            words = row["verdict"]
            if turned and words in (verdicts.BETTER, verdicts.WORSE):
                words = verdicts.WORSE if words == verdicts.BETTER else verdicts.BETTER
            cells.append(
                cell(
                    SIGNS[words] + change(scores.BITS, difference),
                    difference,
                    f"n heat {CLASSES[words]}",
                    p_words(row.get("p_corrected")),
                )
            )
        rows.append({"name": name, "cells": cells})
    return {"names": names, "rows": rows}


def axis_rows(axes: Sequence[Row]) -> list[Row]:
    """Best by key: each key with its values, the best first."""
    return [
        {
            "key": axis["key"],
            "values": [
                {
                    "text": beside(axis["main"], one["value"]) or value(one["value"]),
                    "mean": number(scores.BITS, one["mean"]),
                    "settings": integer(one["settings"]),
                    "best": one["best"],
                }
                for one in axis["values"]
            ],
        }
        for axis in axes
    ]


def best_rows(model: Row) -> list[Row]:
    """The best setting by each measure, and whether it is told apart from main."""
    rows = []
    for measure in model["measures"]:
        means = [own["mean"] for own in measure["settings"]]
        best = means.index(min(means) if measure["lower_is_better"] else max(means))
        found = next((row for row in measure["to_main"] if row["second"] == best), None)
        rows.append(
            {
                "measure": measure_name(measure["name"]),
                "setting": model["settings"][best],
                "value": number(measure["name"], means[best]),
                "verdict": AGAINST[found["verdict"]] if found else "main itself",
            }
        )
    return rows


def data_rows(variants: Sequence[Row]) -> list[Row]:
    """Documents and tokens that each variant kept, and what its training read."""
    main = variants[0]
    rows = []
    for row in variants:
        reasons = sorted(row["dropped"].items(), key=lambda of: -of[1])
        most = ", ".join(f"{reason} {integer(number)}" for reason, number in reasons[:2] if number)
        cells = [
            cell(integer(row["documents"]), row["documents"] or 0, note=_against(row, main, "documents")),
            cell(short(row["tokens"]), row["tokens"] or 0, note=_against(row, main, "tokens")),
            cell(short(row["bytes"]), row["bytes"] or 0),
            cell(short(row["parameters"]), row["parameters"] or 0),
            cell(short(row["trained_tokens"]), row["trained_tokens"] or 0),
            cell(NOTHING if row["epochs"] is None else f"{row['epochs']:.2f}", row["epochs"] or 0),
            cell(number(scores.BITS, row["own_bits_per_byte"]), row["own_bits_per_byte"] or 0),
        ]
        rows.append({**row, "cells": cells, "reasons": most})
    return rows


def _against(row: Row, main: Row, key: str) -> str:
    if row is main or not row[key] or not main[key] or row[key] == main[key]:
        return ""
    return f"{signed(100 * (row[key] / main[key] - 1), 1)} %"


def cost_rows(costs: Mapping[str, Row]) -> list[Row]:
    """Seconds and GPU-hours: of the tasks that a variant ran itself, of all that its results are made by, of its pre-training."""
    rows = []
    for name, found in costs.items():
        cells = [cell(integer(found["tasks_own"]), found["tasks_own"])]
        for part in ("own", "all", "training"):
            own = found.get(part, {})
            seconds, hours = own.get("seconds"), own.get("gpu_hours")
            cells.append(
                cell(duration(seconds), seconds or 0.0, note=f"{significant(hours, 3)} GPU-hours" if hours else "")
            )
        rows.append({"name": name, "cells": cells})
    return rows
