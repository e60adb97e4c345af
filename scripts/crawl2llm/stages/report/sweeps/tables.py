"""The tables of the page over all variants: numbers as text with units, each row with what it is sorted by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crawl2llm.stages.report.differences import yaml_text as written
from crawl2llm.stages.report.page import (
    NOTHING,
    format_duration,
    format_integer,
    format_percent,
    format_short,
    format_signed,
    format_significant,
)
from crawl2llm.stages.report.public import task_title
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import scores, verdicts
from crawl2llm.stages.report.tasks import NAMES

Row = dict[str, Any]
WORDS = {
    verdicts.BETTER: "better",
    verdicts.WORSE: "worse",
    verdicts.UNCLEAR: "no significant difference",
    verdicts.UNKNOWN: "noise between trainings unknown",
}
VERDICTS_AGAINST_MAIN = {
    verdicts.BETTER: "better than main",
    verdicts.WORSE: "worse than main",
    verdicts.UNCLEAR: "no significant difference from main",
    verdicts.UNKNOWN: "noise between trainings unknown",
}
SIGNS = {verdicts.BETTER: "▲ ", verdicts.WORSE: "▼ ", verdicts.UNCLEAR: "", verdicts.UNKNOWN: "? "}
CLASSES = {verdicts.BETTER: "gained", verdicts.WORSE: "lost", verdicts.UNCLEAR: "muted", verdicts.UNKNOWN: "muted"}
OF_ANSWERS = ": right answers"  # behind the name of a task
LONGEST_VALUE = 60  # characters of a value


def cell(text: str, by: float | str | None = None, kind: str = "n", note: str = "") -> Row:
    """A cell: its text, what it is sorted by (its text without), its CSS class, and a second line."""
    return {"text": text, "by": text if by is None else by, "kind": kind, "note": note}


def value_text(value: Any) -> str:
    """A value of the config as its file has it, cut where it is long."""
    text = written(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def without_text(old: Any, new: Any) -> str:
    """`without dedup`: the parts of main's list that another lacks and is the same without; "" for any other change."""
    if not (isinstance(old, list) and isinstance(new, list)) or not new:
        return ""
    missing_parts = [part for part in old if part not in new]
    if not missing_parts or [part for part in old if part in new] != new:
        return ""
    names = [str(part.get("name", written(part))) if isinstance(part, dict) else str(part) for part in missing_parts]
    text = f"without {', '.join(names)}"
    return text if len(text) <= LONGEST_VALUE else ""


def setting_changes(setting: Row) -> list[tuple[str, str]]:
    """(key, `old → new`) of what a setting changes; of a list that lacks parts these alone."""
    return [
        (key, without_text(old, new) or f"{value_text(old)} → {value_text(new)}")
        for key, (old, new) in setting["changes"].items()
    ]


def measure_name(name: str) -> str:
    """What a measure is called for a reader."""
    if name.startswith(scores.BY_SOURCE):
        return f"Bits per byte: {name.removeprefix(scores.BY_SOURCE)}"
    if name.startswith((scores.TASK, scores.ANSWERS)):
        task = name.removeprefix(scores.TASK).removeprefix(scores.ANSWERS)
        return (NAMES.get(task) or task_title(task)) + (OF_ANSWERS if name.startswith(scores.ANSWERS) else "")
    return "Bits per byte"


def measure_text(name: str, amount: float | None) -> str:
    """A value of a measure."""
    if amount is None:
        return NOTHING
    return format_signed(amount, 3) if name.startswith(scores.TASK) else f"{amount:.4f}"


def difference_text(name: str, difference: float | None) -> str:
    """A difference of a measure."""
    return NOTHING if difference is None else format_signed(difference, 3 if name.startswith(scores.TASK) else 4)


def total_error(row: Row) -> float:
    """The standard error of a setting's mean: of seeds, if it is known, and of documents."""
    return float(((row["stderr_seeds"] or 0) ** 2 + row["stderr_documents"] ** 2) ** 0.5)


def seeds_words(row: Row, measure: str, power: float) -> str:
    """`to see a difference of 0.01, 7 seeds`."""
    if row["verdict"] in (verdicts.BETTER, verdicts.WORSE, verdicts.UNKNOWN) or "smallest" not in row:
        return ""
    size = difference_text(measure, abs(row["difference"])).lstrip("+")
    if row["seeds_needed"] is None:
        return f"to see a difference of {size}: no number of seeds up to {verdicts.MOST_SEEDS:,}; more held-out documents are needed"
    return f"to see a difference of {size}: {row['seeds_needed']:,} seeds each (power {format_percent(power, 0)})"


