"""A run's record: one JSON with what a variant's results were made from and by, and what came out.

Settings and code are those that each result was made with, from the record beside its manifest, not today's config. Seconds are those of
Snakemake's benchmark files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.core import record as beside
from crawl2llm.core import task_costs
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.documents import add_counts
from crawl2llm.formats.run_records import read_benchmark
from crawl2llm.stages.report import state
from crawl2llm.stages.report.render import complete_config

FORMAT = 2
Row = dict[str, Any]


def run_record(results: Path, configfiles: Sequence[str] = ()) -> Row:
    """The record of a variant's results; with the run's config those that it shares with other variants are found exactly.

    Raises InputError if nothing is there.
    """
    main_config = complete_config(configfiles, "main")
    config = complete_config(configfiles, results.absolute().name)
    state_of_results = state.read_state(results.absolute(), config, main_config)
    if not state_of_results.run.manifests:
        raise InputError(f"{results}: no step has finished there, so there is nothing to record")
    manifests = state_of_results.run.manifests
    shards = max(
        (len(step_manifests) for step, step_manifests in manifests.items() if steps.STEPS[step].per == "shard"),
        default=0,
    )
    expected_tasks = {row["step"]: row["expected"] for row in state_of_results.missing}

    def task_count(step: str) -> int:
        """The tasks that a step has when it is complete; without a config a step by shard has as many as the one with the most."""
        present = len(manifests[step])
        return expected_tasks.get(step) or (shards if config is None and steps.STEPS[step].per == "shard" else present)

    return {
        "format": FORMAT,
        "variant": results.absolute().name,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "crawl2llm": version("crawl2llm"),
        "config": config,
        "steps": {
            step: {**step_record(each), "of": task_count(step)}
            for step, each in sorted(manifests.items(), key=_step_order)
        },
        "missing": [row["step"] for row in state_of_results.missing],
        # Steps that do not go together with the others: made from an earlier input, or by other settings or code than today's config has.
        "outdated": state_of_results.outdated,
        "other_settings": state_of_results.other,
    }


def _step_order(entry: tuple[str, list[Manifest]]) -> int:
    return list(steps.STEPS).index(entry[0])


def step_record(manifests: list[Manifest]) -> Row:
    """A step: counts of all its tasks; sources and summary by task; versions and machines that any task had.

    `by`: settings and code by task, or once, by "", if one fingerprint holds for all.
    """
    per_model = steps.STEPS[manifests[0].step].per in steps.WITH_OWN_SETTINGS
    once = not per_model and len({manifest.fingerprint for manifest in manifests}) == 1
    counts: Row = {"in": 0, "kept": 0, "dropped": {}}
    for manifest in manifests:
        if manifest.counts:
            add_counts(counts, manifest.counts)
    records = {_task_name(manifest): beside.read(manifest.path) if manifest.path else {} for manifest in manifests}
    row = {
        "tasks": len(manifests),
        "counts": counts,
        "seconds": total_seconds(manifests),
        "files": {_task_name(manifest): dict(manifest.files) for manifest in manifests},
        "sources": {_task_name(manifest): manifest.sources for manifest in manifests if manifest.sources},
        "summary": {_task_name(manifest): manifest.summary for manifest in manifests},
        "versions": _values_by_key(each.pop("versions", {}) for each in records.values()),
        "machine": _values_by_key(
            {**each.pop("machine", {}), **({"device": each.pop("device")} if "device" in each else {})}
            for each in records.values()
        ),
    }
    by = {
        "" if once else _task_name(manifest): task_record(manifest, records[_task_name(manifest)])
        for manifest in (manifests[:1] if once else manifests)
    }
    return {**row, "by": by}


def _task_name(manifest: Manifest) -> str:
    return task_of(manifest.path) if manifest.path else ""


def _values_by_key(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """By key the values that any row has, in order."""
    distinct: dict[str, set[Any]] = {}
    for row in rows:
        for key, value in row.items():
            distinct.setdefault(key, set()).add(value)
    return {key: sorted(values) for key, values in sorted(distinct.items())}


def task_record(manifest: Manifest, record_fields: Row) -> Row:
    """What decided a result, and what else its step noted. record_fields: the record beside its manifest, without versions and machine."""
    fingerprint = record_fields.pop("fingerprint", {})
    return {
        "fingerprint": manifest.fingerprint,
        "config": fingerprint.get("config", {}),
        "code": fingerprint.get("code", {}),
        "inputs": {"files": fingerprint.get("files", {})},
        **record_fields,
    }


def total_seconds(manifests: list[Manifest]) -> float | None:
    """Of all tasks of a step; None if nothing was measured."""
    files = [task_costs.benchmark_path(manifest.path) for manifest in manifests if manifest.path]
    rows = [
        row
        for path in task_costs.work_benchmarks(list(dict.fromkeys(files)))
        if path.exists()
        for row in read_benchmark(path)
    ]
    return round(sum(row.get("s", 0.0) for row in rows), 2) if rows else None


def load_record(path: Path, configfiles: Sequence[str] = ()) -> Row:
    """A record: of a file that `crawl2llm record` wrote, or of a folder of results. Raises InputError for another."""
    if path.is_dir():
        return run_record(path, configfiles)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: neither a folder of results nor a record: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(
            f"{path}: no record of format {FORMAT}; `crawl2llm record results/main --out run.json` writes one"
        )
    return content
