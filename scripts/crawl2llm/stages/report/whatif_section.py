"""The section of other thresholds: what whatif.json says, as curves that a reader can ask, and as figures for one without a script.

The script is the only one of the page. The page's policy names its hash, so that no other runs, and it writes numbers and names as text
alone. What it reads is JSON in which no character can end the element that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import whatif_figures
from crawl2llm.stages.report.page import csp_hash
from crawl2llm.stages.report.samples import UNSHOWABLE
from crawl2llm.stages.report.scale import Axis

HERE = Path(__file__).parent
SCRIPT = HERE / "asked.js"
TEMPLATE = "asked.html.j2"
FILE = "whatif.json"
GROUPS = 9  # sources, and languages, of which the page shows each by itself; all are in the file
NO_NAME = "(none)"
UNITS = ("documents", "bytes", "tokens")
# Of other rules by what they keep.
KEEPS_SENTENCES = {"quality.select.keep_fraction": "The best of this share stay.", "dedup.select.threshold": ""}


def plain_number(value: float | None) -> str:
    """A threshold as one writes it in a config: without an exponent, which YAML 1.1 takes for text."""
    return "null" if value is None else np.format_float_positional(value, trim="-")


def shown_name(name: str) -> str:
    """A name from the crawl or the config, without characters that turn the direction of text."""
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", name) or NO_NAME


def inert_json(value: Any) -> str:
    """JSON that is the same text in HTML: nothing in it opens or closes an element, a comment or a line."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def largest_groups(groups: Mapping[str, Any], kept: Sequence[Sequence[int]]) -> list[tuple[str, list[int]]]:
    """(name, rows) of the groups that are shown by themselves, the largest; the others as one. Not those of which nothing is ever kept.

    kept: documents of each group at each point.
    """
    weights = [max(row) for row in kept]
    names = [shown_name(name) for name in groups["names"]]
    if groups["more"]:
        names.append(f"{groups['more']} more")
    order = sorted((row for row, weight in enumerate(weights) if weight), key=lambda row: (-weights[row], row))
    out = [(names[row], [row]) for row in order[:GROUPS]]
    if rest := order[GROUPS:]:
        remaining = len(rest) + (groups["more"] - 1 if groups["more"] and len(groups["names"]) in rest else 0)
        out.append((f"{remaining} others", rest))
    return out


def group_sums(
    counts: Mapping[str, Any], groups: Sequence[tuple[str, list[int]]], by: str
) -> dict[str, list[list[int]]]:
    """By unit, the counts of each group at each point. counts: of whatif.json, by unit."""
    return {
        unit: [np.sum([counts[unit][by][row] for row in rows], axis=0).tolist() for _, rows in groups] for unit in UNITS
    }


def script_payload(counts: Mapping[str, Any], variant: str) -> dict[str, Any]:
    """What the script reads."""
    rules = []
    for step in counts["steps"]:
        for rule in step["rules"]:
            kept = rule["kept"]
            sources = largest_groups(counts["sources"], kept["documents"]["source"])
            languages = largest_groups(counts["languages"], kept["documents"]["language"])
            rules.append(
                {
                    "step": step["step"],
                    "key": rule["key"],
                    "about": [
                        KEEPS_SENTENCES.get(rule["key"], f"A document stays with a value of {rule['keeps']} this."),
                        *(["The rule is off now."] if rule["now"] is None else []),
                        *rule["about"],
                    ],
                    "points": [plain_number(value) for value in rule["points"]],
                    "scale": (axis := Axis(rule["points"])).kind,
                    "places": [round(axis.position_of(value), 4) for value in rule["points"]],
                    "ticks": [[plain_number(value), round(axis.position_of(value), 4)] for value in axis.ticks()],
                    "now": None if rule["now"] is None else rule["points"].index(rule["now"]),
                    "in": {unit: step["in"][unit]["all"] for unit in UNITS},
                    "before": {unit: step["kept"][unit]["all"] for unit in UNITS},
                    "groups": [
                        {"title": title, "names": [name for name, _ in groups], "kept": group_sums(kept, groups, by),
                         "before": group_sums(step["kept"], groups, by)}
                        for title, by, groups in (("Source", "source", sources), ("Language", "language", languages))
                    ],
                    "kept": {unit: kept[unit]["all"] for unit in UNITS},
                }
            )  # fmt: skip
    return {"tokens": counts["tokens_known"], "variant": variant, "rules": rules}


def section(run: Run, variant: str = "main") -> dict[str, Any] | None:
    """What the template shows; None if the step did not run. `policy` goes into the page's content security policy."""
    counts = None
    for path in run.files("report.whatif", FILE):
        with run.guard_reading(path):
            counts = json.loads(path.read_text(encoding="utf-8"))
    if counts is None:
        return None
    script = SCRIPT.read_text(encoding="utf-8")
    data = script_payload(counts, variant)
    steps = counts["steps"]
    return {
        "template": TEMPLATE,
        "policy": Markup(f"; script-src '{csp_hash(script)}'"),  # noqa: S704 - a hash
        "script": Markup(script),  # noqa: S704 - a file of this project
        "data": Markup(inert_json(data)),  # noqa: S704 - escaped by `inert_json`
        "rules": data["rules"],
        "tokens": counts["tokens_known"],
        "small": [
            {
                "step": step["step"],
                "figures": [whatif_figures.rule_curve(step, rule, plain_number) for rule in step["rules"]],
            }
            for step in steps
            if step["rules"]
        ],
        "overlaps": [
            {
                "step": step["step"],
                "figure": whatif_figures.upset_plot(step["step"], step["overlap"]),
                **step["overlap"],
            }
            for step in steps
            if len(step["overlap"]["rules"]) > 1
        ],
        "single": [
            {"step": step["step"], **step["overlap"]["rules"][0]}
            for step in steps
            if len(step["overlap"]["rules"]) == 1
        ],
        "categories": [
            {
                "step": step["step"],
                **categories,
                "values": [{**row, "value": shown_name(row["value"])} for row in categories["values"]],
                "total": step["in"]["documents"]["all"],
            }
            for step in steps
            for categories in step["categories"]
            if len(categories["values"]) > 1
        ],
        "left_out": [{"step": step["step"], **row} for step in steps for row in step["left_out"]],
    }
