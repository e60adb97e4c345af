"""Write the report: one HTML page that opens from disk, with what was read, kept, dropped, trained and measured.

Beside it `funnel.json` and `counts.json`, the numbers that depend on the input alone, and `figures/*.svg`. The page and
the figures of cost show seconds, so the manifest lists only the JSON files.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.chain import shared_reference, yaml_errors
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.chain.model_registry import PUBLISHED_STEP
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, variant_of, write_atomically
from crawl2llm.core.settings import setting
from crawl2llm.formats.run_records import Run, step_costs
from crawl2llm.stages.report import (
    alarms,
    alignment_table,
    comparison_table,
    compression_table,
    contamination_table,
    curve,
    differences,
    environment,
    export_table,
    figures,
    generation_table,
    inspect_summary,
    mix,
    model_table,
    page,
    plots,
    provenance,
    public,
    published_table,
    samples,
    scorers,
    slices,
    tables,
    tasks,
    topics,
    whatif_section,
)
from crawl2llm.stages.report import funnel as facts
from crawl2llm.stages.report.models import LOSSES, Model, models_of_run
from crawl2llm.stages.report.settings import RenderSettings

KEY_FIGURES = {"funnel": "funnel", "loss": "model-base.loss", "bits-per-byte": "model-base.bits"}
CONTENTS = (  # before and after the trainings
    ("overview", "Overview"),
    ("funnel", "Funnel"),
    ("samples", "Texts"),
    ("corpus", "Corpus"),
    ("tokenizer", "Tokenizer"),
)
MORE_CONTENTS = (
    ("evaluation", "Evaluation"),
    ("cost", "Time and memory"),
    ("environment", "Software"),
    ("configuration", "Configuration"),
    ("files", "Files"),
)
# Of each step that makes models: what makes rows of its summary, if not tables.training_facts.
FACTS = {
    PUBLISHED_STEP: published_table.published_facts,
    **dict.fromkeys(alignment_table.STEPS, alignment_table.alignment_facts),
}


class Task(RenderSettings):
    """The arguments of the program."""

    models: list[dict[str, str | None]] | None = setting(
        None, "Every model: its name, by whom it is made, and from which other. None: those that left a result."
    )


def complete_config(configs: Sequence[str], variant: str) -> dict[str, Any] | None:
    """The whole configuration of a variant; `configs` are config files, each laid over those before it, or the mapping that the workflow
    passes; None for nothing.

    Raises InputError or ConfigError if it is neither.
    """
    if not configs:
        return None
    if is_mapping(configs[0]):
        try:
            raw, source = json.loads(configs[0]), "--complete-config"
        except ValueError as error:
            raise InputError(f"--complete-config: {error}") from error
    else:
        raw, source = yaml_errors.read_layered(map(Path, configs)), ", ".join(configs)
    return config_of_variant(configuration.validate(raw, source), variant)


def other_variants(configs: Sequence[str], variant: str) -> list[str]:
    """The other variants of a run, main first; configs: as of `complete_config`. None without a config."""
    if not configs:
        return []
    main_config = complete_config(configs, "main") or {}
    return [name for name in ("main", *main_config.get("variants", {})) if name != variant]


def is_mapping(config: str) -> bool:
    """Whether a config is named by what it holds, as JSON, and not by its file."""
    return config.lstrip().startswith("{")


def rank_groups(groups: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """A stage's groups of sample texts with the `count` of their reason, the most frequent first."""
    counts = {reason["reason"]: reason["count"] for reason in row["reasons"]}
    counted = [{**group, "count": counts.get(group["reason"])} for group in groups]
    return sorted(counted, key=lambda group: (-(group["count"] or 0), group["reason"]))


def ordered_samples(run: Run, settings: Task, funnel: list[dict[str, Any]]) -> dict[str, Any]:
    """Sample texts, of each stage in the funnel's order, and of each the most frequent reason first."""
    sample_texts = samples.gather_samples(run, settings.samples, settings.sample_characters, settings.seed)
    dropped, records, counts = sample_texts["dropped"], sample_texts["records"], dropped_records(run)
    return sample_texts | {
        "dropped": [
            (row["stage"], rank_groups(dropped[row["stage"]], row)) for row in funnel if row["stage"] in dropped
        ],
        "records": {
            reason: records[reason] for reason in sorted(records, key=lambda name: (-counts.get(name, 0), name))
        },
    }


def dropped_records(run: Run) -> dict[str, int]:
    """Records that held no document, by reason."""
    return dict((run.counts("ingest.extract") or {}).get("dropped", {}))


def total_cost(cost: list[dict[str, Any]]) -> dict[str, Any]:
    """The costs of all steps together; None where no step has any."""
    return {
        "tasks": sum(row["tasks"] for row in cost),
        "seconds": sum(row["seconds"] for row in cost) if cost else None,
        "longest": max((row["longest"] for row in cost if row["longest"] is not None), default=None),
        "cpu_seconds": sum(row["cpu_seconds"] or 0 for row in cost) if cost else None,
        "memory": max((row["memory"] for row in cost if row["memory"] is not None), default=None),
    }


