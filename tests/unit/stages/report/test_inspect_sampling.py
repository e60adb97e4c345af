"""The choice of documents to judge: the same for any shards, each with the probability that is said, the nearest first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.filters.framework.rules import Limit
from crawl2llm.stages.report.inspect_sampling import DROPPED, EDITED, KEPT, DocumentSampler

THRESHOLD = 50.0
Document = tuple[str, float, bool]  # id, value, whether it is curated


def offered(chosen: DocumentSampler, shard: str, documents: list[Document]) -> None:
    """A shard of a filter with the rule `words_min`, which edits documents with an even value."""
    low = [value < THRESHOLD and not curated for _, value, curated in documents]
    verdicts = pa.table(
        {
            "id": pa.array([name for name, *_ in documents], pa.string()),
            "kept": pa.array([not out for out in low], pa.bool_()),
            "rule": pa.array(["words_min" if out else None for out in low], pa.string()),
            "value": pa.array([of[1] if out else None for of, out in zip(documents, low, strict=True)], pa.float64()),
            "threshold": pa.array([THRESHOLD if out else None for out in low], pa.float64()),
        }
    )
    value = np.array([value for _, value, _ in documents], float)
    even = [(name, "even") for name, value, _ in documents if not value % 2]
    spans = pa.table(
        {
            "id": pa.array([name for name, _ in even] * 2, pa.string()),
            "rule": pa.array(["even"] * 2 * len(even), pa.string()),
        }
    )
    limit = Limit("words_min", value, np.full(len(value), THRESHOLD), "<")
    chosen.add_shard(shard, verdicts, [limit], np.array([curated for *_, curated in documents], bool), spans)


def told(chosen: DocumentSampler) -> list[Any]:
    found = [(one.id, one.group, one.random, sorted(one.near.items())) for one in chosen.shown_documents()]
    return [sorted(chosen.population.items()), chosen.exempt, chosen.edited, sorted(found, key=str)]


documents = st.lists(
    st.tuples(st.uuids().map(lambda one: one.hex), st.integers(0, 120).map(float), st.booleans()),
    unique_by=lambda each: each[0], max_size=60,
)  # fmt: skip


@given(documents, st.data())
def test_the_same_for_any_shards_in_any_order(every: list[Document], data: st.DataObject) -> None:
    one, other = DocumentSampler("heuristics", 3, 0), DocumentSampler("heuristics", 3, 0)
    offered(one, "00000", every)
    parts: dict[int, list[Document]] = {}
    for each in data.draw(st.permutations(every)):
        parts.setdefault(data.draw(st.integers(0, 4)), []).append(each)
    for shard, part in parts.items():
        offered(other, f"{shard:05d}", part)
    if every:
        assert told(one) == told(other)


@given(documents)
def test_near_documents_are_the_nearest_on_their_side(every: list[Document]) -> None:
    chosen = DocumentSampler("heuristics", 3, 0)
    offered(chosen, "00000", every)
    value = {name: number for name, number, _ in every}
    for kind, wanted in (
        (DROPPED, [number for _, number, curated in every if number < THRESHOLD and not curated]),
        (KEPT, [number for _, number, curated in every if 2 * THRESHOLD > number >= THRESHOLD and not curated]),
    ):
        near = [one for one in chosen.shown_documents() if one.group[0] == kind and one.near]
        near.sort(key=lambda one: one.near["words_min"][3])
        distances = [abs(value[one.id] - THRESHOLD) for one in near]
        group = chosen.population.get((KEPT, "") if kind == KEPT else (DROPPED, "words_min"), 0)
        most = min(3, math.ceil(group / 4))
        assert distances == sorted(abs(number - THRESHOLD) for number in wanted)[:most]
        assert all(
            one.near["words_min"][:3] == (value[one.id], THRESHOLD, abs(value[one.id] - THRESHOLD)) for one in near
        )


@given(documents)
def test_populations_count_every_document_once(every: list[Document]) -> None:
    chosen = DocumentSampler("heuristics", 3, 0)
    offered(chosen, "00000", every)
    judged = {group: number for group, number in chosen.population.items() if group[0] != EDITED}
    assert sum(judged.values()) + chosen.exempt == len(every)
    kept_even = [value for _, value, curated in every if not value % 2 and (curated or value >= THRESHOLD)]
    assert chosen.population.get((EDITED, "even"), 0) == chosen.edited == len(kept_even)


@settings(max_examples=8)
@given(st.integers(6, 25), st.integers(1, 5))
def test_each_document_is_in_the_random_sample_with_the_probability_that_is_said(number: int, size: int) -> None:
    """Over seeds: every document, and every pair as often as in a simple random sample."""
    every = [(f"{name:032x}", 10.0, False) for name in range(number)]
    seeds, hits, pairs = 600, np.zeros(number), 0
    for seed in range(seeds):
        chosen = DocumentSampler("heuristics", size, seed)
        offered(chosen, "00000", every)
        sample = {
            int(one.id, 16)
            for one in chosen.shown_documents()
            if one.group == (DROPPED, "words_min") and one.random is not None
        }
        assert len(sample) == min(size, number)
        hits[list(sample)] += 1
        pairs += {0, 1} <= sample
    said = chosen.sample_probability((DROPPED, "words_min"))
    assert said == min(1.0, size / number)
    assert np.all(np.abs(hits / seeds - said) < 5 * np.sqrt(said * (1 - said) / seeds) + 1e-9)
    both = size * (size - 1) / (number * (number - 1))
    assert abs(pairs / seeds - both) < 5 * np.sqrt(both * (1 - both) / seeds) + 1e-9


def test_seeds_and_filters_draw_apart() -> None:
    every = [(f"{name:032x}", 10.0, False) for name in range(500)]
    found = []
    for filter_, seed in (("heuristics", 0), ("heuristics", 1), ("lines", 0)):
        chosen = DocumentSampler(filter_, 20, seed)
        offered(chosen, "00000", every)
        found.append({one.id for one in chosen.shown_documents() if one.random is not None and one.group[0] == DROPPED})
    assert len(found[0] & found[1]) < 10 and len(found[0] & found[2]) < 10


def test_of_a_threshold_of_nothing_no_kept_document_is_near() -> None:
    chosen = DocumentSampler("heuristics", 5, 0)
    verdicts = pa.table({"id": ["a", "b"], "kept": [True, True]})
    verdicts = verdicts.append_column("rule", pa.nulls(2, pa.string()))
    for name in ("value", "threshold"):
        verdicts = verdicts.append_column(name, pa.nulls(2, pa.float64()))
    limit = Limit("curly_brackets_max", np.zeros(2), np.zeros(2), ">")
    chosen.add_shard("00000", verdicts, [limit], np.zeros(2, bool))
    assert [one.near for one in chosen.shown_documents()] == [{}, {}]


def test_the_near_documents_of_many_rules_are_a_quarter_of_what_is_kept() -> None:
    """Each document is nearest to some rule; those of the best rank under any rule stay."""
    chosen, number = DocumentSampler("heuristics", 10, 0), 40
    names = [f"{name:032x}" for name in range(number)]
    verdicts = pa.table({"id": names, "kept": [True] * number, "rule": pa.nulls(number, pa.string())})
    for name in ("value", "threshold"):
        verdicts = verdicts.append_column(name, pa.nulls(number, pa.float64()))
    far = [np.roll(np.arange(number) + 51.0, 10 * rule) for rule in range(4)]
    limits = [Limit(f"rule_{at}", value, np.full(number, 50.0), "<") for at, value in enumerate(far)]
    chosen.add_shard("00000", verdicts, limits, np.zeros(number, bool))
    near = [one for one in chosen.shown_documents() if one.near]
    assert len(near) == 10 and max(min(place for *_, place in one.near.values()) for one in near) == 2
    assert sum(1 for one in near if 0 in [place for *_, place in one.near.values()]) == 4
    random = [one for one in chosen.shown_documents() if one.random is not None]
    assert len(random) == number, "the random sample has the rest"
