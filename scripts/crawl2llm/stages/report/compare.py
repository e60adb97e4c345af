"""Compare all variants of a run on one page: what differs, what it gave, whether the difference is real, and what it cost.

`compare.json` has all numbers that the input decides; `compare.html` shows costs too, so the manifest does not list it. The manifests of
every variant are found by the run's config, as the workflow finds them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from crawl2llm.chain import config as configuration
from crawl2llm.chain import yaml_errors
from crawl2llm.chain.project import Project
from crawl2llm.chain.step_program import Program
from crawl2llm.core import code_snapshot
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, ManifestError, combine_sources, pretty_json, write_atomically
from crawl2llm.core.settings import setting
from crawl2llm.stages.report import variants
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps.read import input_digests


class Task(CompareSettings):
    """The arguments of the program: what variants set, too, which the complete config says as well."""

    variants: dict[str, dict[str, Any]] = setting()
    main: dict[str, Any] = setting()
    seed_keys: list[str] = setting()


def read_project(configs: list[str], sources: Path | None = None) -> Project:
    """The variants of a run: of config files, each laid over those before it, or of the mapping that the workflow passes.

    sources: the file in which the workflow noted the source files of every shard; without it they are looked for. Raises InputError or
    ConfigError where it is no config.
    """
    if configs[0].lstrip().startswith("{"):
        raw, config_name = json.loads(configs[0]), "--complete-config"
    else:
        raw, config_name = yaml_errors.read_layered(map(Path, configs)), ", ".join(configs)
    try:
        shard_sources = code_snapshot.read_sources(sources) if sources else None
    except OSError as error:
        raise InputError(f"--sources {sources}: {error.strerror or error}") from error
    return Project(configuration.validate(raw, config_name), shard_sources)


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    run = read_project(args.complete_config, args.sources)
    comparison, variants_by_name = variants.read_comparison(run, settings)
    for row in comparison["variants"]:
        if row["damaged"]:
            raise ManifestError(f"{row['damaged'][0]}: start the run again, and this task runs again")
        if row["missing"]:
            raise InputError(f"the variant {row['name']} lacks {', '.join(row['missing'])}: start the run again")
    out = args.manifest.with_name("compare.json")
    write_atomically(out, pretty_json(comparison))
    page = args.manifest.with_name("compare.html")
    write_atomically(page, variants.render(run, comparison, variants_by_name, manifest.fingerprint))
    manifest.inputs = input_digests(list(variants_by_name.values()))
    # Main's alone: what holds for the source files of another variant is in its results, which are inputs.
    manifest.sources = combine_sources(
        task_manifest.sources for step in variants_by_name["main"].manifests.values() for task_manifest in step.values()
    )
    manifest.summary = verdict_summary(comparison)
    log.info("all variants are compared in %s", page)
    return [out]


def verdict_summary(comparison: dict[str, Any]) -> dict[str, Any]:
    """How many variants and settings, and of each model the verdicts by bits per byte."""
    verdicts = {
        name: {model["settings"][row["second"]]: row["verdict"] for row in model["measures"][0]["to_main"]}
        for name, model in comparison["models"].items()
    }
    return {"variants": len(comparison["variants"]), "settings": len(comparison["settings"]), "verdicts": verdicts}


def add_options(parser: argparse.ArgumentParser) -> None:
    """By what the manifests of every variant are found."""
    parser.add_argument(
        "--complete-config",
        nargs="+",
        required=True,
        help="the run's config: files, each laid over those before it, or the workflow's mapping",
    )
    parser.add_argument("--sources", type=Path, help="the source files of every shard, as the workflow noted them")


# Always: the page, which no manifest lists, shows costs too.
main = Program("report.compare", __doc__, Task, body, add_options, example="--complete-config config.yaml", always=True)


if __name__ == "__main__":
    raise SystemExit(main())