def verdict_rows(model: Row, settings: Mapping[str, Row], options: CompareSettings) -> list[Row]:
    """A row for each setting of a model by bits per byte: name, changes, cells."""
    measure = model["measures"][0]
    rows = []
    by_place = {row["second"]: row for row in measure["to_main"]}
    for place, name in enumerate(model["settings"]):
        setting_row, comparison = measure["settings"][place], by_place.get(place)
        deviation = setting_row["deviation"]
        mean_cell = cell(
            measure_text(measure["name"], setting_row["mean"]),
            setting_row["mean"],
            note=f"± {total_error(setting_row):.4f}"
            + (f", between seeds {deviation:.4f}" if deviation is not None else ""),
        )
        if comparison is None:
            cells = [
                cell("the baseline", "", "plain muted"),
                cell(NOTHING, 0.0),
                cell(NOTHING, ""),
                cell(NOTHING, ""),
            ]
        else:
            level, smallest = format_percent(options.confidence, 0), comparison.get("smallest")
            low, high = (difference_text(measure["name"], comparison[end]) for end in ("low", "high"))
            cells = [
                cell(
                    SIGNS[comparison["verdict"]] + WORDS[comparison["verdict"]],
                    WORDS[comparison["verdict"]],
                    f"plain verdict {CLASSES[comparison['verdict']]}",
                    note=seeds_words(comparison, measure["name"], options.power),
                ),
                cell(
                    difference_text(measure["name"], comparison["difference"]),
                    comparison["difference"],
                    note=f"{level}: {low} to {high}",
                ),
                cell(p_text(comparison.get("p_corrected")), comparison.get("p_corrected", "")),
                cell(difference_text(measure["name"], smallest).lstrip("+"), smallest if smallest is not None else ""),
            ]
        cells += [mean_cell, cell(format_integer(setting_row["seeds"]), setting_row["seeds"])]
        rows.append({"name": name, "changes": setting_changes(settings[name]), "cells": cells})
    return rows


def p_text(p_value: float | None) -> str:
    """A p-value; the smallest are not written out."""
    if p_value is None:
        return NOTHING
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def measure_matrix(model: Row, answers: bool = False) -> Row | None:
    """Settings by measures, those of right answers or all others; None if there are none.

    `heads`; `rows` of (name, cells): the difference to main and its error, marked by its verdict, and the spread between the setting's
    seeds; `noise`, the cells of a last row: that of all settings.
    """
    measures = [measure for measure in model["measures"] if measure["name"].startswith(scores.ANSWERS) == answers]
    rows = []
    for place, name in enumerate(model["settings"] if measures else ()):
        cells = []
        for measure in measures:
            comparison = next((row for row in measure["to_main"] if row["second"] == place), None)
            setting_row = measure["settings"][place]
            if comparison is None:
                cells.append(
                    cell(
                        measure_text(measure["name"], setting_row["mean"]),
                        setting_row["mean"],
                        "n",
                        f"± {total_error(setting_row):.4f}{spread_words(setting_row)}",
                    )
                )
                continue
            cells.append(
                cell(
                    SIGNS[comparison["verdict"]] + difference_text(measure["name"], comparison["difference"]),
                    comparison["difference"],
                    f"n heat {CLASSES[comparison['verdict']]}",
                    f"± {comparison['stderr']:.4f}{spread_words(setting_row)}",
                )
            )
        rows.append({"name": name, "cells": cells})
    heads = [measure_name(measure["name"]).removesuffix(OF_ANSWERS) for measure in measures]
    noise = [noise_cell(measure["noise"]) for measure in measures]
    return {"heads": heads, "rows": rows, "noise": noise} if measures else None


def spread_words(setting_row: Row) -> str:
    """`, seeds 0.0021 (n = 3)`: the standard deviation between the seeds of a setting; nothing of one seed."""
    deviation = setting_row["deviation"]
    return "" if deviation is None else f", seeds {deviation:.4f} (n = {setting_row['seeds']})"


def noise_cell(noise: Row) -> Row:
    """The standard deviation between seeds, pooled over all settings, and its degrees of freedom."""
    if noise["deviation"] is None:
        return cell(NOTHING)
    return cell(f"{noise['deviation']:.4f}", note=f"{noise['freedom']} degrees of freedom")


