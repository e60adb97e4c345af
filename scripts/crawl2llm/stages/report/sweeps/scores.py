"""What models scored on the common held-out text, as matrices over the documents that all of them scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.stages.report.sweeps.differences import Measured
from crawl2llm.stages.report.sweeps.resample import Floats

BITS = "bits_per_byte"  # the main measure
BY_SOURCE = "bits_per_byte "  # before a source's name
TASK = "task "  # before a task's name
Row = dict[str, Any]
Groups = tuple[tuple[int, ...], ...]


def same_text(found: Mapping[str, Manifest]) -> None:
    """Raises ManifestError unless all variants' models were evaluated on one set of documents (`set` in the summaries)."""
    sets: dict[str, list[str]] = {}
    for variant, made in found.items():
        sets.setdefault(str(made.summary["set"]), []).append(variant)
    if len(sets) > 1:
        said = "; ".join(f"{', '.join(names)}: {mark}" for mark, names in sets.items())
        raise ManifestError(f"evaluate.common scored other documents in some variants ({said}): run them again")


def on_text(found: Mapping[str, Manifest], model: str, groups: Groups) -> list[Measured]:
    """Bits per byte on all documents, then on those of each source where there are several; lower is better."""
    rows = {variant: made.rows(f"{model}.heldout.jsonl") for variant, made in found.items()}
    documents: dict[str, Row] = {row["document"]: row for row in next(iter(rows.values())) if row["bytes"]}
    names = list(documents)
    if not names:
        return []
    bits = _matrix(
        ({row["document"]: row["nats"] / math.log(2) for row in of if row["bytes"]} for of in rows.values()),
        names,
        found,
    )
    sizes = np.array([float(documents[name]["bytes"]) for name in names])
    out = [Measured(BITS, bits, sizes, groups, True)]
    by_source: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        by_source.setdefault(str(documents[name]["source"]), []).append(place)
    if len(by_source) > 1:
        for source in sorted(by_source):
            own = by_source[source]
            out.append(Measured(f"{BY_SOURCE}{source}", bits[:, own], sizes[own], groups, True))
    return out


def on_tasks(found: Mapping[str, Manifest], model: str, groups: Groups) -> list[Measured]:
    """The centered score of each task: 0 is chance, 1 is all right; items of a document belong together. Higher is better."""
    first = next(iter(found.values()))
    if f"{model}.items.jsonl" not in first.files:
        return []
    out = []
    rows = {variant: made.rows(f"{model}.items.jsonl") for variant, made in found.items()}
    for task, facts in first.summary.get("tasks", {}).items():
        # An item that is longer than a model's context in its tokens was not asked there.
        asked = [{row["id"]: row for row in own if row["task"] == task} for own in rows.values()]
        common = [name for name in asked[0] if all(name in own for own in asked)]
        if not common:
            continue
        documents = list(dict.fromkeys(str(asked[0][name]["document"]) for name in common))
        place = {name: number for number, name in enumerate(documents)}
        right, items = np.zeros((len(asked), len(documents))), np.zeros(len(documents))
        for name in common:
            at = place[str(asked[0][name]["document"])]
            items[at] += 1
            right[:, at] += [float(own[name]["right"]) for own in asked]
        chance = float(facts["chance"])
        out.append(Measured(f"{TASK}{task}", (right - chance * items) / (1 - chance), items, groups, False))
    return out


def _matrix(columns: Iterable[Mapping[str, float]], names: list[str], found: Mapping[str, Manifest]) -> Floats:
    """[variants, documents]. Raises ManifestError for a variant with other documents."""
    out = []
    for variant, values in zip(found, columns, strict=True):
        if values.keys() != set(names):
            raise ManifestError(
                f"evaluate.common scored other documents in {variant} than in {next(iter(found))}: run it again"
            )
        out.append([values[name] for name in names])
    return np.array(out, dtype=np.float64)
