"""Which documents of a filter are shown to be judged: a random sample of every kind of verdict, and those nearest to a threshold.

The random sample of a group (dropped by a rule, kept, edited by a rule) are the documents with the smallest hashes of (seed, id): each
subset of that size is as likely as any other, so that each document is in it with the probability size / population (simple random
sampling without replacement: Cochran 1977, Sampling Techniques, chapter 2). Near documents are for finding faults; they say nothing of a
share. They are of each rule the nearest on both sides, in units of rank: a group has at most a quarter of its documents among them.
Neither depends on shards or their order. Documents that a filter keeps whatever it measures, curated ones and those of sources that skip
it, are not among the kept: that they are wanted was said by a person. Memory: a shard's columns, and the documents chosen.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.core.settings import Settings
from crawl2llm.filters.dedup.settings import SelectSettings
from crawl2llm.filters.framework.columns import Numbers
from crawl2llm.filters.framework.rules import Limit
from crawl2llm.formats.document_numbers import shards_and_rows
from crawl2llm.formats.documents import batches, open_parquet, parquet_file, uniform_hash
from crawl2llm.formats.run_records import Run, table_of
from crawl2llm.stages.report.limits import Shard, filter_limits

SALT = "report.inspect"
KEPT, DROPPED, EDITED = "kept", "dropped", "edited"
NO_RULE = ""  # of what a filter keeps
# Of a group: no more of its documents are near, so that the near ones are few where few documents are there.
NEAR_SHARE = 0.25
KEPT_SAMPLES = 5  # times the sample of a rule: what is wrongly kept is rare among the many that are kept
PAIRS = 100_000  # of dedup, held at most
CONSTANT_VALUE_RULES = {("dedup", "exact")}  # rules whose value is always their threshold
Group = tuple[str, str]  # verdict, rule
VERDICT = ["id", "kept", "rule", "value", "threshold", "detail", "rules", "duplicate_of", "similarity"]


@dataclass
class ShownDocument:
    """A document to show. near: for each rule whose threshold it is near: value, threshold, distance and place among the nearest.

    random: its place in the random sample, from 0; None if it is not in it. other: of a pair of dedup that both stay, the other one.
    """

    id: str
    shard: str
    group: Group
    random: int | None = None
    near: dict[str, tuple[float, float, float, int]] = field(default_factory=dict)
    other: str | None = None


class SmallestByGroup:
    """The `size` items of each group with the smallest keys."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.by_group: dict[Any, list[tuple[Any, ...]]] = {}

    def add(self, group: Any, items: Iterable[tuple[Any, ...]]) -> None:
        """Offer items; an item is its key, and what comes after it."""
        self.by_group[group] = heapq.nsmallest(self.size, [*self.by_group.get(group, ()), *items])


