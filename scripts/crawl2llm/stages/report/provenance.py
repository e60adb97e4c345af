"""What the results were made on and by: machines, versions, steps, and what a person accepted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crawl2llm.core import record
from crawl2llm.core.console import singular_or_plural
from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.stages.report.page import format_integer


def record_values(facts: dict[str, Any]) -> dict[str, str]:
    """What a record beside a manifest says of machine, devices and versions, as name → value."""
    values = {name: str(value) for name, value in (nested_value(facts, "machine") or {}).items() if name != "host"}
    if isinstance(devices := facts.get("devices"), dict):
        names = ", ".join(f"{count} × {name}" for name, count in devices.items())
        nodes = facts.get("nodes")
        values["devices"] = f"{names}; {format_integer(nodes)} {singular_or_plural(nodes, 'node')}"
    return values | {name: str(value) for name, value in (nested_value(facts, "versions") or {}).items()}


def machine_rows(run: Run) -> list[dict[str, str]]:
    """What the steps ran on, from the records beside their manifests: `name`, `value`, `steps` where they differ."""
    steps_by_value: dict[str, dict[str, list[str]]] = {}
    for step, manifests in run.manifests.items():
        for manifest in manifests:
            for name, value in record_values(record.read(manifest.path)).items() if manifest.path else ():
                step_names = steps_by_value.setdefault(name, {}).setdefault(value, [])
                if step not in step_names:
                    step_names.append(step)
    return [
        {"name": name, "value": value, "steps": ", ".join(of) if len(values) > 1 or name == "devices" else ""}
        for name, values in steps_by_value.items()
        for value, of in values.items()
    ]


def accepted_changes(run: Run) -> list[dict[str, Any]]:
    """What a person accepted as made by later settings or code: `step`, `tasks`, `changes`, `reason`, `when` (commands/accept.py)."""
    task_counts: dict[tuple[str, str, str, str], int] = {}
    for step, manifests in run.manifests.items():
        for manifest in manifests:
            for entry in record.accepted_entries(manifest.path, manifest.fingerprint) if manifest.path else ():
                key = (step, "; ".join(entry["changes"]), entry["reason"], entry["when"])
                task_counts[key] = task_counts.get(key, 0) + 1
    return [
        {"step": step, "tasks": number, "changes": changes, "reason": reason, "when": when}
        for (step, changes, reason, when), number in task_counts.items()
    ]


def step_rows(run: Run, page: Path) -> list[dict[str, Any]]:
    """Every step's tasks, files, size, fingerprint, and its folder relative to the page."""
    rows = []
    for step, manifests in run.manifests.items():
        facts = [fact for manifest in manifests for fact in manifest.files.values()]
        rows.append(
            {
                "step": step,
                "tasks": len(manifests),
                "files": len(facts),
                "bytes": sum(fact["bytes"] for fact in facts),
                "fingerprint": manifests[0].fingerprint,
                "link": Path(os.path.relpath(manifests[0].folder, page.parent)).as_posix() + "/",
            }
        )
    return rows
