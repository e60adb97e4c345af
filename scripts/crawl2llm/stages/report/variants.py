"""The page over all variants: what the template shows of compare.json, of costs and of what is missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crawl2llm.chain import config_schema, model_registry
from crawl2llm.chain.project import Project
from crawl2llm.core.console import format_quantity
from crawl2llm.core.manifest import canonical_json
from crawl2llm.core.nested_dicts import has_path, lookup
from crawl2llm.stages.report import page
from crawl2llm.stages.report.page import format_integer, format_percent, format_short, format_significant
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import analysis, graphs, groups, tables, words
from crawl2llm.stages.report.sweeps.read import COMMON, Costs, Variant, read_variant

TEMPLATE, SCRIPT = "compare.html.j2", "sort.js"
Row = dict[str, Any]


def read_comparison(project: Project, options: CompareSettings) -> tuple[Row, dict[str, Variant]]:
    """compare.json of what is there of a run's variants, and their manifests."""
    variants = {name: read_variant(project, name) for name in project.variants}
    keys = project.variants["main"]["sweep"]["seed_keys"]
    ignored = [
        path for path, node in config_schema.schema_leaves() if node.get("placement") or path.startswith(f"{COMMON}.")
    ]
    results = {
        name: canonical_json(variant.training_manifests)
        for name, variant in variants.items()
        if variant.training_manifests
    }
    settings = groups.group_settings(project.variants, keys, ignored, results)
    seeds = {
        name: {key: lookup(config, key) for key in keys if has_path(config, key)}
        for name, config in project.variants.items()
    }
    return analysis.compare_settings(settings, variants, seeds, options), variants


def render(project: Project, comparison: Row, variants: Mapping[str, Variant], mark: str) -> str:
    """The page. mark: the fingerprint's digest; "" for a page beside a run that need not be complete."""
    costs = Costs(project)
    return render_with_costs(comparison, variants, {name: costs.variant_costs(name) for name in variants}, mark)


def render_with_costs(comparison: Row, variants: Mapping[str, Variant], costs: Mapping[str, Row], mark: str) -> str:
    """The same, of costs that are known."""
    svgs = graphs.all_figures(comparison, variants)
    values = template_values(comparison, costs, mark, bool(svgs["curves"]))
    script = Path(__file__).with_name(SCRIPT).read_text(encoding="utf-8")
    values["script"] = Markup(script)  # noqa: S704 - a file of this project
    values["script_hash"] = page.csp_hash(script)
    return page.render(values, svgs, TEMPLATE)


def template_values(comparison: Row, costs: Mapping[str, Row], mark: str, curves: bool) -> Row:
    """Everything that the template shows, but the figures and the script."""
    settings = {row["name"]: row for row in comparison["settings"]}
    base = comparison["models"].get(model_registry.BASE)
    options = CompareSettings.model_validate(comparison["options"])
    any_two = tables.pair_matrix(base) if base else None
    other_models = [
        {"name": name, "tables": measure_tables(model)}
        for name, model in comparison["models"].items()
        if name != model_registry.BASE
    ]
    values: Row = {
        "fingerprint": mark,
        "rendered": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "lead": words.lead_sentence(comparison, base),
        "variants": comparison["variants"],
        "unfinished": unfinished_variants(comparison["variants"]),
        "stopped": [row for row in comparison["variants"] if row["stopped"]],
        "notes": words.reader_notes(comparison, base),
        "tiles": overview_tiles(comparison, base, costs),
        "verdicts": tables.verdict_rows(base, settings, options) if base else [],
        "about_verdicts": words.about_verdicts(base, options) if base else "",
        "why_no_verdicts": words.why_no_verdicts(comparison),
        "matrices": measure_tables(base) if base else [],
        "best": tables.best_rows(base) if base else [],
        "axes": tables.axis_rows(comparison["axes"]),
        "any_two": any_two and {**any_two, "number": len(base["pairs"]) if base else 0},
        "curves": curves,
        "about_curves": (
            "On the common held-out text, from checkpoints that the training kept."
            if comparison["curves"]
            else "On each variant's own validation text, as measured while it trained"
            + ("; the variants share it." if comparison["shares_text"] else ": not the same for all.")
        ),
        "shares_text": comparison["shares_text"],
        "data": tables.data_rows(comparison["variants"]),
        "scaling": words.law_section(comparison["scaling"], options) if comparison["scaling"] else None,
        "confidence": format_percent(options.confidence, 0),
        "others": other_models,
        "costs": tables.cost_rows(costs),
        "formulas": words.formula_rows(options),
    }
    return values | {"contents": page_contents(values)}