def training_values(run: Run, model: Model, summary: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
    """What the section of a model's training shows, but its figures. summary: of the step that made it; empty if it is not finished."""
    return {
        "model": model,
        "loss_of": LOSSES.get(model.step, "Mean loss, on training batches."),
        "facts": FACTS.get(model.step, tables.training_facts)(summary),
        "mix": mix.table(run, model),
        "prompts": alignment_table.fixed_prompts(run, model),
        "sofar": tables.progress_facts(run, model, config),
    }


def template_values(
    run: Run, path: Path, settings: Task, config: dict[str, Any] | None, fingerprint: str
) -> dict[str, Any]:
    """Everything that the template shows, but the figures. path: of the manifest to write."""
    variant, known = variant_of(path), models_of_run(run, settings.models)
    funnel, counts, cost = facts.funnel_rows(run), facts.run_counts(run, known), step_costs(run)
    counts["alarms"] = alarms.find(run, settings.alarm_share, path.with_name(".hosts"))
    sample_texts, total = ordered_samples(run, settings, funnel), total_cost(cost)
    what_if, by_topic = whatif_section.section(run, variant), topics.table(run)
    difference_tables = differences.difference_tables(config, known)
    side_by_side = compression_table.compression_rows(run, known)
    summaries = {row["name"]: row["training"] or {} for row in counts["models"]}
    started_models = [
        model for model in known if run.task(model.step, model.task) or (model.step, model.task) in run.training
    ]
    trainings = [training_values(run, model, summaries[model.name], config) for model in started_models]
    return {
        "state": None,
        "others": [],
        "notes": counts["notes"],
        "contents": [
            *CONTENTS[:2],
            *((("whatif", "What if"),) if what_if else ()),
            *CONTENTS[2:3],
            *((("topics", "Topics"),) if by_topic else ()),
            *CONTENTS[3:],
            *((model.anchor, model.heading) for model in started_models),
            *differences.contents_entries(difference_tables),
            *MORE_CONTENTS,
        ],
        "variant": variant,
        "fingerprint": fingerprint,
        "rendered": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "lead": tables.lead_sentence(counts),
        "tiles": tables.overview_tiles(counts, total["seconds"]),
        "funnel": funnel,
        "alarms": alarms.source_sentences(counts["alarms"]),
        "hosts_with_losses": alarms.host_sentences(counts["alarms"]),
        "shared": any(row["owner"] != variant for row in cost),
        "splits": tables.split_rows(counts),
        "sources": tables.source_rows(run),
        "asked": what_if,
        "samples": sample_texts,
        "record_counts": dropped_records(run),
        "scorers": scorers.table(run),
        "topics": by_topic,
        "corpus_facts": tables.corpus_facts(run, config),
        "thresholds": tables.threshold_rows(run),
        "tokenizer": tables.tokenizer_facts(run, known),
        "models": known,
        "trainings": trainings,
        "differences": difference_tables,
        "evaluation": model_table.evaluation_table(run, counts["models"]),
        "compared": comparison_table.table(run, {model.name: model.parent for model in known}),
        "exported": export_table.table(run, path),
        "compressed": compression_table.table(side_by_side),
        "looked": inspect_summary.table(run, path),
        "curve": curve.table(run),
        "tasks": tasks.result_tables(counts),
        "slices": slices.table(run),
        "generated": generation_table.table(run, [model.name for model in known]),
        "found": contamination_table.contamination_tables(run),
        "public": public.table(run, [model.name for model in known]),
        "costs": cost,
        "total": total,
        "machines": provenance.machine_rows(run),
        "accepted": provenance.accepted_changes(run),
        "hardware": environment.hardware(),
        "versions": environment.versions(),
        "configuration": config
        and yaml.safe_dump(shared_reference.without_reference(config), sort_keys=False, allow_unicode=True, width=100),
        "steps": provenance.step_rows(run, path),
        "counts": counts,
    }


def figures_of(run: Run, page_values: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
    """Every figure of the page; those of a training are put into its part of `page_values` too."""
    svgs = plots.all_figures(run, page_values["funnel"], page_values["costs"], page_values["models"], config)
    for part in page_values["trainings"]:
        part["figures"] = page.as_markup(svgs[part["model"].anchor])
    return svgs


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    run = Run.read(args.manifests)
    if not run.manifests:
        raise InputError("--manifests: no manifest was given, so there is nothing to report")
    config = complete_config(args.complete_config, variant_of(args.manifest))
    page_values = template_values(run, args.manifest, settings, config, manifest.fingerprint)
    page_values["others"] = other_variants(args.complete_config, page_values["variant"])
    svgs = figures_of(run, page_values, config)
    folder = args.manifest.parent
    files = [
        facts.write_json(folder / "funnel.json", page_values["funnel"]),
        facts.write_json(folder / "counts.json", page_values["counts"]),
    ]
    for name, place in KEY_FIGURES.items():
        figure: Any = svgs
        for key in place.split("."):
            figure = figure.get(key) or {}  # a run of published models alone has none of `base`
        write_atomically(folder / "figures" / f"{name}.svg", figure or figures.empty_figure(name))
    report = folder / "report.html"
    write_atomically(report, page.render(page_values, svgs))
    manifest.summary = {"stages": len(page_values["funnel"]), "steps": len(run.manifests)}
    log.info("the report is %s", report)
    return files


def add_options(parser: argparse.ArgumentParser) -> None:
    """The config that the page shows."""
    parser.add_argument(
        "--complete-config",
        nargs="+",
        default=[],
        help="the run's config, shown on the page: files, each laid over those before it, or the workflow's mapping",
    )


# Always: the page, which no manifest lists, shows costs too.
main = Program("report.render", __doc__, Task, body, add_options, always=True)


if __name__ == "__main__":
    raise SystemExit(main())
