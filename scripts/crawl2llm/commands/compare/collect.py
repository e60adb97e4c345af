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
from crawl2llm.formats.run_records import benchmark
from crawl2llm.stages.report import state
from crawl2llm.stages.report.render import complete

FORMAT = 2
Row = dict[str, Any]


def record(results: Path, configfiles: Sequence[str] = ()) -> Row:
    """The record of a variant's results; with the run's config those that it shares with other variants are found exactly.

    Raises InputError where nothing is there.
    """
    whole = complete(configfiles, "main")
    own = complete(configfiles, results.absolute().name)
    found = state.look(results.absolute(), own, whole)
    if not found.run.manifests:
        raise InputError(f"{results}: no step has finished there, so there is nothing to record")
    made = found.run.manifests
    shards = max((len(own) for step, own in made.items() if steps.STEPS[step].per == "shard"), default=0)
    wanted = {row["step"]: row["expected"] for row in found.missing}

    def of(step: str) -> int:
        """The tasks that a step has when it is complete; without a config a step by shard has as many as the one with the most."""
        there = len(made[step])
        return wanted.get(step) or (shards if own is None and steps.STEPS[step].per == "shard" else there)

    return {
        "format": FORMAT,
        "variant": results.absolute().name,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "crawl2llm": version("crawl2llm"),
        "config": own,
        "steps": {step: {**of_step(each), "of": of(step)} for step, each in sorted(made.items(), key=_order)},
        "missing": [row["step"] for row in found.missing],
        # Steps that do not go together with the others: made from an earlier input, or by other settings or code than today's config has.
        "outdated": found.outdated,
        "other_settings": found.other,
    }


def _order(entry: tuple[str, list[Manifest]]) -> int:
    return list(steps.STEPS).index(entry[0])


def of_step(made: list[Manifest]) -> Row:
    """A step: counts of all its tasks; sources and summary by task; versions and machines that any task had.

    `by`: settings and code by task, or once, by "", where one fingerprint holds for all.
    """
    per_model = steps.STEPS[made[0].step].per in steps.OWN
    once = not per_model and len({one.fingerprint for one in made}) == 1
    counts: Row = {"in": 0, "kept": 0, "dropped": {}}
    for one in made:
        if one.counts:
            add_counts(counts, one.counts)
    said = {_name(one): beside.read(one.path) if one.path else {} for one in made}
    found = {
        "tasks": len(made),
        "counts": counts,
        "seconds": seconds(made),
        "files": {_name(one): dict(one.files) for one in made},
        "sources": {_name(one): one.sources for one in made if one.sources},
        "summary": {_name(one): one.summary for one in made},
        "versions": _values(each.pop("versions", {}) for each in said.values()),
        "machine": _values(
            {**each.pop("machine", {}), **({"device": each.pop("device")} if "device" in each else {})}
            for each in said.values()
        ),
    }
    by = {"" if once else _name(one): of_task(one, said[_name(one)]) for one in (made[:1] if once else made)}
    return {**found, "by": by}


def _name(made: Manifest) -> str:
    return task_of(made.path) if made.path else ""


def _values(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """By key the values that any row has, in order."""
    found: dict[str, set[Any]] = {}
    for row in rows:
        for key, value in row.items():
            found.setdefault(key, set()).add(value)
    return {key: sorted(values) for key, values in sorted(found.items())}


def of_task(made: Manifest, said: Row) -> Row:
    """What decided a result, and what else its step noted. said: the record beside its manifest, without versions and machine."""
    whole = said.pop("fingerprint", {})
    return {
        "fingerprint": made.fingerprint,
        "config": whole.get("config", {}),
        "code": whole.get("code", {}),
        "inputs": {"files": whole.get("files", {})},
        **said,
    }


def seconds(made: list[Manifest]) -> float | None:
    """Of all tasks of a step; None where nothing was measured."""
    files = [task_costs.benchmark(one.path) for one in made if one.path]
    rows = [row for path in task_costs.counting(list(dict.fromkeys(files))) if path.exists() for row in benchmark(path)]
    return round(sum(row.get("s", 0.0) for row in rows), 2) if rows else None


def load(path: Path, configfiles: Sequence[str] = ()) -> Row:
    """A record: of a file that `crawl2llm record` wrote, or of a folder of results. Raises InputError for another."""
    if path.is_dir():
        return record(path, configfiles)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: neither a folder of results nor a record: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(
            f"{path}: no record of format {FORMAT}; `crawl2llm record results/main --out run.json` writes one"
        )
    return found