def measure_tables(model: Row) -> list[Row]:
    """The tables of a model's measures: those of text and tasks, then those of right answers."""
    matrices = [
        (name, tables.measure_matrix(model, answers))
        for name, answers in (("Text and tasks", False), ("Right answers", True))
    ]
    return [{"name": name, **matrix} for name, matrix in matrices if matrix]


def page_contents(values: Row) -> list[tuple[str, str]]:
    """The sections that are there."""
    sections = [
        ("overview", "Overview", True),
        ("verdicts", "Is the difference real?", True),
        ("measures", "All measures", values["matrices"]),
        ("best", "The best", values["best"] or values["axes"]),
        ("pairs", "Any two settings", values["any_two"]),
        ("curves", "By tokens", values["curves"]),
        ("data", "Data and training", True),
        ("scaling", "Scaling law", values["scaling"]),
        *((f"model-{model['name']}", f"Model {model['name']}", True) for model in values["others"]),
        ("cost", "Cost", True),
        ("how", "How it is made", True),
    ]
    return [(anchor, title) for anchor, title, is_there in sections if is_there]


def unfinished_variants(variants: Sequence[Row]) -> list[tuple[str, str]]:
    """(variant, what is missing or damaged)."""
    out = []
    for row in variants:
        problems = ([f"missing {', '.join(row['missing'])}"] if row["missing"] else []) + row["damaged"]
        if problems:
            out.append((row["name"], "; ".join(problems)))
    return out


def overview_tiles(comparison: Row, base: Row | None, costs: Mapping[str, Row]) -> list[Row]:
    """The key figures."""
    out = [
        {
            "name": "Settings",
            "value": format_integer(len(comparison["settings"])),
            "unit": f"in {format_quantity(len(comparison['variants']), 'variant')}",
            "note": "variants that differ in seeds alone, or in nothing, are one setting",
        }
    ]
    if base:
        measure = base["measures"][0]
        means = [setting["mean"] for setting in measure["settings"]]
        best = means.index(min(means))
        noise = measure["noise"]
        is_known = noise["freedom"] > 0
        row = next((row for row in measure["to_main"] if row["second"] == best), None)
        out += [
            {
                "name": "Lowest bits per byte",
                "value": f"{means[best]:.4f}",
                "unit": "",
                "note": f"{base['settings'][best]}"
                + (f": {tables.VERDICTS_AGAINST_MAIN[row['verdict']]}" if row else ""),
            },
            {
                "name": "Noise between seeds",
                "value": f"{noise['deviation']:.4f}" if is_known else "unknown",
                "unit": "bits per byte" if is_known else "",
                "note": f"standard deviation, {noise['freedom']} degrees of freedom" if is_known else "one seed each",
            },
            {
                "name": "Common held-out text",
                "value": format_integer(base["documents"]),
                "unit": "documents",
                "note": f"{format_short(base['bytes'])}B, the same for all ({base['set']})",
            },
        ]
    spent = sum(cost.get("own", {}).get("seconds", 0.0) for cost in costs.values())
    hours = sum(of.get("own", {}).get("gpu_hours", 0.0) for of in costs.values())
    out.append(
        {
            "name": "All tasks",
            "value": page.format_duration(spent) if spent else page.NOTHING,
            "unit": "",
            "note": f"{format_significant(hours, 3)} GPU-hours" if hours else "added up, not on the clock",
        }
    )
    return out
