"""What a rule is said to compare agrees with the program that judges: its verdict fails a rule if and only if the limit is not passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import Settings
from crawl2llm.filters.decontaminate import cuts
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.quality import select as quality
from crawl2llm.formats.documents import document_id
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report.limits import filter_limits
from tests.unit import making

Row = dict[str, Any]
GENERATOR = np.random.default_rng(3)
NUMBER = 400
SHARD = "00000"


def drawn(**columns: Any) -> list[Row]:
    """Rows of signals; a column is a function that draws a value."""
    return [
        {"id": f"{number:032x}", "source": "web", "curated": bool(GENERATOR.integers(4) == 0)}
        | {name: draw() for name, draw in columns.items()}
        for number in range(NUMBER)
    ]


def whole(high: int) -> Callable[[], int]:
    return lambda: int(GENERATOR.integers(high))


def share() -> float:
    return round(float(GENERATOR.random()), 2)


def one_of(*values: Any) -> Callable[[], Any]:
    return lambda: values[int(GENERATOR.integers(len(values)))]


def saved(folder: Path, step: str, rows: list[Row], **summary: Any) -> Manifest:
    """A step's table of one shard; of a step with no columns of its own an empty one."""
    place = folder / step.replace(".", "/")
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), place / f"{SHARD}.parquet")
    alone = FILTERS[step.split(".")[0]].steps[step.split(".")[1]].per is None
    path = place / ("manifest.json" if alone else f"{SHARD}.manifest.json")
    return Manifest(step, "test", summary=summary).write(path, [place / f"{SHARD}.parquet"])


def compared(run: Run, filter_: str, settings: Settings, rows: list[Row], fails: Iterable[set[str]]) -> set[str]:
    """Compare, document by document; returns the rules that have limits. fails: the rules that each document's verdict lists."""
    ids = pa.chunked_array([[row["id"] for row in rows]])
    every = list(fails)
    seen = set()
    for limit in filter_limits(run, filter_, SHARD, ids, settings):
        seen.add(limit.rule)
        passed, known = limit.passing_documents(), ~np.isnan(limit.value)
        for row, failed in enumerate(every):
            if known[row]:
                assert passed[row] == (limit.rule not in failed), (limit.rule, rows[row], limit.threshold[row])
            else:
                assert limit.rule not in failed, (limit.rule, rows[row])
    assert seen
    return seen


def settings_of(filter_: str, **changes: Any) -> Settings:
    return settings_class(f"{filter_}.select").model_validate(changes)


CASES: dict[str, tuple[Row, dict[str, Any]]] = {
    "url": ({"words_max": 2}, {"words": whole(5), "domain": one_of(None), "address": one_of(None), "expression": one_of(None)}),
    "multilingual": ({"characters_min": 30, "foreign_max": 0.5}, {"characters": whole(60), "foreign": share}),
    "lines": ({"sentences_min": 3, "flagged_max": 0.2}, {"characters": whole(3), "sentences": whole(6), "flagged": share}),
    "boilerplate": ({"words_min": 20, "removed_max": 0.5}, 
        {"taken": whole(3), "removed": share, "words": whole(40), "characters": whole(3)}),
    "licence": ({"allowed": ["CC-*"], "beside_max": 1}, {"licence": one_of("CC-BY-4.0"), "said": one_of("link"), "beside": whole(4)}),
    "sourcecode": ({"alphabetic_min": 0.2},
        {"extension": one_of(None, "py", "json"), "data": one_of(True, False), "lines": whole(200_000), "longest_line": whole(200_000),
         "mean_line": lambda: share() * 300, "alphanumeric": share, "alphabetic": share, "encoded_run": whole(3000), "encoded_share": share,
         "generated": one_of(None), "spdx": one_of(None)}),
    "toxicity": ({"terms_max": 3, "share_max": 0.1, "share_terms_min": 2, "thresholds": {"b": 0.3}},
        {"terms": whole(6), "hits": whole(20), "words": whole(100), "classifiers": lambda: ["a", "b"],
         "probabilities": lambda: [share(), share()]}),
    "pii": ({"actions": {"email_address": "drop", "iban": "keep"}, "drop_from": 2, "total_max": 9}, {kind: whole(4) for kind in KINDS}),
}  # fmt: skip


@pytest.mark.parametrize("filter_", CASES)
def test_limits_agree_with_the_judge(tmp_path: Path, filter_: str) -> None:
    changes, columns = CASES[filter_]
    settings, rows = settings_of(filter_, **changes), drawn(**columns)
    run = Run({f"{filter_}.score": [saved(tmp_path, f"{filter_}.score", rows)]})
    verdicts = [set(making.verdict(filter_, row, settings)["rules"]) for row in rows]
    seen = compared(run, filter_, settings, rows, verdicts)
    assert seen >= {rule for failed in verdicts for rule in failed} - {"licence", "said"}  # these compare no number


