"""Stage public tasks: find their rows in local files or copy them from the hub, check them, and choose the items that are asked.

Writes `<task>.jsonl`, a line for each item (id, the part of a task of parts, the row), and `<task>.shots.jsonl`, the rows that examples
come from. Everything that may be wrong with the data is said here, which needs no model. The evaluation itself reads these files alone.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json, json_lines, write_atomically
from crawl2llm.core.phrases import and_more
from crawl2llm.core.settings import setting
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.formats.public_tasks import core, hub, presets
from crawl2llm.formats.public_tasks.presets import PRESETS, Preset
from crawl2llm.formats.public_tasks.rows import CORE, row_ids, rows_in_layout, usable_files
from crawl2llm.formats.public_tasks.task_files import KEY, Row, TaskFiles, check_row, numbered_rows
from crawl2llm.stages.evaluate.sandbox import check_sandbox
from crawl2llm.stages.evaluate.settings import StageSettings


class Task(StageSettings):
    """What the program is given: which tasks evaluate.public asks, and where their files are."""

    presets: list[str] = setting()
    data: list[str] = setting()
    hub: bool = setting()
    limit: int | None = setting()
    seed: int = setting()


def choose_places(names: list[str], limit: int | None, seed: int) -> list[int]:
    """The places of at most `limit` ids, those with the lowest hash of (seed, id), in the order of the rows."""
    if limit is None or limit >= len(names):
        return list(range(len(names)))
    ranks = ((uniform_hash(seed, name, "evaluate.public"), place) for place, name in enumerate(names))
    return sorted(place for _, place in heapq.nsmallest(limit, ranks))


def part_of(preset: Preset, row: Row, allowed: set[str], file_name: str) -> str:
    """What stands for `{}` in the definition. Raises InputError for what the harness has no definition of."""
    part = str(row[preset.part]).strip().replace(" ", "_") if preset.part else ""
    if part not in allowed:
        examples = ", ".join(sorted(allowed)[:3])
        raise InputError(
            f"{file_name}: column {preset.part!r} holds {part!r}, of which the harness has no task; it has {examples}, …"
        )
    return part


def stage_preset(name: str, task_data: TaskFiles, settings: Task, folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """(what was staged of a preset, its files)."""
    preset = PRESETS[name]
    files, shots = task_data.files_named(presets.item_file_names(preset)), task_data.files_named(preset.shot_files)
    files = files if preset.in_several_files else usable_files(files, preset)
    if not files and settings.hub:
        files, shots = hub.copy_rows(name, preset)
    if not files or (preset.shots and not shots):
        item_files = presets.item_file_names(preset)[:4]
        missing_files, kind = (item_files, "items") if not files else (preset.shot_files, "examples")
        raise InputError(
            f"evaluate.public.presets has {name!r}, and {KEY} {settings.data} has no file of its {kind}: "
            f"{' or '.join(f'{base_name}.jsonl' for base_name in missing_files)} (also .zst, .gz, in folders and tar archives); give it, "
            "or set evaluate.public.hub, with a network"
        )
    rows, allowed = rows_in_layout(files, preset), set(presets.definition_parts(preset))
    if preset.in_several_files:  # the same rows may be in a file of all and in those of the parts
        rows = list({canonical_json(row): row for row in rows}.values())
    where = and_more((file_name for file_name, _ in files), 3)
    keys = row_ids(name, rows)
    chosen_places = choose_places(keys, settings.limit, settings.seed)
    items = [
        {"id": keys[at], "part": part_of(preset, rows[at], allowed, where), "row": rows[at]} for at in chosen_places
    ]
    out = [write_rows(folder / f"{name}.jsonl", items)]
    if preset.shots:
        shot_rows = rows_in_layout(usable_files(shots, preset), preset)
        examples = [{"part": part_of(preset, row, allowed, shots[0][0]), "row": row} for row in shot_rows]
        shots_by_part = Counter(example["part"] for example in examples)
        for part in dict.fromkeys(item["part"] for item in items):
            if shots_by_part[part] < preset.shots:
                with_part = f" with {preset.part} {part!r}" if part else ""
                raise InputError(
                    f"{shots[0][0]}: {shots_by_part[part]} rows{with_part}; {name} has {preset.shots} examples before each item, so it "
                    f"must have {preset.shots} or more"
                )
        out.append(write_rows(folder / f"{name}.shots.jsonl", examples))
    return {"from": where, "rows": len(rows), "items": len(chosen_places), "shots": preset.shots}, out


def stage_core(task_data: TaskFiles, settings: Task, folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """(what was staged of CORE's tasks and `missing`, those without data; their files)."""
    staged_core: dict[str, Any] = {"tasks": {}, "missing": []}
    out = []
    for name, task in core.TASKS.items():
        columns = core.COLUMNS[task.kind]
        files = [
            file
            for file in task_data.files_named(core.file_names(name))
            if (first := next(numbered_rows(*file), None)) and columns.keys() <= first[1].keys()
        ]
        if not files:
            staged_core["missing"].append(name)
            continue
        file_name, rows = files[0][0], list[Row]()
        for number, row in numbered_rows(*files[0]):
            check_row(file_name, number, row, columns)
            rows.append({key: row[key] for key in columns})
        keys = row_ids(f"{CORE}.{name}", rows)
        chosen_places = choose_places(keys, settings.limit, settings.seed)
        texts, equal_places = [canonical_json(row) for row in rows], dict[str, list[int]]()
        for at, text in enumerate(texts):
            equal_places.setdefault(text, []).append(at)
        contexts = [
            core.few_shot_prompt(task, rows, equal_places[texts[at]], f"{settings.seed} {keys[at]}")
            for at in chosen_places
        ]
        items = [
            {"id": keys[at], "before": text, "row": rows[at]} for at, text in zip(chosen_places, contexts, strict=True)
        ]
        out.append(write_rows(folder / f"{CORE}.{name}.jsonl", items))
        staged_core["tasks"][name] = {
            "from": file_name,
            "rows": len(rows),
            "items": len(chosen_places),
            "shots": min(task.shots, len(rows) - 1),
        }
    if not out:
        raise InputError(
            f"evaluate.public.presets has {CORE!r}, and {KEY} {settings.data} has none of its files; they are those of llm-foundry's "
            f"local_data: {', '.join(f'{core.file_names(name)[0]}.jsonl' for name in list(core.TASKS)[:4])}, …"
        )
    return staged_core, out


def write_rows(path: Path, rows: list[Row]) -> Path:
    """Write rows as JSON Lines."""
    write_atomically(path, json_lines(rows))
    return path


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    preset_names = settings.presets
    check_sandbox(presets.code_presets(preset_names))  # as early as the data, and on a node
    task_presets = [PRESETS[name] for name in preset_names if name != CORE]
    file_names = [name for preset in task_presets for name in (*presets.item_file_names(preset), *preset.shot_files)]
    file_names += [file for name in core.TASKS for file in core.file_names(name)] if CORE in preset_names else []
    task_data = TaskFiles(settings.data, file_names)
    by_preset: dict[str, Any] = {}
    out: list[Path] = []
    for name in preset_names:
        summary_and_files = (
            stage_core(task_data, settings, args.manifest.parent)
            if name == CORE
            else stage_preset(name, task_data, settings, args.manifest.parent)
        )
        by_preset[name], files = summary_and_files
        out += files
    if missing := by_preset.get(CORE, {}).get("missing"):
        log.warning(
            "CORE: no data of %s: %d of %d tasks", ", ".join(missing), len(core.TASKS) - len(missing), len(core.TASKS)
        )
    task_summaries = [task_summary for name, task_summary in by_preset.items() if name != CORE] + list(
        by_preset.get(CORE, {}).get("tasks", {}).values()
    )
    rows = sum(summary["rows"] for summary in task_summaries)
    items = sum(summary["items"] for summary in task_summaries)
    log.info("%s items of %s rows", f"{items:,}", f"{rows:,}")
    manifest.counts = {"in": rows, "kept": items, "dropped": {"over_limit": rows - items} if rows > items else {}}
    manifest.summary = {"presets": by_preset}
    return out


main = Program("evaluate.stage", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
