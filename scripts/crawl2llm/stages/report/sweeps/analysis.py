"""Everything that the page over all variants says of its input: settings, data, differences with verdicts, the best, the scaling law.

A function of manifests and files alone: no times, no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.report.sweeps import scaling, scores
from crawl2llm.stages.report.sweeps.differences import Comparison, Measured, decide
from crawl2llm.stages.report.sweeps.groups import MAIN, Setting
from crawl2llm.stages.report.sweeps.read import COMMON, CORPUS, TOKENS, Variant

Row = dict[str, Any]
TRAINED_BY = "pretrain.train."  # keys below change the training alone: the text is the same
MOST_PAIRS = 30  # settings of which any two are compared; with more nobody reads the table


@dataclass(frozen=True)
class Compared:
    """The settings that have an evaluated model, with the trainings of each that count."""

    settings: list[Setting]
    variants: list[str]
    groups: tuple[tuple[int, ...], ...]


def usable(
    settings: Sequence[Setting], found: Mapping[str, Manifest], stopped: Mapping[str, Any], trainings: Mapping[str, str]
) -> Compared:
    """The settings with a model in `found` that was not stopped early; main is the first, or there is none.

    trainings: variant → what names its training. Of variants with the same the first alone counts: the same numbers twice are no two seeds.
    """
    kept, names, groups = [], list[str](), list[tuple[int, ...]]()
    seen: set[str] = set()
    for setting in settings:
        own = []
        for name in setting.variants:
            if name in found and not stopped.get(name) and trainings[name] not in seen:
                seen.add(trainings[name])
                own.append(name)
        if own:
            kept.append(setting)
            groups.append(tuple(range(len(names), len(names) + len(own))))
            names += own
    return Compared(kept, names, tuple(groups))


def of_model(
    model: str, settings: Sequence[Setting], variants: Mapping[str, Variant], options: Row
) -> tuple[Row, dict[str, Comparison]]:
    """One model of all variants: `settings`, `measures` with values and differences to main, `pairs` of any two by bits per byte; and the
    comparison of each measure.

    Empty where main or all others have no such model, or main holds out no text. Raises ManifestError where the variants were evaluated on
    other documents.
    """
    found = {name: made for name, variant in variants.items() if (made := variant.common(model))}
    stopped = {name: variant.stopped for name, variant in variants.items()}
    trainings = {name: variant.training_of(model) for name, variant in variants.items()}
    of = usable(settings, found, stopped, trainings)
    if len(of.settings) < 2 or of.settings[0].name != MAIN:
        return {}, {}
    kept = {name: found[name] for name in of.variants}
    scores.same_text(kept)
    measured = [*scores.on_text(kept, model, of.groups), *scores.on_tasks(kept, model, of.groups)]
    if not measured or measured[0].name != scores.BITS:
        return {}, {}  # main holds out no text
    held = {one.name: Comparison(one, options) for one in measured}
    measures = []
    for family in families(measured):
        pairs = [(one, pair) for one in family for pair in held[one.name].to_main()]
        rows = [held[one.name].row(*pair, family=len(pairs)) for one, pair in pairs]
        decide(rows, options["confidence"])
        for one in family:
            own = [row for row, (of_measure, _) in zip(rows, pairs, strict=True) if of_measure is one]
            measures.append(described(held[one.name], own))
    every = held[scores.BITS]
    any_two = every.pairs() if len(of.settings) <= MOST_PAIRS else []
    rows = [every.row(*pair, family=len(any_two), planned=False) for pair in any_two]
    decide(rows, options["confidence"])
    first = found[of.variants[0]].summary
    result = {
        "settings": [setting.name for setting in of.settings],
        "seeds": [len(group) for group in of.groups],
        "variants": of.variants,
        "documents": first["documents"],
        "bytes": first["bytes"],
        "set": first["set"],
        "measures": measures,
        "pairs": rows,
    }
    return result, held


def families(measured: Sequence[Measured]) -> list[list[Measured]]:
    """The measures whose comparisons are corrected together: all text, the text of single sources, tasks."""
    kinds: dict[str, list[Measured]] = {scores.BITS: [], scores.BY_SOURCE: [], scores.TASK: []}
    for one in measured:
        kinds[next(kind for kind in (scores.BY_SOURCE, scores.TASK, scores.BITS) if one.name.startswith(kind))].append(
            one
        )
    return [found for found in kinds.values() if found]


def described(found: Comparison, rows: list[Row]) -> Row:
    """A measure as JSON."""
    of = found.measured
    return {
        "name": of.name,
        "lower_is_better": of.lower_is_better,
        "documents": of.documents,
        "noise": {
            "deviation": found.noise.variance**0.5 if found.noise.freedom else None,
            "freedom": found.noise.freedom,
        },
        "settings": found.settings(),
        "to_main": rows,
    }


def of_variant(variant: Variant, settings: Sequence[Setting], seeds: Mapping[str, Any]) -> Row:
    """A variant: its setting and seeds, text kept, size, tokens and losses of its pre-training, where and why it was stopped."""
    made = variant.training
    facts: Row = made.summary if made else {}
    return {
        "name": variant.name,
        "setting": next(setting.name for setting in settings if variant.name in setting.variants),
        "seeds": dict(seeds),
        "missing": variant.missing,
        "damaged": variant.damaged,
        "stopped": variant.stopped,
        **variant.counts(),
        "parameters": facts.get("parameters", {}).get("total"),
        "parameters_without_embeddings": facts.get("parameters", {}).get("non_embedding"),
        "trained_tokens": facts.get("tokens"),
        "steps": facts.get("steps"),
        "epochs": facts.get("epochs"),
        "own_bits_per_byte": facts.get("bits_per_byte"),
    }


def shares_text(variants: Sequence[Variant]) -> bool:
    """Whether all variants train on and validate on the same files."""
    return all(len({variant.owners.get(step) for variant in variants}) == 1 for step in (CORPUS, TOKENS))


def axes(settings: Sequence[Setting], means: Mapping[str, float]) -> list[Row]:
    """Of each key that differs between settings: `main`'s value, and `values`, each with the mean bits per byte over its settings, how many
    these are, and the best of them; the best value first. main's value counts where a setting does not change the key.
    """
    keys = dict.fromkeys(key for setting in settings for key in setting.changes)
    out = []
    for key in keys:
        before = next(setting.changes[key][0] for setting in settings if key in setting.changes)
        held: dict[str, tuple[Any, list[str]]] = {}
        for setting in settings:
            if setting.name in means:
                value = setting.changes[key][1] if key in setting.changes else before
                held.setdefault(repr(value), (value, []))[1].append(setting.name)
        values: list[Row] = [
            {
                "value": value,
                "settings": len(names),
                "mean": sum(means[name] for name in names) / len(names),
                "best": min(names, key=lambda name: means[name]),
            }
            for value, names in held.values()
        ]
        values.sort(key=lambda row: float(row["mean"]))
        if len(values) > 1:
            out.append({"key": key, "main": before, "values": values})
    return out


def law(
    settings: Sequence[Setting], rows: Mapping[str, Row], model: Row, held: Mapping[str, Comparison], options: Row
) -> Row:
    """The scaling law of the settings that differ in keys of the training alone, by bits per byte on the common text.

    Of several settings with the same size and tokens the one with the lowest mean counts; each of its trainings is a point.
    """
    best: dict[tuple[float, float], tuple[float, list[tuple[float, float, float]]]] = {}
    values = held[scores.BITS]
    left = []
    for place, name in enumerate(model["settings"]):
        setting = next(one for one in settings if one.name == name)
        own = [model["variants"][training] for training in values.measured.groups[place]]
        if any(not key.startswith(TRAINED_BY) for key in setting.changes):
            left.append(name)
            continue
        points = [
            (float(rows[variant]["parameters"]), float(rows[variant]["trained_tokens"]), bits)
            for variant, bits in zip(own, values.by_setting[place], strict=True)
            if rows[variant]["parameters"] and rows[variant]["trained_tokens"]
        ]
        if points and (points[0][:2] not in best or values.means[place] < best[points[0][:2]][0]):
            best[points[0][:2]] = (values.means[place], points)
    points = [point for _, own in best.values() for point in own]
    repeated = max((float(rows[name]["epochs"] or 0) for name in model["variants"]), default=0.0)
    found = scaling.described([p[0] for p in points], [p[1] for p in points], [p[2] for p in points], options)
    return {**found, "left_out": left, "most_epochs": repeated, "at": [list(point) for point in points]}


def whole(
    settings: Sequence[Setting], variants: Mapping[str, Variant], seeds: Mapping[str, Mapping[str, Any]], options: Row
) -> Row:
    """compare.json. Raises ManifestError where variants were evaluated on other documents."""
    rows = {name: of_variant(variant, settings, seeds[name]) for name, variant in variants.items()}
    first: dict[str, str] = {}
    for name, variant in variants.items():
        same = first.setdefault(variant.training_of(model_registry.BASE), name)
        rows[name]["same_as"] = same if same != name else None  # the variant whose base model it has
    names = dict.fromkeys(name for variant in variants.values() for name in variant.made.get(COMMON, {}))
    models: dict[str, Row] = {}
    out: Row = {
        "options": options,
        "variants": list(rows.values()),
        "settings": [
            {
                "name": one.name,
                "variants": list(one.variants),
                "changes": {key: list(of) for key, of in one.changes.items()},
            }
            for one in settings
        ],
        "shares_text": shares_text(list(variants.values())),
        "models": models,
        "axes": [],
        "scaling": None,
        "curves": curves(variants),
    }
    for name in sorted(names, key=lambda name: (name != model_registry.BASE, name)):
        found, held = of_model(name, settings, variants, options)
        if not found or name == model_registry.UNTRAINED:
            continue
        models[name] = found
        if name == model_registry.BASE:
            means = dict(zip(found["settings"], held[scores.BITS].means, strict=True))
            out["axes"] = axes(settings, means)
            out["scaling"] = law(settings, rows, found, held, options)
    return out


def curves(variants: Mapping[str, Variant]) -> dict[str, list[Row]]:
    """Bits per byte on the common text by tokens, of the variants that kept checkpoints (evaluate.curve.every)."""
    out = {}
    for name, variant in variants.items():
        made = variant.common(model_registry.BASE)
        file = f"{model_registry.BASE}.curve.jsonl"
        if made and file in made.files:
            rows = made.rows(file)
            out[name] = [{key: row[key] for key in ("step", "tokens", "bits_per_byte")} for row in rows]
    return out
