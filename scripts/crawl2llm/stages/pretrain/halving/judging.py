"""Which settings go on after a rung of successive halving: a function of the losses alone, the same whenever and wherever it is asked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import Manifest

MAIN = "main"
FATES_FILE = "halving.json"  # of pretrain.halve: who goes on after which rung
Losses = Mapping[str, float | None]  # bits per byte by contender; None where it was not finite


def step_of(share: float, steps: int) -> int:
    """The step of a rung: the first that has this share of all steps behind it."""
    return max(1, math.ceil(share * steps))


def rank_settings(losses: Losses, settings: Mapping[str, str], keep: float) -> list[dict[str, Any]]:
    """The settings of these contenders, the best first, as {setting, contenders, bits_per_byte, stays}.

    settings: contender → the setting that it is judged with. bits_per_byte: the mean over a setting's contenders, which differ in seeds
    alone; None if one of them has none, and then last. Equal ones are in the order of their names. The first ⌈keep × settings⌉ stay, and
    the setting of main, wherever it is.
    """
    together: dict[str, list[str]] = {}
    for name in sorted(losses):
        together.setdefault(settings[name], []).append(name)
    rows = []
    for setting, names in together.items():
        values = [value for name in names if (value := losses[name]) is not None and math.isfinite(value)]
        mean = math.fsum(values) / len(values) if len(values) == len(names) else None
        rows.append({"setting": setting, "contenders": names, "bits_per_byte": mean})
    rows.sort(key=lambda row: (row["bits_per_byte"] is None, row["bits_per_byte"] or 0.0, row["setting"]))
    number = math.ceil(keep * len(rows) - 1e-9)  # 0.2 × 15 is 3.0000000000000004
    return [
        {**row, "stays": place < max(1, number) or row["setting"] == settings.get(MAIN)}
        for place, row in enumerate(rows)
    ]


def staying_contenders(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """The contenders that go on."""
    return {name for row in rows if row["stays"] for name in row["contenders"]}


def stop_reason(rows: Sequence[Mapping[str, Any]], setting: str) -> str:
    """Why a setting stops, in words for a person."""
    place = next(number for number, row in enumerate(rows, 1) if row["setting"] == setting)
    row, last = rows[place - 1], [row for row in rows if row["stays"]]
    bits = f"{row['bits_per_byte']:.4f} bits per byte" if row["bits_per_byte"] is not None else "no finite loss"
    mean = f", the mean of {len(row['contenders'])} seeds" if len(row["contenders"]) > 1 else ""
    return f"{bits}{mean}, place {place} of {len(rows)} settings, of which {len(last)} went on"


def read_rungs(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """What tasks of pretrain.rung wrote, by their manifests."""
    rows = []
    for path in paths:
        manifest = Manifest.read(path)
        rows += [json.loads(manifest.file(name).read_text(encoding="utf-8")) for name in manifest.files]
    return rows


def loss_by_contender(rows: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """The losses of the contenders that got to a rung."""
    return {row["contender"]: row["bits_per_byte"] for row in rows if row["in"]}
