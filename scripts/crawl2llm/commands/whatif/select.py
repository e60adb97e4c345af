"""The verdicts of a filter under other settings, by its own select program, on the scores that are there.

The programs write into a folder that is removed. So there is one definition of every verdict, and it is the run's.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from pathlib import Path
from typing import Any

from crawl2llm.chain import placement_options, steps
from crawl2llm.chain.fingerprint import tracked_settings
from crawl2llm.chain.step import alternatives
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json

# What is made by the settings of a select step too, and so made again where an edit changes them:
REMADE_STEPS = ("heuristics.calibrate",)


def verdict_tables(results: Results, config: dict[str, Any], step: str, out: Path) -> dict[str, Path]:
    """Shard → the table of a select step's verdicts under `config`, made in the folder `out`.

    Raises InputError if what it reads is not there, or where it fails, with what it said.
    """
    by_shard = steps.STEPS[step].per == "shard"
    remade = {
        needed: _run_step(results, config, needed, "", out.with_name(needed) / "manifest.json", {})
        for needed in steps.STEPS[step].inputs.values()
        if needed in REMADE_STEPS and _settings_differ(needed, config, results.config)
    }
    tables = {}
    for shard in results.shards if by_shard else [""]:
        manifest = out / (f"{shard}.manifest.json" if by_shard else "manifest.json")
        _run_step(results, config, step, shard, manifest, remade)
        for name in [shard] if by_shard else results.shards:
            tables[name] = out / f"{name}.parquet"
    return tables


def _settings_differ(step: str, *configs: dict[str, Any]) -> bool:
    """Whether a step that all these configs use has not the same settings in all."""
    if not all(steps.is_used(step, config) for config in configs):
        return False
    return len({canonical_json(tracked_settings(step, config)) for config in configs}) > 1


def _run_step(
    results: Results,
    config: dict[str, Any],
    step: str,
    shard: str,
    manifest: Path,
    remade: dict[str, Path],
) -> Path:
    """Run the program of a step for a shard ("": of all), and return its manifest. remade: those that were made for this answer.

    Inputs that the config does not use are left out.
    """
    words = [
        "--config",
        canonical_json({"step": step, "config": tracked_settings(step, config)}),
        "--manifest",
        str(manifest),
    ]
    for name, needs in steps.STEPS[step].inputs.items():
        manifests = [
            path
            for needed in alternatives(needs)
            for path in (
                [remade[needed]] if needed in remade else _input_manifests(results, config, step, needed, shard)
            )
        ]
        if manifests:
            words += [placement_options.option_flag(name), *map(str, manifests)]
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
        module, *first_words = steps.program_words(step)
        status = importlib.import_module(module).main([*first_words, *words])
    if status:
        raise InputError(f"{step} failed: {output.getvalue().strip().splitlines()[-1]}")
    return manifest


def _input_manifests(results: Results, config: dict[str, Any], step: str, needed: str, shard: str) -> list[Path]:
    """The manifests of a step that `step` reads for a shard ("" for all); none if it does not read it."""
    if needed not in steps.STEPS or not steps.is_read(needed, step, config):
        return []
    tasks = steps.result_ids(needed, config)
    if shard and steps.STEPS[needed].per == "shard":
        tasks = [shard]
    manifests = [results.manifest_path(needed, task) for task in tasks]
    if lacking := next((path for path in manifests if not path.exists()), None):
        raise InputError(f"{step} would read {lacking}, which is not there: {needed} has to run first")
    return manifests
