"""The steps of the stage report."""

from __future__ import annotations

from crawl2llm.chain.config_schema import schema_leaves, tracked_section
from crawl2llm.chain.filter_order import used_filters, verdict_steps
from crawl2llm.chain.model_registry import EXPORT_STEP, REWARD_STEP, model_rows
from crawl2llm.chain.step import ALL_SCORES, ALL_VERDICTS, DOCUMENTS, EDITS_BEFORE, Config, Step, skipped_by
from crawl2llm.core.nested_dicts import flatten, has_path, lookup

# Of every document what it was judged by, and the verdicts:
JUDGEMENTS = (
    DOCUMENTS,
    ALL_VERDICTS,
    ALL_SCORES,
    "language.compare",
    "heuristics.calibrate",
    "dedup.signature",
    "dedup.exact",
    "dedup.verify",
    "quality.combine",
)


def asks_what_if(config: Config) -> bool:
    """Whether other thresholds are asked about, and a filter has some."""
    return bool(config["report"]["whatif"]["points"] and used_filters(config))


def shows_samples(config: Config) -> bool:
    """Whether samples are asked for."""
    return bool(config["report"]["inspect"]["samples"])


def has_variants(config: Config) -> bool:
    """Whether the run has variants; only the config of main says so."""
    return bool(config["variants"])


def select_settings(config: Config, task: str) -> Config:
    """The filters, the settings of their select steps, and the sources that skip them."""
    names = verdict_steps(used_filters(config))[1:]
    return {
        "steps": names,
        "select": {name: tracked_section(config, name) for name in names},
        "exempt": {name: skipped_by(name, config) for name in names},
    }


def registered_models(config: Config, task: str) -> Config:
    """Every model, by whom it is made, and from which other."""
    return {"models": model_rows(config)}


def variant_settings(config: Config, task: str) -> Config:
    """What the variants of a run set, without placement keys; `main`: the values of these keys there; which of them are seeds."""
    ignored = {
        path for path, node in schema_leaves() if node.get("placement") and not path.startswith("tokenize.train.from.")
    }
    overlays = {
        name: {key: value for key, value in flatten(overlay).items() if key not in ignored}
        for name, overlay in config["variants"].items()
    }
    keys = sorted({key for overlay in overlays.values() for key in overlay})
    main = {key: lookup(config, key) for key in keys if has_path(config, key)}
    return {"variants": overlays, "main": main, "seed_keys": config["sweep"]["seed_keys"]}


STEPS = {
    "report.whatif": Step((*JUDGEMENTS, "tokenize.encode"), is_used=asks_what_if, extra_settings=select_settings),
    "report.inspect": Step((*JUDGEMENTS, EDITS_BEFORE), is_used=shows_samples, extra_settings=select_settings),
    # Its rule reads every other step of the variant, too.
    "report.render": Step(
        inputs={
            "manifests": (
                "report.inspect",
                "evaluate.model",
                "evaluate.public",
                "evaluate.found",
                "evaluate.curve",
                "evaluate.generate",
                "evaluate.judge",
                "evaluate.compare",
                REWARD_STEP,
                EXPORT_STEP,
                "evaluate.items",
                "dedup.export",
                "pretrain.plan",
                "quality.ngrams",
                "topics.count",
                "tokenize.compare",
                "report.whatif",
            )
        },
        extra_settings=registered_models,
    ),
    # In main alone: its rule reads these of every variant.
    "report.compare": Step(
        ("report.render", "evaluate.common", "evaluate.public"), is_used=has_variants, extra_settings=variant_settings
    ),
}
