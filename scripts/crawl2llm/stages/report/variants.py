"""The page over all variants: what the template shows of compare.json, of costs and of what is missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crawl2llm.chain import config_schema, model_registry
from crawl2llm.chain.project import Project
from crawl2llm.core.console import quantity
from crawl2llm.core.manifest import canonical
from crawl2llm.core.nested_dicts import has, lookup
from crawl2llm.stages.report import page
from crawl2llm.stages.report.page import integer, percent, short, significant
from crawl2llm.stages.report.sweeps import analysis, graphs, groups, tables, words
from crawl2llm.stages.report.sweeps.read import COMMON, Costs, Variant, read

TEMPLATE, SCRIPT = "compare.html.j2", "sort.js"
Row = dict[str, Any]


def look(project: Project, options: Row) -> tuple[Row, dict[str, Variant]]:
    """compare.json of what is there of a run's variants, and their manifests."""
    variants = {name: read(project, name) for name in project.variants}
    keys = project.variants["main"]["sweep"]["seed_keys"]
    ignored = [path for path, node in config_schema.leaves() if node.get("placement") or path.startswith(f"{COMMON}.")]
    made = {name: canonical(variant.makes) for name, variant in variants.items() if variant.makes}
    found = groups.settings(project.variants, keys, ignored, made)
    seeds = {
        name: {key: lookup(config, key) for key in keys if has(config, key)}
        for name, config in project.variants.items()
    }
    return analysis.whole(found, variants, seeds, options), variants


def render(project: Project, found: Row, variants: Mapping[str, Variant], mark: str) -> str:
    """The page. mark: the fingerprint's digest; "" for a page beside a run that need not be complete."""
    costs = Costs(project)
    return written(found, variants, {name: costs.of(name) for name in variants}, mark)


def written(found: Row, variants: Mapping[str, Variant], costs: Mapping[str, Row], mark: str) -> str:
    """The same, of costs that are known."""
    drawn = graphs.drawn(found, variants)
    shown = context(found, costs, mark, bool(drawn["curves"]))
    script = Path(__file__).with_name(SCRIPT).read_text(encoding="utf-8")
    shown["script"] = Markup(script)  # noqa: S704 - a file of this project
    shown["script_hash"] = page.hashed(script)
    return page.render(shown, drawn, TEMPLATE)


def context(found: Row, costs: Mapping[str, Row], mark: str, curves: bool) -> Row:
    """Everything that the template shows, but the figures and the script."""
    settings = {row["name"]: row for row in found["settings"]}
    base = found["models"].get(model_registry.BASE)
    options = found["options"]
    any_two = tables.any_two(base) if base else None
    others = [
        {"name": name, **tables.matrix(model)} for name, model in found["models"].items() if name != model_registry.BASE
    ]
    shown: Row = {
        "fingerprint": mark,
        "rendered": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "lead": words.lead(found, base),
        "variants": found["variants"],
        "unfinished": unfinished(found["variants"]),
        "stopped": [row for row in found["variants"] if row["stopped"]],
        "notes": words.notes(found, base),
        "tiles": tiles(found, base, costs),
        "verdicts": tables.verdict_rows(base, settings, options) if base else [],
        "about_verdicts": words.about_verdicts(base, options) if base else "",
        "why_no_verdicts": words.why_no_verdicts(found),
        "matrix": tables.matrix(base) if base else None,
        "best": tables.best_rows(base) if base else [],
        "axes": tables.axis_rows(found["axes"]),
        "any_two": any_two and {**any_two, "number": len(base["pairs"]) if base else 0},
        "curves": curves,
        "about_curves": (
            "On the common held-out text, from checkpoints that the training kept."
            if found["curves"]
            else "On each variant's own validation text, as measured while it trained"
            + ("; the variants share it." if found["shares_text"] else ": not the same for all.")
        ),
        "shares_text": found["shares_text"],
        "data": tables.data_rows(found["variants"]),
        "scaling": words.law(found["scaling"], options) if found["scaling"] else None,
        "confidence": percent(options["confidence"], 0),
        "others": others,
        "costs": tables.cost_rows(costs),
        "formulas": words.formulas(options),
    }
    return shown | {"contents": contents(shown)}


def contents(shown: Row) -> list[tuple[str, str]]:
    """The sections that are there."""
    every = [
        ("overview", "Overview", True),
        ("verdicts", "Is the difference real?", True),
        ("measures", "All measures", shown["matrix"]),
        ("best", "The best", shown["best"] or shown["axes"]),
        ("pairs", "Any two settings", shown["any_two"]),
        ("curves", "By tokens", shown["curves"]),
        ("data", "Data and training", True),
        ("scaling", "Scaling law", shown["scaling"]),
        *((f"model-{other['name']}", f"Model {other['name']}", True) for other in shown["others"]),
        ("cost", "Cost", True),
        ("how", "How it is made", True),
    ]
    return [(anchor, title) for anchor, title, there in every if there]


def unfinished(variants: Sequence[Row]) -> list[tuple[str, str]]:
    """(variant, what is missing or damaged)."""
    out = []
    for row in variants:
        said = ([f"missing {', '.join(row['missing'])}"] if row["missing"] else []) + row["damaged"]
        if said:
            out.append((row["name"], "; ".join(said)))
    return out


def tiles(found: Row, base: Row | None, costs: Mapping[str, Row]) -> list[Row]:
    """The key figures."""
    out = [
        {
            "name": "Settings",
            "value": integer(len(found["settings"])),
            "unit": f"in {quantity(len(found['variants']), 'variant')}",
            "note": "variants that differ in seeds alone, or in nothing, are one setting",
        }
    ]
    if base:
        measure = base["measures"][0]
        means = [own["mean"] for own in measure["settings"]]
        best = means.index(min(means))
        noise = measure["noise"]
        known = noise["freedom"] > 0
        row = next((row for row in measure["to_main"] if row["second"] == best), None)
        out += [
            {
                "name": "Lowest bits per byte",
                "value": f"{means[best]:.4f}",
                "unit": "",
                "note": f"{base['settings'][best]}" + (f": {tables.AGAINST[row['verdict']]}" if row else ""),
            },
            {
                "name": "Noise between seeds",
                "value": f"{noise['deviation']:.4f}" if known else "unknown",
                "unit": "bits per byte" if known else "",
                "note": f"standard deviation, {noise['freedom']} degrees of freedom" if known else "one seed each",
            },
            {
                "name": "Common held-out text",
                "value": integer(base["documents"]),
                "unit": "documents",
                "note": f"{short(base['bytes'])}B, the same for all ({base['set']})",
            },
        ]
    spent = sum(of.get("own", {}).get("seconds", 0.0) for of in costs.values())
    hours = sum(of.get("own", {}).get("gpu_hours", 0.0) for of in costs.values())
    out.append(
        {
            "name": "All tasks",
            "value": page.duration(spent) if spent else page.NOTHING,
            "unit": "",
            "note": f"{significant(hours, 3)} GPU-hours" if hours else "added up, not on the clock",
        }
    )
    return out
