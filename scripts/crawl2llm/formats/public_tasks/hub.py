"""The rows of public tasks copied from the Hugging Face hub: the data set and configuration that a task's definition names."""

from __future__ import annotations

from typing import Any

import yaml

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import json_lines
from crawl2llm.formats.public_tasks.presets import Preset, definition_parts, definitions_folder


def hub_dataset(preset: Preset, part: str) -> tuple[str, str | None]:
    """(name on the hub, configuration) of a definition, by its YAML file and those that it includes."""
    path, definition = definitions_folder() / preset.definition.format(part), dict[str, Any]()
    while path:
        # Its !function tags are not needed here, and not run.
        text = path.read_text(encoding="utf-8").replace("!function ", "")
        section = yaml.safe_load(text)
        definition = {**section, **definition}
        path = path.parent / section["include"] if "include" in section else None  # type: ignore[assignment]
    return str(definition["dataset_path"]), definition.get("dataset_name")


def copy_rows(name: str, preset: Preset) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """(name to show, JSON Lines) of the items and of the examples, as `Given.files_named`. No code of a data set runs: `datasets` has none
    of it.

    Raises InputError if the hub cannot be reached or has no such data.
    """
    import datasets

    datasets.disable_progress_bars()
    items, shots = list[tuple[str, bytes]](), list[tuple[str, bytes]]()
    for part in definition_parts(preset)[: 1 if preset.configs else None]:
        path, config = hub_dataset(preset, part)
        for split, out in zip(preset.hub, (items, shots), strict=True):
            if not split:
                continue
            try:
                rows = datasets.load_dataset(path, preset.configs[0] if preset.configs else config, split=split)
            except (OSError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"evaluate.public.presets: {name}: {path} cannot be copied from the hub: {error}"
                ) from error
            log.info("%s: %s rows of %s, %s", name, f"{len(rows):,}", path, split)
            text = json_lines(rows)
            out.append((f"{path} {split}", text.encode()))
    return items, shots
