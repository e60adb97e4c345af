"""The figures of the page over all variants, from compare.json; see stages/report/sweeps/figures.py for how each is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.formats.run_records import Run, metrics, series
from crawl2llm.stages.report.sweeps import figures, scaling, tables
from crawl2llm.stages.report.sweeps.read import Variant

Row = dict[str, Any]


def drawn(found: Row, variants: Mapping[str, Variant]) -> Row:
    """Every figure; None for one without data."""
    base = found["models"].get(model_registry.BASE)
    if not base:
        return {"differences": None, "parallel": None, "curves": _curves(found, variants, ""), "scaling": None}
    measure = base["measures"][0]
    means = [own["mean"] for own in measure["settings"]]
    best = base["settings"][means.index(min(means))]
    settings = {row["name"]: row for row in found["settings"]}
    keys = [axis["key"] for axis in found["axes"]][:8]
    main = {axis["key"]: axis["main"] for axis in found["axes"]}
    rows = [
        (name, [_at(settings[name]["changes"], key, main[key]) for key in keys], mean)
        for name, mean in zip(base["settings"], means, strict=True)
    ]
    fitted = found["scaling"] if found["scaling"] and "constants" in found["scaling"] else None
    graph = None
    if fitted:
        constants = {name: of["value"] for name, of in fitted["constants"].items()}
        named = (constants.get(name) for name in ("A", "alpha", "B", "beta"))
        graph = figures.scaling(fitted["at"], scaling.Law(constants["E"], *named))
    return {
        "differences": figures.differences(base["settings"], measure["to_main"], "bits per byte"),
        "parallel": figures.parallel(keys, rows, "bits per byte"),
        "curves": _curves(found, variants, best),
        "scaling": graph,
    }


def _at(changes: Mapping[str, Any], key: str, main: Any) -> Any:
    """A setting's value of a key; of a list in how far it is not main's, since beside an axis there is no place for it."""
    if key not in changes:
        return "as main" if isinstance(main, list) else main
    new = changes[key][1]
    return tables.beside(main, new) or new


def _curves(found: Row, variants: Mapping[str, Variant], best: str) -> str | None:
    """On the common text where checkpoints were kept, else what each training measured itself."""
    if found["curves"]:
        rows = [
            (name, [point["tokens"] for point in of], [point["bits_per_byte"] for point in of])
            for name, of in found["curves"].items()
        ]
        return figures.curves(rows, best, "bits per byte, common text")
    return figures.curves(
        [(name, *own(variant)) for name, variant in variants.items()], best, "bits per byte, own text"
    )


def own(variant: Variant) -> tuple[list[float], list[float]]:
    """(tokens, bits per byte) of a variant's validations while it trained."""
    if variant.training is None:
        return [], []
    run = Run({model_registry.BASE_STEP: [variant.training]})
    return series(metrics(run, model_registry.BASE_STEP), "tokens", "bits_per_byte")
