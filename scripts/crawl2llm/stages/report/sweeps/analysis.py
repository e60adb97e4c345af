"""Everything that the page over all variants says of its input: settings, data, differences with verdicts, the best, the scaling law.

A function of manifests and files alone: no times, no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import scaling, scores
from crawl2llm.stages.report.sweeps.differences import Comparison, Measure, set_verdicts
from crawl2llm.stages.report.sweeps.groups import MAIN, Setting
from crawl2llm.stages.report.sweeps.read import COMMON, CORPUS, TOKENS, Variant

Row = dict[str, Any]
TRAINED_BY = "pretrain.train."  # keys below change the training alone: the text is the same
MOST_PAIRS = 30  # settings of which any two are compared; with more nobody reads the table


@dataclass(frozen=True)
class ComparedSettings:
    """The settings that have an evaluated model, with the trainings of each that count."""

    settings: list[Setting]
    variants: list[str]
    groups: tuple[tuple[int, ...], ...]


def comparable_settings(
    settings: Sequence[Setting],
    manifests: Mapping[str, Manifest],
    stopped: Mapping[str, Any],
    trainings: Mapping[str, str],
) -> ComparedSettings:
    """The settings with a model in `manifests` that was not stopped early; main is the first, or there is none.

    trainings: variant → what names its training. Of variants with the same the first alone counts: the same numbers twice are no two seeds.
    """
    kept_settings, names, groups = [], list[str](), list[tuple[int, ...]]()
    seen_trainings: set[str] = set()
    for setting in settings:
        new_trainings = []
        for name in setting.variants:
            if name in manifests and not stopped.get(name) and trainings[name] not in seen_trainings:
                seen_trainings.add(trainings[name])
                new_trainings.append(name)
        if new_trainings:
            kept_settings.append(setting)
            groups.append(tuple(range(len(names), len(names) + len(new_trainings))))
            names += new_trainings
    return ComparedSettings(kept_settings, names, tuple(groups))


def compare_model(
    model: str, settings: Sequence[Setting], variants: Mapping[str, Variant], options: CompareSettings
) -> tuple[Row, dict[str, Comparison]]:
    """One model of all variants: `settings`, `measures` with values and differences to main, `pairs` of any two by bits per byte; and the
    comparison of each measure.

    Empty where main or all others have no such model, or main holds out no text. Raises ManifestError if the variants were evaluated on
    other documents.
    """
    manifests = {name: manifest for name, variant in variants.items() if (manifest := variant.common_evaluation(model))}
    stopped = {name: variant.early_stop for name, variant in variants.items()}
    trainings = {name: variant.training_of(model) for name, variant in variants.items()}
    compared = comparable_settings(settings, manifests, stopped, trainings)
    if len(compared.settings) < 2 or compared.settings[0].name != MAIN:
        return {}, {}
    kept = {name: manifests[name] for name in compared.variants}
    scores.check_same_text(kept)
    measured = [
        *scores.text_measures(kept, model, compared.groups),
        *scores.task_measures(kept, model, compared.groups),
    ]
    public = {name: manifest for name in compared.variants if (manifest := variants[name].public_evaluation(model))}
    if len(public) == len(compared.variants):
        measured += scores.task_measures(public, model, compared.groups)
    if not measured or measured[0].name != scores.BITS:
        return {}, {}  # main holds out no text
    comparisons = {measure.name: Comparison(measure, options) for measure in measured}
    measures = []
    for family in measure_families(measured):
        pairs = [(measure, pair) for measure in family for pair in comparisons[measure.name].pairs_with_main()]
        rows = [comparisons[measure.name].difference_row(*pair, family=len(pairs)) for measure, pair in pairs]
        set_verdicts(rows, options.confidence)
        for measure in family:
            measure_rows = [row for row, (of_measure, _) in zip(rows, pairs, strict=True) if of_measure is measure]
            measures.append(measure_row(comparisons[measure.name], measure_rows))
    main_comparison = comparisons[scores.BITS]
    any_two = main_comparison.all_pairs() if len(compared.settings) <= MOST_PAIRS else []
    rows = [main_comparison.difference_row(*pair, family=len(any_two), planned=False) for pair in any_two]
    set_verdicts(rows, options.confidence)
    first = manifests[compared.variants[0]].summary
    result = {
        "settings": [setting.name for setting in compared.settings],
        "seeds": [len(group) for group in compared.groups],
        "variants": compared.variants,
        "documents": first["documents"],
        "bytes": first["bytes"],
        "set": first["set"],
        "measures": measures,
        "pairs": rows,
    }
    return result, comparisons


def measure_families(measured: Sequence[Measure]) -> list[list[Measure]]:
    """The measures whose comparisons are corrected together: all text, the text of single sources, tasks, right answers."""
    kinds: dict[str, list[Measure]] = {scores.BITS: [], scores.BY_SOURCE: [], scores.TASK: [], scores.ANSWERS: []}
    for measure in measured:
        kinds[
            next(
                kind
                for kind in (scores.BY_SOURCE, scores.TASK, scores.ANSWERS, scores.BITS)
                if measure.name.startswith(kind)
            )
        ].append(measure)
    return [family for family in kinds.values() if family]


def measure_row(comparison: Comparison, rows: list[Row]) -> Row:
    """A measure as JSON."""
    measure = comparison.measured
    return {
        "name": measure.name,
        "lower_is_better": measure.lower_is_better,
        "documents": measure.documents,
        "noise": {
            "deviation": comparison.noise.variance**0.5 if comparison.noise.freedom else None,
            "freedom": comparison.noise.freedom,
        },
        "settings": comparison.setting_rows(),
        "to_main": rows,
    }


def variant_row(variant: Variant, settings: Sequence[Setting], seeds: Mapping[str, Any]) -> Row:
    """A variant: its setting and seeds, text kept, size, tokens and losses of its pre-training, where and why it was stopped."""
    manifest = variant.training
    facts: Row = manifest.summary if manifest else {}
    return {
        "name": variant.name,
        "setting": next(setting.name for setting in settings if variant.name in setting.variants),
        "seeds": dict(seeds),
        "missing": variant.missing,
        "damaged": variant.damaged,
        "stopped": variant.early_stop,
        **variant.corpus_counts(),
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


def key_axes(settings: Sequence[Setting], means: Mapping[str, float]) -> list[Row]:
    """Of each key that differs between settings: `main`'s value, and `values`, each with the mean bits per byte over its settings, how many
    these are, and the best of them; the best value first. main's value counts where a setting does not change the key.
    """
    keys = dict.fromkeys(key for setting in settings for key in setting.changes)
    out = []
    for key in keys:
        before = next(setting.changes[key][0] for setting in settings if key in setting.changes)
        settings_by_value: dict[str, tuple[Any, list[str]]] = {}
        for setting in settings:
            if setting.name in means:
                value = setting.changes[key][1] if key in setting.changes else before
                settings_by_value.setdefault(repr(value), (value, []))[1].append(setting.name)
        values: list[Row] = [
            {
                "value": value,
                "settings": len(names),
                "mean": sum(means[name] for name in names) / len(names),
                "best": min(names, key=lambda name: means[name]),
            }
            for value, names in settings_by_value.values()
        ]
        values.sort(key=lambda row: float(row["mean"]))
        if len(values) > 1:
            out.append({"key": key, "main": before, "values": values})
    return out


def scaling_law(
    settings: Sequence[Setting],
    rows: Mapping[str, Row],
    model: Row,
    comparisons: Mapping[str, Comparison],
    options: CompareSettings,
) -> Row:
    """The scaling law of the settings that differ in keys of the training alone, by bits per byte on the common text.

    Of several settings with the same size and tokens the one with the lowest mean counts; each of its trainings is a point.
    """
    best: dict[tuple[float, float], tuple[float, list[tuple[float, float, float]]]] = {}
    values = comparisons[scores.BITS]
    left_out = []
    for place, name in enumerate(model["settings"]):
        setting = next(candidate for candidate in settings if candidate.name == name)
        training_names = [model["variants"][training] for training in values.measured.groups[place]]
        if any(not key.startswith(TRAINED_BY) for key in setting.changes):
            left_out.append(name)
            continue
        points = [
            (float(rows[variant]["parameters"]), float(rows[variant]["trained_tokens"]), bits)
            for variant, bits in zip(training_names, values.by_setting[place], strict=True)
            if rows[variant]["parameters"] and rows[variant]["trained_tokens"]
        ]
        if points and (points[0][:2] not in best or values.means[place] < best[points[0][:2]][0]):
            best[points[0][:2]] = (values.means[place], points)
    points = [point for _, points in best.values() for point in points]
    repeated = max((float(rows[name]["epochs"] or 0) for name in model["variants"]), default=0.0)
    law = scaling.law_row(
        [p[0] for p in points],
        [p[1] for p in points],
        [p[2] for p in points],
        options.resamples,
        options.confidence,
        options.seed,
    )
    return {**law, "left_out": left_out, "most_epochs": repeated, "at": [list(point) for point in points]}


def compare_settings(
    settings: Sequence[Setting],
    variants: Mapping[str, Variant],
    seeds: Mapping[str, Mapping[str, Any]],
    options: CompareSettings,
) -> Row:
    """compare.json. Raises ManifestError if variants were evaluated on other documents."""
    rows = {name: variant_row(variant, settings, seeds[name]) for name, variant in variants.items()}
    first: dict[str, str] = {}
    for name, variant in variants.items():
        twin = first.setdefault(variant.training_of(model_registry.BASE), name)
        rows[name]["same_as"] = twin if twin != name else None  # the variant whose base model it has
    names = dict.fromkeys(name for variant in variants.values() for name in variant.manifests.get(COMMON, {}))
    models: dict[str, Row] = {}
    out: Row = {
        "options": options.model_dump(include=set(CompareSettings.model_fields)),
        "variants": list(rows.values()),
        "settings": [
            {
                "name": setting.name,
                "variants": list(setting.variants),
                "changes": {key: list(values) for key, values in setting.changes.items()},
            }
            for setting in settings
        ],
        "shares_text": shares_text(list(variants.values())),
        "models": models,
        "axes": [],
        "scaling": None,
        "curves": checkpoint_curves(variants),
    }
    for name in sorted(names, key=lambda name: (name != model_registry.BASE, name)):
        model_row, comparisons = compare_model(name, settings, variants, options)
        if not model_row or name == model_registry.UNTRAINED:
            continue
        models[name] = model_row
        if name == model_registry.BASE:
            means = dict(zip(model_row["settings"], comparisons[scores.BITS].means, strict=True))
            out["axes"] = key_axes(settings, means)
            out["scaling"] = scaling_law(settings, rows, model_row, comparisons, options)
    return out


def checkpoint_curves(variants: Mapping[str, Variant]) -> dict[str, list[Row]]:
    """Bits per byte on the common text by tokens, of the variants that kept checkpoints (evaluate.curve.every)."""
    out = {}
    for name, variant in variants.items():
        manifest = variant.common_evaluation(model_registry.BASE)
        file = f"{model_registry.BASE}.curve.jsonl"
        if manifest and file in manifest.files:
            rows = manifest.rows(file)
            out[name] = [{key: row[key] for key in ("step", "tokens", "bits_per_byte")} for row in rows]
    return out
