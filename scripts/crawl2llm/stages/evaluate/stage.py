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

from crawl2llm.chain import command_line
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical, json_lines, write_atomically
from crawl2llm.formats.documents import uniform
from crawl2llm.formats.public_tasks import core, hub, presets
from crawl2llm.formats.public_tasks.presets import PRESETS, Preset
from crawl2llm.formats.public_tasks.rows import CORE, ids, mapped, usable
from crawl2llm.formats.public_tasks.task_files import KEY, Given, Row, check, lines


def chosen(names: list[str], limit: int | None, seed: int) -> list[int]:
    """The places of at most `limit` ids, those with the lowest hash of (seed, id), in the order of the rows."""
    if limit is None or limit >= len(names):
        return list(range(len(names)))
    ranks = ((uniform(seed, name, "evaluate.public"), place) for place, name in enumerate(names))
    return sorted(place for _, place in heapq.nsmallest(limit, ranks))


def part_of(preset: Preset, row: Row, allowed: set[str], shown: str) -> str:
    """What stands for `{}` in the definition. Raises InputError for what the harness has no definition of."""
    part = str(row[preset.part]).strip().replace(" ", "_") if preset.part else ""
    if part not in allowed:
        some = ", ".join(sorted(allowed)[:3])
        raise InputError(
            f"{shown}: column {preset.part!r} holds {part!r}, of which the harness has no task; it has {some}, …"
        )
    return part


def of_preset(name: str, given: Given, settings: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """(what was staged of a preset, its files)."""
    preset = PRESETS[name]
    files, shots = given.named(presets.names(preset)), given.named(preset.shot_files)
    files = files if preset.every else usable(files, preset)
    if not files and settings["hub"]:
        files, shots = hub.copied(name, preset)
    if not files or (preset.shots and not shots):
        lacking, kind = (presets.names(preset)[:4], "items") if not files else (preset.shot_files, "examples")
        raise InputError(
            f"evaluate.public.presets has {name!r}, and {KEY} {settings['data']} has no file of its {kind}: "
            f"{' or '.join(f'{one}.jsonl' for one in lacking)} (also .zst, .gz, in folders and tar archives); give it, or set "
            "evaluate.public.hub, with a network"
        )
    rows, allowed = mapped(files, preset), set(presets.parts(preset))
    if preset.every:  # the same rows may be in a file of all and in those of the parts
        rows = list({canonical(row): row for row in rows}.values())
    where = ", ".join(shown for shown, _ in files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    keys = ids(name, rows)
    kept = chosen(keys, settings["limit"], settings["seed"])
    asked = [{"id": keys[at], "part": part_of(preset, rows[at], allowed, where), "row": rows[at]} for at in kept]
    out = [write(folder / f"{name}.jsonl", asked)]
    if preset.shots:
        before = mapped(usable(shots, preset), preset)
        examples = [{"part": part_of(preset, row, allowed, shots[0][0]), "row": row} for row in before]
        have = Counter(example["part"] for example in examples)
        for part in dict.fromkeys(item["part"] for item in asked):
            if have[part] < preset.shots:
                of = f" with {preset.part} {part!r}" if part else ""
                raise InputError(
                    f"{shots[0][0]}: {have[part]} rows{of}; {name} has {preset.shots} examples before each item, so it must have "
                    f"{preset.shots} or more"
                )
        out.append(write(folder / f"{name}.shots.jsonl", examples))
    return {"from": where, "rows": len(rows), "items": len(kept), "shots": preset.shots}, out


def of_core(given: Given, settings: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """(what was staged of CORE's tasks and `missing`, those without data; their files)."""
    found: dict[str, Any] = {"tasks": {}, "missing": []}
    out = []
    for name, task in core.TASKS.items():
        columns = core.COLUMNS[task.kind]
        files = [
            file
            for file in given.named(core.files(name))
            if (first := next(lines(*file), None)) and columns.keys() <= first[1].keys()
        ]
        if not files:
            found["missing"].append(name)
            continue
        shown, rows = files[0][0], list[Row]()
        for number, row in lines(*files[0]):
            check(shown, number, row, columns)
            rows.append({key: row[key] for key in columns})
        keys = ids(f"{CORE}.{name}", rows)
        kept = chosen(keys, settings["limit"], settings["seed"])
        texts, equal = [canonical(row) for row in rows], dict[str, list[int]]()
        for at, text in enumerate(texts):
            equal.setdefault(text, []).append(at)
        before = [core.examples(task, rows, equal[texts[at]], f"{settings['seed']} {keys[at]}") for at in kept]
        items = [{"id": keys[at], "before": text, "row": rows[at]} for at, text in zip(kept, before, strict=True)]
        out.append(write(folder / f"{CORE}.{name}.jsonl", items))
        found["tasks"][name] = {
            "from": shown,
            "rows": len(rows),
            "items": len(kept),
            "shots": min(task.shots, len(rows) - 1),
        }
    if not out:
        raise InputError(
            f"evaluate.public.presets has {CORE!r}, and {KEY} {settings['data']} has none of its files; they are those of llm-foundry's "
            f"local_data: {', '.join(f'{core.files(name)[0]}.jsonl' for name in list(core.TASKS)[:4])}, …"
        )
    return found, out


def write(path: Path, rows: list[Row]) -> Path:
    """Write rows as JSON Lines."""
    write_atomically(path, json_lines(rows))
    return path


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    wanted = settings["presets"]
    of = [PRESETS[name] for name in wanted if name != CORE]
    named = [name for preset in of for name in (*presets.names(preset), *preset.shot_files)]
    named += [file for name in core.TASKS for file in core.files(name)] if CORE in wanted else []
    given = Given(settings["data"], named)
    found: dict[str, Any] = {}
    out: list[Path] = []
    for name in wanted:
        made = (
            of_core(given, settings, args.manifest.parent)
            if name == CORE
            else of_preset(name, given, settings, args.manifest.parent)
        )
        found[name], files = made
        out += files
    if missing := found.get(CORE, {}).get("missing"):
        log.warning(
            "CORE: no data of %s: %d of %d tasks", ", ".join(missing), len(core.TASKS) - len(missing), len(core.TASKS)
        )
    staged = [one for name, one in found.items() if name != CORE] + list(found.get(CORE, {}).get("tasks", {}).values())
    rows, items = sum(one["rows"] for one in staged), sum(one["items"] for one in staged)
    log.info("%s items of %s rows", f"{items:,}", f"{rows:,}")
    manifest.counts = {"in": rows, "kept": items, "dropped": {"over_limit": rows - items} if rows > items else {}}
    manifest.summary = {"presets": found}
    return out


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("evaluate.stage", __doc__, "--config config.yaml --manifest /tmp/stage/manifest.json")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
