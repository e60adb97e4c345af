"""The verdicts of a filter under other settings, by its own select program, on the scores that are there.

The programs write into a folder that is removed. So there is one definition of every verdict, and it is the run's.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.chain.fingerprint import settings
from crawl2llm.chain.steps import program_of
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical

# What a select reads besides the score of its shard: option → step. Those that the config does not use are left out.
MORE = {
    "language.select": {"--compared": "language.compare"},
    "heuristics.select": {"--thresholds": "heuristics.calibrate", "--languages": "language.score"},
    "quality.select": {"--languages": "language.score", "--combined": "quality.combine"},
    "dedup.select": {"--exact": "dedup.exact", "--pairs": "dedup.verify"},
}
# What is made by the settings of a select step too, and so made again where an edit changes them: option → step that it reads.
AGAIN = {"heuristics.calibrate": {"--signals": "heuristics.score", "--languages": "language.score"}}
SIGNALS = {"dedup.select": "dedup.signature"}  # else the filter's score


def verdicts(results: Results, config: dict[str, Any], step: str, out: Path) -> dict[str, Path]:
    """Shard → the table of a select step's verdicts under `config`, made in the folder `out`.

    Raises InputError where what it reads is not there, or where it fails, with what it said.
    """
    stage = steps.stage_of(step)
    each = steps.STEPS[step].per == "shard"
    options = {"--signals": SIGNALS.get(step, f"{stage}.score"), **MORE.get(step, {})}
    again = {
        needed: _run(results, config, needed, "", out.with_name(needed) / "manifest.json", AGAIN[needed], {})
        for needed in options.values()
        if needed in AGAIN and _differs(needed, config, results.config)
    }
    made = {}
    for shard in results.shards if each else [""]:
        manifest = out / (f"{shard}.manifest.json" if each else "manifest.json")
        _run(results, config, step, shard, manifest, options, again)
        for name in [shard] if each else results.shards:
            made[name] = out / f"{name}.parquet"
    return made


def _differs(step: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a step that both configs use has other settings in one than in the other."""
    return all(steps.is_used(step, config) for config in (one, other)) and canonical(settings(step, one)) != canonical(
        settings(step, other)
    )


def _run(
    results: Results,
    config: dict[str, Any],
    step: str,
    shard: str,
    manifest: Path,
    options: dict[str, str],
    again: dict[str, Path],
) -> Path:
    """Run the program of a step for a shard ("": of all), and return its manifest. again: those that were made for this answer."""
    words = ["--config", canonical({"step": step, "config": settings(step, config)}), "--manifest", str(manifest)]
    for option, needed in options.items():
        if found := [again[needed]] if needed in again else _manifests(results, config, step, needed, shard):
            words += [option, *map(str, found)]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        status = importlib.import_module(program_of(step)).main(words)
    if status:
        raise InputError(f"{step} failed: {said.getvalue().strip().splitlines()[-1]}")
    return manifest


def _manifests(results: Results, config: dict[str, Any], step: str, needed: str, shard: str) -> list[Path]:
    """The manifests of a step that `step` reads for a shard ("" for all); none where it does not read it."""
    if needed not in steps.STEPS or not steps.is_read(needed, step, config):
        return []
    tasks = steps.ids(needed, config)
    if shard and steps.STEPS[needed].per == "shard":
        tasks = [shard]
    found = [results.path(needed, task) for task in tasks]
    if lacking := next((path for path in found if not path.exists()), None):
        raise InputError(f"{step} would read {lacking}, which is not there: {needed} has to run first")
    return found
