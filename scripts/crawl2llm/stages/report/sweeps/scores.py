"""What models scored on the common held-out text, as matrices over the documents that all of them scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.stages.report.sweeps.differences import Measure
from crawl2llm.stages.report.sweeps.resample import Floats

BITS = "bits_per_byte"  # the main measure
BY_SOURCE = "bits_per_byte "  # before a source's name
TASK = "task "  # before a task's name
ANSWERS = "right answers "  # before a task's name: bits for each byte of its right answers
Row = dict[str, Any]
Groups = tuple[tuple[int, ...], ...]


def check_same_text(manifests: Mapping[str, Manifest]) -> None:
    """Raises ManifestError unless all variants' models were evaluated on one set of documents (`set` in the summaries)."""
    sets: dict[str, list[str]] = {}
    for variant, manifest in manifests.items():
        sets.setdefault(str(manifest.summary["set"]), []).append(variant)
    if len(sets) > 1:
        sets_text = "; ".join(f"{', '.join(names)}: {mark}" for mark, names in sets.items())
        raise ManifestError(f"evaluate.common scored other documents in some variants ({sets_text}): run them again")


def text_measures(manifests: Mapping[str, Manifest], model: str, groups: Groups) -> list[Measure]:
    """Bits per byte on all documents, then on those of each source if there are several; lower is better."""
    rows = {variant: manifest.rows(f"{model}.heldout.jsonl") for variant, manifest in manifests.items()}
    documents: dict[str, Row] = {row["document"]: row for row in next(iter(rows.values())) if row["bytes"]}
    names = list(documents)
    if not names:
        return []
    bits = _score_matrix(
        (
            {row["document"]: row["nats"] / math.log(2) for row in variant_rows if row["bytes"]}
            for variant_rows in rows.values()
        ),
        names,
        manifests,
    )
    sizes = np.array([float(documents[name]["bytes"]) for name in names])
    out = [Measure(BITS, bits, sizes, groups, True)]
    by_source: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        by_source.setdefault(str(documents[name]["source"]), []).append(place)
    if len(by_source) > 1:
        for source in sorted(by_source):
            source_places = by_source[source]
            out.append(Measure(f"{BY_SOURCE}{source}", bits[:, source_places], sizes[source_places], groups, True))
    return out


def task_measures(manifests: Mapping[str, Manifest], model: str, groups: Groups) -> list[Measure]:
    """Of each task the centered score: 0 is chance, 1 is all right, higher is better; then of each task the bits for each byte of the right
    answer, lower is better. Items of a document belong together.

    manifests: of evaluate.common, or of evaluate.public. Results of an earlier version have no bits.
    """
    first = next(iter(manifests.values()))
    if f"{model}.items.jsonl" not in first.files:
        return []
    scores, bits = list[Measure](), list[Measure]()
    rows = {variant: manifest.rows(f"{model}.items.jsonl") for variant, manifest in manifests.items()}
    for task, facts in first.summary.get("tasks", {}).items():
        # An item that is longer than a model's context in its tokens was not asked there.
        rows_by_id = [{row["id"]: row for row in items_by_id if row["task"] == task} for items_by_id in rows.values()]
        common = [name for name in rows_by_id[0] if all(name in rows for rows in rows_by_id)]
        if not common:
            continue
        documents = list(dict.fromkeys(str(rows_by_id[0][name]["document"]) for name in common))
        place = {name: number for number, name in enumerate(documents)}

        def sums(
            key: str,
            rows_by_id: list[dict[str, Row]] = rows_by_id,
            common: list[str] = common,
            place: dict[str, int] = place,
        ) -> Floats:
            """[variants, documents] of what the items of each document sum up to."""
            out = np.zeros((len(rows_by_id), len(place)))
            for name in common:
                out[:, place[str(rows_by_id[0][name]["document"])]] += [float(rows[name][key]) for rows in rows_by_id]
            return out

        items = np.zeros(len(documents))
        for name in common:
            items[place[str(rows_by_id[0][name]["document"])]] += 1
        chance = float(facts["chance"])
        scores.append(Measure(f"{TASK}{task}", (sums("right") - chance * items) / (1 - chance), items, groups, False))
        if all(BITS in rows[name] for rows in rows_by_id for name in common):
            bits.append(Measure(f"{ANSWERS}{task}", sums(BITS), items, groups, True))
    return [*scores, *bits]


def _score_matrix(
    columns: Iterable[Mapping[str, float]], names: list[str], manifests: Mapping[str, Manifest]
) -> Floats:
    """[variants, documents]. Raises ManifestError for a variant with other documents."""
    out = []
    for variant, values in zip(manifests, columns, strict=True):
        if values.keys() != set(names):
            raise ManifestError(
                f"evaluate.common scored other documents in {variant} than in {next(iter(manifests))}: run it again"
            )
        out.append([values[name] for name in names])
    return np.array(out, dtype=np.float64)
