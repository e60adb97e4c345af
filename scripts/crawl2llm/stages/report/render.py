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

from crawl2llm.chain import command_line, config_schema, shared_reference, yaml_errors
from crawl2llm.chain import config as configuration
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, write_atomically
from crawl2llm.formats.run_records import Run, costs
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
    samples,
    scorers,
    slices,
    tables,
    tasks,
    topics,
    whatif_section,
)
from crawl2llm.stages.report import funnel as facts
from crawl2llm.stages.report.models import LOSSES, models

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


def complete(given: Sequence[str], variant: str) -> dict[str, Any] | None:
    """The whole configuration of a variant; `given` are config files, each laid over those before it, or the mapping that the workflow
    passes; None for nothing.

    Raises InputError or ConfigError where it is neither.
    """
    if not given:
        return None
    if is_mapping(given[0]):
        try:
            raw, source = json.loads(given[0]), "--complete-config"
        except ValueError as error:
            raise command_line.InputError(f"--complete-config: {error}") from error
    else:
        raw, source = yaml_errors.laid(map(Path, given)), ", ".join(given)
    return configuration.of_variant(configuration.validate(raw, source), variant)


def others(given: Sequence[str], variant: str) -> list[str]:
    """The other variants of a run, main first; given: as of `complete`. None without a config."""
    if not given:
        return []
    whole = complete(given, "main") or {}
    return [name for name in ("main", *whole.get("variants", {})) if name != variant]


def is_mapping(given: str) -> bool:
    """Whether a config is named by what it holds, as JSON, and not by its file."""
    return given.lstrip().startswith("{")


def variant_of(manifest: Path) -> str:
    """`results/<variant>/report/render/manifest.json` → `<variant>`."""
    return manifest.absolute().parents[2].name


def ranked(groups: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """A stage's groups of sample texts with the `count` of their reason, the most frequent first."""
    counts = {reason["reason"]: reason["count"] for reason in row["reasons"]}
    found = [{**group, "count": counts.get(group["reason"])} for group in groups]
    return sorted(found, key=lambda group: (-(group["count"] or 0), group["reason"]))


def context(
    run: Run, path: Path, settings: dict[str, Any], config: dict[str, Any] | None, fingerprint: str
) -> dict[str, Any]:
    """Everything that the template shows, but the figures. path: of the manifest to write."""
    settings = config_schema.completed("report.render", settings)
    variant, known = variant_of(path), models(run, settings.get("models"))
    funnel, counts, cost = facts.funnel(run), facts.counts(run, known), costs(run)
    counts["alarms"] = alarms.find(run, settings["alarm_share"], path.with_name(".hosts"))
    shown = samples.gather(run, settings["samples"], settings["sample_characters"], settings["seed"])
    shown["dropped"] = [
        (row["stage"], ranked(shown["dropped"][row["stage"]], row))
        for row in funnel
        if row["stage"] in shown["dropped"]
    ]
    aside = (run.counts("ingest.extract") or {}).get("dropped", {})
    shown["records"] = {
        reason: shown["records"][reason]
        for reason in sorted(shown["records"], key=lambda name: (-aside.get(name, 0), name))
    }
    total = {
        "tasks": sum(row["tasks"] for row in cost),
        "seconds": sum(row["seconds"] for row in cost) if cost else None,
        "longest": max((row["longest"] for row in cost if row["longest"] is not None), default=None),
        "cpu_seconds": sum(row["cpu_seconds"] or 0 for row in cost) if cost else None,
        "memory": max((row["memory"] for row in cost if row["memory"] is not None), default=None),
    }
    what_if = whatif_section.section(run, variant)
    begun = [model for model in known if run.task(model.step, model.task) or (model.step, model.task) in run.training]
    by_topic = topics.table(run)
    differ, side_by_side = differences.tables(config, known), compression_table.rows(run, known)
    summaries = {known["name"]: known["training"] or {} for known in counts["models"]}
    trainings = [
        {
            "model": model,
            "loss_of": LOSSES.get(model.step, "Mean loss, on training batches."),
            "facts": (alignment_table.facts if model.step in alignment_table.STEPS else tables.training_facts)(
                summaries[model.name]
            ),
            "mix": mix.table(run, model),
            "prompts": alignment_table.prompts(run, model),
            "sofar": tables.progress(run, model, config),
        }
        for model in begun
    ]
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
            *((model.anchor, model.heading) for model in begun),
            *differences.contents(differ),
            *MORE_CONTENTS,
        ],
        "variant": variant,
        "fingerprint": fingerprint,
        "rendered": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "lead": tables.lead(counts),
        "tiles": tables.tiles(counts, total["seconds"]),
        "funnel": funnel,
        "alarms": alarms.of_sources(counts["alarms"]),
        "hosts_with_losses": alarms.of_hosts(counts["alarms"]),
        "shared": any(row["owner"] != variant for row in cost),
        "splits": tables.splits(counts),
        "sources": tables.sources(run),
        "asked": what_if,
        "samples": shown,
        "record_counts": aside,
        "scorers": scorers.table(run),
        "topics": by_topic,
        "corpus_facts": tables.corpus_facts(run, config),
        "thresholds": tables.thresholds(run),
        "tokenizer": tables.tokenizer(run),
        "models": known,
        "trainings": trainings,
        "differences": differ,
        "evaluation": model_table.evaluation(run, counts["models"]),
        "compared": comparison_table.table(run, {model.name: model.parent for model in known}),
        "exported": export_table.table(run, path),
        "compressed": compression_table.table(side_by_side),
        "looked": inspect_summary.table(run, path),
        "curve": curve.table(run),
        "tasks": tasks.tables(counts),
        "slices": slices.table(run),
        "generated": generation_table.table(run, [model.name for model in known]),
        "found": contamination_table.found(run),
        "public": public.table(run, [model.name for model in known]),
        "costs": cost,
        "total": total,
        "machines": provenance.machines(run),
        "accepted": provenance.accepted(run),
        "hardware": environment.hardware(),
        "versions": environment.versions(),
        "configuration": config
        and yaml.safe_dump(shared_reference.own(config), sort_keys=False, allow_unicode=True, width=100),
        "steps": provenance.steps(run, path),
        "counts": counts,
    }


