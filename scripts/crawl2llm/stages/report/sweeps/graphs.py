"""The figures of the page over all variants, from compare.json; see stages/report/sweeps/figures.py for how each is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.formats.run_records import Run, finite_points, training_metrics
from crawl2llm.stages.report.sweeps import figures, scaling, tables
from crawl2llm.stages.report.sweeps.read import Variant

Row = dict[str, Any]


def all_figures(comparison: Row, variants: Mapping[str, Variant]) -> Row:
    """Every figure; None for one without data."""
    base = comparison["models"].get(model_registry.BASE)
    if not base:
        return {
            "differences": None,
            "parallel": None,
            "curves": _curves_figure(comparison, variants, ""),
            "scaling": None,
        }
    measure = base["measures"][0]
    means = [setting_row["mean"] for setting_row in measure["settings"]]
    best = base["settings"][means.index(min(means))]
    settings = {row["name"]: row for row in comparison["settings"]}
    keys = [axis["key"] for axis in comparison["axes"]][:8]
    main = {axis["key"]: axis["main"] for axis in comparison["axes"]}
    rows = [
        (name, [_setting_value(settings[name]["changes"], key, main[key]) for key in keys], mean)
        for name, mean in zip(base["settings"], means, strict=True)
    ]
    fitted = comparison["scaling"] if comparison["scaling"] and "constants" in comparison["scaling"] else None
    graph = None
    if fitted:
        constants = {name: constant["value"] for name, constant in fitted["constants"].items()}
        fitted_constants = (constants.get(name) for name in ("A", "alpha", "B", "beta"))
        graph = figures.scaling_figure(fitted["at"], scaling.Law(constants["E"], *fitted_constants))
    return {
        "differences": figures.differences_figure(base["settings"], measure["to_main"], "bits per byte"),
        "parallel": figures.parallel_figure(keys, rows, "bits per byte"),
        "curves": _curves_figure(comparison, variants, best),
        "scaling": graph,
    }


def _setting_value(changes: Mapping[str, Any], key: str, main: Any) -> Any:
    """A setting's value of a key; of a list in how far it is not main's, since beside an axis there is no place for it."""
    if key not in changes:
        return "as main" if isinstance(main, list) else main
    new = changes[key][1]
    return tables.without_text(main, new) or new


def _curves_figure(comparison: Row, variants: Mapping[str, Variant], best: str) -> str | None:
    """On the common text where checkpoints were kept, else what each training measured itself."""
    if comparison["curves"]:
        rows = [
            (name, [point["tokens"] for point in points], [point["bits_per_byte"] for point in points])
            for name, points in comparison["curves"].items()
        ]
        return figures.curves_figure(rows, best, "bits per byte, common text")
    return figures.curves_figure(
        [(name, *own_curve(variant)) for name, variant in variants.items()], best, "bits per byte, own text"
    )


def own_curve(variant: Variant) -> tuple[list[float], list[float]]:
    """(tokens, bits per byte) of a variant's validations while it trained."""
    if variant.training is None:
        return [], []
    run = Run({model_registry.BASE_STEP: [variant.training]})
    return finite_points(training_metrics(run, model_registry.BASE_STEP), "tokens", "bits_per_byte")