def pair_matrix(model: Row) -> Row | None:
    """The verdicts of any two settings by bits per byte: `names`, rows of cells: the row's setting less the column's. None without."""
    if not model["pairs"] or len(model["settings"]) < 3:
        return None
    names = model["settings"]
    rows_by_pair = {(row["first"], row["second"]): row for row in model["pairs"]}
    rows = []
    for first, name in enumerate(names):
        cells = []
        for second in range(len(names)):
            if first == second:
                cells.append(cell("", "", "n"))
                continue
            row = rows_by_pair[min(first, second), max(first, second)]
            is_turned = first < second  # the row holds second less first
            difference = -row["difference"] if is_turned else row["difference"]
            words = row["verdict"]
            if is_turned and words in (verdicts.BETTER, verdicts.WORSE):
                words = verdicts.WORSE if words == verdicts.BETTER else verdicts.BETTER
            cells.append(
                cell(
                    SIGNS[words] + difference_text(scores.BITS, difference),
                    difference,
                    f"n heat {CLASSES[words]}",
                    p_text(row.get("p_corrected")),
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
                    "text": without_text(axis["main"], axis_value["value"]) or value_text(axis_value["value"]),
                    "mean": measure_text(scores.BITS, axis_value["mean"]),
                    "settings": format_integer(axis_value["settings"]),
                    "best": axis_value["best"],
                }
                for axis_value in axis["values"]
            ],
        }
        for axis in axes
    ]


def best_rows(model: Row) -> list[Row]:
    """The best setting by each measure, and whether it differs significantly from main."""
    rows = []
    for measure in model["measures"]:
        means = [setting_row["mean"] for setting_row in measure["settings"]]
        best = means.index(min(means) if measure["lower_is_better"] else max(means))
        comparison = next((row for row in measure["to_main"] if row["second"] == best), None)
        rows.append(
            {
                "measure": measure_name(measure["name"]),
                "setting": model["settings"][best],
                "value": measure_text(measure["name"], means[best]),
                "verdict": VERDICTS_AGAINST_MAIN[comparison["verdict"]] if comparison else "main itself",
            }
        )
    return rows


def data_rows(variants: Sequence[Row]) -> list[Row]:
    """Documents and tokens that each variant kept, and what its training read."""
    main = variants[0]
    rows = []
    for row in variants:
        reasons = sorted(row["dropped"].items(), key=lambda item: -item[1])
        most = ", ".join(f"{reason} {format_integer(number)}" for reason, number in reasons[:2] if number)
        cells = [
            cell(
                format_integer(row["documents"]), row["documents"] or 0, note=_change_from_main(row, main, "documents")
            ),
            cell(format_short(row["tokens"]), row["tokens"] or 0, note=_change_from_main(row, main, "tokens")),
            cell(format_short(row["bytes"]), row["bytes"] or 0),
            cell(format_short(row["parameters"]), row["parameters"] or 0),
            cell(format_short(row["trained_tokens"]), row["trained_tokens"] or 0),
            cell(NOTHING if row["epochs"] is None else f"{row['epochs']:.2f}", row["epochs"] or 0),
            cell(measure_text(scores.BITS, row["own_bits_per_byte"]), row["own_bits_per_byte"] or 0),
        ]
        rows.append({**row, "cells": cells, "reasons": most})
    return rows


def _change_from_main(row: Row, main: Row, key: str) -> str:
    if row is main or not row[key] or not main[key] or row[key] == main[key]:
        return ""
    return f"{format_signed(100 * (row[key] / main[key] - 1), 1)} %"


def cost_rows(costs: Mapping[str, Row]) -> list[Row]:
    """Seconds and GPU-hours: of the tasks that a variant ran itself, of all that its results are made by, of its pre-training."""
    rows = []
    for name, variant_costs in costs.items():
        cells = [cell(format_integer(variant_costs["tasks_own"]), variant_costs["tasks_own"])]
        for part in ("own", "all", "training"):
            part_costs = variant_costs.get(part, {})
            seconds, hours = part_costs.get("seconds"), part_costs.get("gpu_hours")
            cells.append(
                cell(
                    format_duration(seconds),
                    seconds or 0.0,
                    note=f"{format_significant(hours, 3)} GPU-hours" if hours else "",
                )
            )
        rows.append({"name": name, "cells": cells})
    return rows