def figures_of(run: Run, shown: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
    """Every figure of the page; those of a training are put into its part of `shown` too."""
    drawn = plots.all_figures(run, shown["funnel"], shown["costs"], shown["models"], config)
    for part in shown["trainings"]:
        part["figures"] = page.trusted(drawn[part["model"].anchor])
    return drawn


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    run = Run.read(args.manifests)
    if not run.manifests:
        raise command_line.InputError("--manifests: no manifest was given, so there is nothing to report")
    config = complete(args.complete_config, variant_of(args.manifest))
    shown = context(run, args.manifest, settings, config, manifest.fingerprint)
    shown["others"] = others(args.complete_config, shown["variant"])
    drawn = figures_of(run, shown, config)
    folder = args.manifest.parent
    files = [
        facts.write(folder / "funnel.json", shown["funnel"]),
        facts.write(folder / "counts.json", shown["counts"]),
    ]
    for name, place in KEY_FIGURES.items():
        figure: Any = drawn
        for key in place.split("."):
            figure = figure[key]
        write_atomically(folder / "figures" / f"{name}.svg", figure or figures.empty(name))
    report = folder / "report.html"
    write_atomically(report, page.render(shown, drawn))
    manifest.summary = {"stages": len(shown["funnel"]), "steps": len(run.manifests)}
    log.info("the report is %s", report)
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "report.render",
        __doc__,
        "--config config.yaml --manifests $(find results/main -name '*manifest.json' -not -path '*/report/*') "
        "--manifest results/main/report/render/manifest.json",
        always=True,  # the page, which no manifest lists, shows costs too
    )
    parser.add_argument("--manifests", required=True, type=Path, nargs="+", help="the manifests of every step that ran")
    parser.add_argument(
        "--complete-config",
        nargs="+",
        default=[],
        help="the run's config, shown on the page: files, each laid over those before it, or the workflow's mapping",
    )
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