def smallest_rows(size: int, key: Numbers, tie_key: Numbers, among: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of the rows `among` the `size` with the smallest keys, of equal keys those with the smallest `tie_key`."""
    if len(among) > size > 0:
        largest_key = np.partition(key[among], size - 1)[size - 1]
        among = among[key[among] <= largest_key]
    return among[np.lexsort((tie_key[among], key[among]))][:size]


class DocumentSampler:
    """Chooses among the documents of one filter, shard by shard. population: how many documents each group has."""

    def __init__(self, filter_: str, size: int, seed: int) -> None:
        self.filter, self.size, self.seed = filter_, size, seed
        self.population: dict[Group, int] = {}
        self.exempt = 0  # documents that are kept whatever is measured
        self.edited = 0  # documents that are kept and edited, by whatever rules
        self.random: dict[str, SmallestByGroup] = {
            KEPT: SmallestByGroup(size * KEPT_SAMPLES), DROPPED: SmallestByGroup(size), EDITED: SmallestByGroup(size)
        }  # fmt: skip
        self.near = SmallestByGroup(size)
        self.partners: dict[str, str] = {}
        self.salt = f"{SALT} {filter_}"

    def add_shard(
        self,
        shard: str,
        verdicts: pa.Table,
        limits: Iterable[Limit],
        exempt: npt.NDArray[np.bool_],
        spans: pa.Table | None = None,
    ) -> None:
        """Offer a shard. verdicts: `id, kept, rule, value, threshold`; limits, exempt: (documents,), in their order; spans: `id, rule` of
        what is edited.
        """
        names = verdicts["id"].to_pylist()
        chance = np.array([uniform_hash(self.seed, name, self.salt) for name in names], float)
        kept = np.asarray(verdicts["kept"].combine_chunks().to_numpy(zero_copy_only=False), bool)

        def add_random(group: Group, rows: npt.NDArray[np.int64]) -> None:
            self.population[group] = self.population.get(group, 0) + len(rows)
            smallest = self.random[group[0]]
            smallest.add(
                group, ((chance[row], names[row], shard) for row in smallest_rows(smallest.size, chance, chance, rows))
            )

        def add_nearest(
            group: Group, rule: str, value: Numbers, threshold: Numbers, rows: npt.NDArray[np.int64]
        ) -> None:
            distance = np.abs(value - threshold)
            self.near.add(
                (group, rule),
                (
                    (float(distance[row]), chance[row], names[row], shard, float(value[row]), float(threshold[row]))
                    for row in smallest_rows(self.size, distance, chance, rows[np.isfinite(distance[rows])])
                ),
            )

        add_random((KEPT, NO_RULE), np.flatnonzero(kept & ~exempt))
        self.exempt += int((kept & exempt).sum())
        value, threshold = (
            pc.fill_null(verdicts[name].combine_chunks().cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
            for name in ("value", "threshold")
        )
        rules = np.array(verdicts["rule"].to_pylist(), dtype=object)
        for rule in sorted(set(rules[~kept]), key=str):
            rows = np.flatnonzero(~kept & (rules == rule))
            add_random((DROPPED, str(rule)), rows)
            if (self.filter, rule) not in CONSTANT_VALUE_RULES:
                add_nearest((DROPPED, str(rule)), str(rule), value, threshold, rows)
        for limit in limits:
            # A value is near if it is closer to the threshold than the threshold is to 0: no value is near a threshold of 0.
            close = np.abs(limit.value - limit.threshold) < np.abs(limit.threshold)
            rows = np.flatnonzero(kept & ~exempt & close & limit.passing_documents())
            add_nearest((KEPT, NO_RULE), limit.rule, limit.value, limit.threshold, rows)
        if spans is not None and len(spans):
            places = dict(zip(names, range(len(names)), strict=True))
            pairs = spans.group_by(["id", "rule"]).aggregate([]).to_pydict()
            places_by_rule: dict[str, list[int]] = {}
            for name, rule in zip(pairs["id"], pairs["rule"], strict=True):
                if name in places and kept[places[name]]:
                    places_by_rule.setdefault(rule or "", []).append(places[name])
            self.edited += len({place for rule_places in places_by_rule.values() for place in rule_places})
            for rule, edited_places in places_by_rule.items():
                add_random((EDITED, rule), np.array(sorted(edited_places), np.int64))

    def add_pair(self, similarity: float, threshold: float, name: str, shard: str, other: str) -> None:
        """Offer a kept document of dedup that is nearly a duplicate of another."""
        self.partners[name] = other
        chance = uniform_hash(self.seed, name, self.salt)
        self.near.add(((KEPT, NO_RULE), "near"), [(threshold - similarity, chance, name, shard, similarity, threshold)])

    def shown_documents(self) -> list[ShownDocument]:
        """The documents chosen: near ones by rule and distance, then those of the random samples alone."""
        documents: dict[tuple[Group, str], ShownDocument] = {}
        for (group, rule), items in self.near.by_group.items():
            for place, (distance, _, name, shard, value, threshold) in enumerate(items):
                document = documents.setdefault(
                    (group, name), ShownDocument(name, shard, group, other=self.partners.get(name))
                )
                document.near[rule] = (value, threshold, distance, place)
        self._limit_near(documents.values())
        for samples in self.random.values():
            for group, items in sorted(samples.by_group.items()):
                for place, (_, name, shard) in enumerate(items):
                    documents.setdefault((group, name), ShownDocument(name, shard, group)).random = place
        return [document for document in documents.values() if document.near or document.random is not None]

    def _limit_near(self, documents: Iterable[ShownDocument]) -> None:
        """Of each group only NEAR_SHARE of its documents stay near: those of the best rank under any rule."""
        groups: dict[Group, list[ShownDocument]] = {}
        for document in documents:
            groups.setdefault(document.group, []).append(document)
        for group, group_documents in groups.items():
            group_documents.sort(
                key=lambda document: (
                    min(place for *_, place in document.near.values()),
                    uniform_hash(self.seed, document.id, self.salt),
                )
            )
            for document in group_documents[math.ceil(NEAR_SHARE * self.population.get(group, 0)) :]:
                document.near.clear()

    def sample_probability(self, group: Group) -> float:
        """That a document of a group is in its random sample."""
        number = self.population.get(group, 0)
        return min(1.0, self.random[group[0]].size / number) if number else 0.0


def shards_of(run: Run, step: str) -> list[str]:
    """The shards that a step has verdicts of, in order."""
    names = {
        name.removesuffix(".parquet")
        for manifest in run.manifests_of(step)
        for name in manifest.files
        if name.endswith(".parquet")
    }
    return sorted(name for name in names if name.isdigit())


def choose_documents(
    run: Run, filter_: str, size: int, seed: int, settings: Settings, skipping: Sequence[str] = ()
) -> DocumentSampler:
    """What is shown of a filter. settings: of its select; skipping: the sources that skip it."""
    sampler, step = DocumentSampler(filter_, size, seed), f"{filter_}.select"
    editing = FILTERS[filter_].edits if filter_ in FILTERS else ""
    judges_curated = filter_ in FILTERS and FILTERS[filter_].judges_curated
    for shard in shards_of(run, step):
        path = table_of(run, step, shard)
        assert path is not None
        with run.guard_reading(path):
            with open_parquet(path) as file:
                verdicts = file.read(["id", "kept", "rule", "value", "threshold"])
            spans = spans_of(run, f"{filter_}.{editing}", shard) if editing else None
            document_facts = Shard(run, filter_, shard, verdicts["id"]).table(DOCUMENTS, ["source", "curated"])
            exempt = np.zeros(len(verdicts), bool)
            if document_facts is not None:
                skips = pc.is_in(document_facts["source"], value_set=pa.array(skipping, pa.string()))
                stays = skips if judges_curated else pc.or_(pc.fill_null(document_facts["curated"], False), skips)
                exempt = stays.combine_chunks().to_numpy(False)
            sampler.add_shard(
                shard, verdicts, filter_limits(run, filter_, shard, verdicts["id"], settings), exempt, spans
            )
    if isinstance(settings, SelectSettings):
        for similarity, name, shard, other in near_pairs(run, size, settings.threshold):
            sampler.add_pair(similarity, settings.threshold, name, shard, other)
    return sampler


def spans_of(run: Run, step: str, shard: str) -> pa.Table | None:
    """`id, rule` of the spans that a step wrote for a shard."""
    path = table_of(run, step, f"spans/{shard}") or next(
        (
            manifest.file(name)
            for manifest in run.manifests_of(step)
            for name in manifest.files
            if name == f"spans/{shard}.parquet"
        ),
        None,
    )
    if path is None:
        return None
    with open_parquet(path) as file:
        return file.read(["id", "rule"])


def near_pairs(run: Run, size: int, threshold: float) -> Iterator[tuple[float, str, str, str]]:
    """(similarity, id, shard, the other's id) of kept documents that a pair just below the threshold has: those that would go first if it
    were lower.
    """
    columns = ["low", "high", "similarity"]
    tables: list[pa.Table] = []
    rows = 0
    for manifest in run.manifests_of("dedup.verify"):
        for batch in batches(parquet_file(manifest.path), columns, 1 << 20) if manifest.path else ():
            table = pa.table(batch)
            tables.append(table.filter(pc.less(table["similarity"], threshold)))
            rows += len(tables[-1])
            if rows > PAIRS:
                tables = [nearest_pairs(pa.concat_tables(tables), 4 * size)]
                rows = len(tables[0])
    if not rows:
        return
    table = nearest_pairs(pa.concat_tables(tables), 4 * size)
    documents = documents_at(run, np.unique(np.concatenate([table["low"].to_numpy(), table["high"].to_numpy()])))
    best: dict[str, tuple[float, str, str, str]] = {}  # a document may be in several pairs
    for low, high, similarity in zip(*(table[name].to_pylist() for name in columns), strict=True):
        (name, kept, shard), (other, stays, _) = (documents.get(number, ("", False, "")) for number in (low, high))
        if kept and stays:
            best[name] = max((similarity, name, shard, other), best.get(name, (0.0, "", "", "")))
    yield from (best[name] for name in sorted(best))


def documents_at(run: Run, numbers: npt.NDArray[np.int64]) -> dict[int, tuple[str, bool, str]]:
    """Number of dedup → id, whether it is kept, shard; without those of earlier corpora."""
    documents: dict[int, tuple[str, bool, str]] = {}
    shards, places = shards_and_rows(numbers)
    for number in np.unique(shards):
        shard, in_shard = f"{number:05d}", shards == number
        if path := table_of(run, "dedup.select", shard):
            with open_parquet(path) as file:
                verdicts = file.read(["id", "kept"]).take(pa.array(places[in_shard]))
            rows = zip(verdicts["id"].to_pylist(), verdicts["kept"].to_pylist(), strict=True)
            documents |= {int(at): (*row, shard) for at, row in zip(numbers[in_shard], rows, strict=True)}
    return documents


def nearest_pairs(table: pa.Table, size: int) -> pa.Table:
    """The pairs that are as similar as the `size` most similar are: all those of equal similarity, whatever their order."""
    if len(table) <= size:
        return table
    values = table["similarity"].to_numpy()
    return table.filter(pa.array(values >= np.partition(values, len(values) - size)[len(values) - size]))