def test_language(tmp_path: Path) -> None:
    settings = settings_of("language", languages=["en", "hr"], agreement_min=0.5)
    rows = drawn(language=one_of("en", "hr", "de"), score=share)
    more = [{"id": row["id"], "agreement": one_of(None, share())(), "script_share": share()} for row in rows]
    run = Run(
        {
            "language.score": [saved(tmp_path, "language.score", rows)],
            "language.compare": [saved(tmp_path, "language.compare", more[::-1])],
        }
    )
    verdicts = [
        making.verdict("language", {**row, **other}, settings, row["language"])
        for row, other in zip(rows, more, strict=True)
    ]
    assert compared(run, "language", settings, rows, [set(one["rules"]) for one in verdicts]) == {
        "score",
        "agreement_min",
    }


def test_heuristics_by_language(tmp_path: Path) -> None:
    settings = settings_of("heuristics", languages={"de": {"gopher_quality": {"words_min": 3, "words_max": None}}})
    columns = {
        name: one_of(None, 0, 1, 5, 50, 200_000) if kind == "count" else share for name, kind in MEASURES.items()
    }
    rows = drawn(**columns)
    languages = [{"id": row["id"], "language": one_of("en", "de", "zh", "th")()} for row in rows]
    run = Run(
        {
            "heuristics.score": [saved(tmp_path, "heuristics.score", rows)],
            "language.score": [saved(tmp_path, "language.score", languages)],
        }
    )
    verdicts = [
        making.verdict("heuristics", row, settings, of["language"]) for row, of in zip(rows, languages, strict=True)
    ]
    assert len(compared(run, "heuristics", settings, rows, [set(one["rules"]) for one in verdicts])) > 20


@pytest.mark.parametrize("method", ["fraction", "threshold", "pareto"])
def test_quality(tmp_path: Path, method: str) -> None:
    settings = settings_of("quality", method=method)
    rows = drawn(score=share)
    for row in rows:
        row["id"] = document_id(row["id"])
    run = Run(
        {
            "quality.score": [saved(tmp_path, "quality.score", rows)],
            "quality.select": [saved(tmp_path, "quality.select", rows, threshold=None if method == "pareto" else 0.6)],
        }
    )
    batch = pa.Table.from_pylist(rows).to_batches()[0]
    verdicts = quality.judge_batch(batch, quality.Task(method=method, skipped_by=[]), 0.6)["rules"].to_pylist()
    compared(run, "quality", settings, rows, map(set, verdicts))


def test_quality_by_language(tmp_path: Path) -> None:
    rows = drawn(score=share)
    languages = [{"id": row["id"], "language": one_of("en", "de", "fr")()} for row in rows]
    by = {"en": {"threshold": 0.3}, "other languages": {"threshold": 0.7, "languages": ["de"]}}
    made = [
        saved(tmp_path, "quality.score", rows),
        saved(tmp_path, "language.score", languages),
        saved(tmp_path, "quality.select", rows, by_language=by),
    ]
    (limit,) = filter_limits(
        Run({one.step: [one] for one in made}),
        "quality",
        SHARD,
        pa.chunked_array([[row["id"] for row in rows]]),
        settings_of("quality"),
    )
    for place, (row, of) in enumerate(zip(rows, languages, strict=True)):
        if row["curated"] or of["language"] == "fr":  # no document of the crawl is French
            assert np.isnan(limit.value[place])
        else:
            assert limit.threshold[place] == {"en": 0.3, "de": 0.7}[of["language"]]


def test_decontaminate(tmp_path: Path) -> None:
    rows = [{**row, "cut": 0.0, "set": "s", "item": "i"} for row in drawn(overlap=share)]
    run = Run(
        {
            "decontaminate.score": [saved(tmp_path, "decontaminate.score", rows)],
            "decontaminate.select": [saved(tmp_path, "decontaminate.select", rows, overlap_max=0.5)],
        }
    )
    verdicts = [set(cuts.judge_document(row, 0.5, "drop", 0.1)["rules"]) for row in rows]
    compared(run, "decontaminate", settings_of("decontaminate"), rows, verdicts)


def test_without_signals_there_are_no_limits() -> None:
    ids = pa.chunked_array([["a"]])
    for filter_ in FILTERS:
        assert list(filter_limits(Run(), filter_, SHARD, ids, settings_of(filter_))) == []
