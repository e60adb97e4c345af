"""Every verdict explains itself: `value` really fails `threshold` in the direction of the rule that the row names.

A rule that compares no number (`language`) has neither, and says in `detail` what was found. All rules of all filters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.chain import config as configuration
from crawl2llm.chain import heuristics_rules as heuristics
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.filters.decontaminate.cuts import judge_document as judge_decontaminate
from crawl2llm.filters.dedup import select as dedup
from crawl2llm.filters.dedup.components import EDGE, choose_greedily
from crawl2llm.filters.edit_filter import judge_document as judge_left
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.heuristics.select import judge_document as judge_heuristics
from crawl2llm.filters.language.select import judge_document as judge_language
from crawl2llm.filters.licence.select import judge_document as judge_licence
from crawl2llm.filters.lines.select import judge_document as judge_lines
from crawl2llm.filters.multilingual.select import judge_document as judge_multilingual
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.select import judge_document as judge_pii
from crawl2llm.filters.quality.score import SIGNAL
from crawl2llm.filters.quality.select import judge_batch as judged_quality
from crawl2llm.filters.quality.select import top_fraction_threshold
from crawl2llm.filters.sourcecode.select import COMPARED_MEASURES
from crawl2llm.filters.sourcecode.select import judge_document as judge_sourcecode
from crawl2llm.filters.toxicity.select import judge_document as judge_toxicity
from crawl2llm.filters.url.select import judge_document as judge_url
from crawl2llm.formats.document_numbers import DUPLICATE

COMPLETE = configuration.validate({})
# Of filters that take parts out and drop what too little is left of (filters/edit_filter.py).
LEFT: dict[str, Callable[[float, float], bool] | None]
LEFT = {"characters_min": operator.lt, "words_min": operator.lt, "removed_max": operator.gt}
# Rule → how a dropped document's value stands to the threshold. None: the rule compares no number.
FAILS: dict[str, dict[str, Callable[[float, float], bool] | None]] = {
    "url": {"domain": None, "address": None, "expression": None, "words": operator.gt},
    "language": {"language": None, "score": operator.lt, "agreement_min": operator.lt, "script_min": operator.lt},
    "heuristics": {
        f"{family}.{name}": operator.lt if name.endswith("_min") else operator.gt
        for family, names in heuristics.FAMILIES.items()
        for name in names
    },
    "licence": {"unknown": None, "licence": None, "said": None, "beside": operator.gt},
    "sourcecode": {
        **{
            f"{name}_{'min' if name.startswith('alpha') else 'max'}": operator.lt
            if name.startswith("alpha")
            else operator.gt
            for name in COMPARED_MEASURES
        },
        "generated": None,
        "licence": None,
    },
    "toxicity": {"terms": operator.gt, "share": operator.gt, "classifier": operator.gt},
    "pii": {**dict.fromkeys(KINDS, operator.ge), "total_max": operator.gt},
    "lines": {"characters_min": operator.lt, "sentences_min": operator.lt, "flagged_max": operator.gt},
    "boilerplate": LEFT,
    "paragraphs": LEFT,
    "substrings": LEFT,
    "multilingual": {"characters_min": operator.lt, "foreign_max": operator.gt},
    "dedup": {"exact": operator.ge, "near": operator.ge},
    "decontaminate": {"overlap_max": operator.gt, "cut_max": operator.gt},
    "quality": {"fraction": operator.lt, "pareto": operator.le, "threshold": operator.lt},
}
SHARE = st.floats(0, 1) | st.sampled_from([0.0, 0.65, 0.6500000000000001, 1.0])


def explains(stage: str, verdict: dict[str, Any]) -> None:
    """Hold one verdict to the table above."""
    rule, value, threshold = verdict["rule"], verdict["value"], verdict["threshold"]
    if verdict["kept"]:
        assert (rule, value, threshold, verdict.get("detail")) == (None, None, None, None)
        return
    assert rule == verdict["rules"][0], "the rule that the row names is the first of its rules"
    assert set(verdict["rules"]) <= FAILS[stage].keys()
    fails = FAILS[stage][rule]
    if fails is None:
        assert value is None and threshold is None and verdict["detail"]
    else:
        assert fails(value, threshold), (rule, value, threshold)


def test_every_filter_is_held_to_it() -> None:
    assert FAILS.keys() == set(FILTERS)


@given(st.sampled_from(["en", "fr", "und"]), SHARE, st.sets(st.sampled_from(["en", "de"])), SHARE, st.none() | SHARE)
def test_language(language: str, score: float, wanted: set[str], threshold: float, compared: float | None) -> None:
    row = {"id": "a", "language": language, "score": score, "agreement": compared, "script_share": 0.5}
    least = {"agreement": threshold, "script_share": threshold}
    verdict = judge_language(row, frozenset(wanted), threshold, None, least if compared else None)
    explains("language", verdict)
    assert verdict["detail"] == (language if verdict["rule"] == "language" else None)


@given(
    st.none() | st.text(min_size=1),
    st.none() | st.text(min_size=1),
    st.integers(0, 4),
    st.booleans(),
    st.none() | st.integers(0, 3),
)
def test_url(domain: str | None, expression: str | None, words: int, curated: bool, most: int | None) -> None:
    row = {"id": "a", "curated": curated, "domain": domain, "address": None, "expression": expression, "words": words}
    explains("url", judge_url(row, most))


@given(st.integers(0, 3), st.integers(0, 9), SHARE, st.booleans(), st.integers(0, 9), st.none() | SHARE)
def test_lines(characters: int, sentences: int, flagged: float, curated: bool, least: int, most: float | None) -> None:
    row = {"id": "a", "curated": curated, "characters": characters, "sentences": sentences, "flagged": flagged}
    explains("lines", judge_lines(row, least, most))


@given(st.integers(0, 2), SHARE, st.integers(0, 9), st.integers(0, 9), st.booleans(), st.none() | SHARE)
def test_what_is_left(taken: int, removed: float, words: int, least: int, curated: bool, most: float | None) -> None:
    row = {"id": "a", "curated": curated, "taken": taken, "removed": removed, "words": words, "characters": words}
    verdict = judge_left(row, least, most)
    explains("boilerplate", verdict)
    assert verdict["kept"] or not curated


@given(
    st.fixed_dictionaries({kind: st.integers(0, 4) for kind in KINDS}),
    st.dictionaries(st.sampled_from(KINDS), st.sampled_from(["mask", "drop", "keep"])),
    st.integers(1, 4),
    st.none() | st.integers(0, 8),
    st.booleans(),
)
def test_pii(counts: dict[str, int], actions: dict[str, str], least: int, most: int | None, curated: bool) -> None:
    options = {"actions": actions, "drop_from": least, "total_max": most}
    explains("pii", judge_pii({"id": "a", "curated": curated, **counts}, options))


@given(
    st.none() | st.sampled_from(["cc-by-4.0", "cc-by-nc-4.0", "mit"]),
    st.sampled_from(["rel", "link"]),
    st.integers(0, 2),
    st.booleans(),
    st.none() | st.integers(0, 1),
    st.sampled_from(["drop", "keep"]),
)
def test_licence(name: str | None, said: str, beside: int, curated: bool, most: int | None, unknown: str) -> None:
    row = {"id": "a", "curated": curated, "licence": name, "said": said if name else None, "beside": beside}
    options = {"allowed": ["cc-by"], "said": ["rel"], "beside_max": most, "unknown": unknown}
    explains("licence", judge_licence(row, options))


@given(
    st.dictionaries(st.sampled_from(COMPARED_MEASURES), st.integers(0, 2000) | SHARE),
    st.none() | st.sampled_from(["py", "json"]),
    st.booleans(),
    st.none() | st.just("autogenerated"),
    st.none() | st.sampled_from(["MIT", "GPL-3.0-only OR MIT"]),
)
def test_sourcecode(
    measures: dict[str, float], ending: str | None, curated: bool, generated: str | None, spdx: str | None
) -> None:
    row = {
        "id": "a",
        "curated": curated,
        "extension": ending,
        "data": ending == "json",
        "generated": generated,
        "spdx": spdx,
    }
    options = {**COMPLETE["sourcecode"]["select"], "licences": ["Apache-2.0"]}
    explains("sourcecode", judge_sourcecode({**row, **dict.fromkeys(COMPARED_MEASURES, 0), **measures}, options))


@given(
    st.integers(0, 9), st.integers(0, 9), st.integers(0, 30), st.lists(SHARE, max_size=2), st.none() | st.integers(0, 3)
)
def test_toxicity(terms: int, more: int, words: int, probabilities: list[float], most: int | None) -> None:
    said = {"classifiers": ["hate", "adult"][: len(probabilities)], "probabilities": probabilities}
    row = {"id": "a", "curated": False, "terms": terms, "hits": terms + more, "words": words, **said}
    explains("toxicity", judge_toxicity(row, {**COMPLETE["toxicity"]["select"], "terms_max": most}))


@given(st.integers(0, 3), SHARE, st.booleans(), st.integers(0, 3), st.none() | SHARE)
def test_multilingual(characters: int, share: float, curated: bool, least: int, most: float | None) -> None:
    row = {"id": "a", "curated": curated, "characters": characters, "foreign": share}
    explains("multilingual", judge_multilingual(row, least, most))


@given(SHARE, SHARE, SHARE, SHARE, st.sampled_from(["drop", "cut"]))
def test_decontaminate(overlap: float, cut: float, most: float, cut_max: float, action: str) -> None:
    row = {"id": "a", "overlap": overlap, "cut": cut, "set": "own", "item": "b"}
    verdict = judge_decontaminate(row, most, action, cut_max)
    explains("decontaminate", verdict)
    assert verdict["kept"] or verdict["detail"] == "own b"


@settings(max_examples=300)
@given(st.data())
def test_heuristics(data: st.DataObject) -> None:
    options = dict(COMPLETE["heuristics"]["select"])
    thresholds = st.none() | SHARE | st.integers(0, 3)
    for family, names in heuristics.FAMILIES.items():
        options[family] = {name: data.draw(thresholds) for name in names}
    active = heuristics.active_rules(options)
    measures = st.none() | st.integers(0, 4) | SHARE
    row = {"id": "a", **{name: data.draw(measures) for name in MEASURES}}
    explains("heuristics", judge_heuristics({**row, "curated": data.draw(st.booleans())}, active))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.floats(0.5, 1)), max_size=12),
    st.dictionaries(st.integers(0, 4), st.integers(10, 14), max_size=4),
    st.booleans(),
)
def test_dedup(edges: list[tuple[int, int, float]], copied: dict[int, int], exact: bool) -> None:
    """Documents 0…7 in order of priority, some with a byte-equal copy (10…14)."""
    unique = {(max(a, b), min(a, b)): s for a, b, s in edges if a != b}
    pairs = np.array([(low, high, s) for (low, high), s in unique.items()], EDGE)
    keeper, value = choose_greedily(pairs["low"], pairs["high"], pairs["similarity"], 8)
    names = np.stack((np.zeros(15, np.uint64), np.arange(15, dtype=np.uint64)), axis=1)
    who = dedup.Ranking(np.arange(8), np.arange(8), names[:8])
    copy_of = {copy: keeper for keeper, copy in copied.items()}  # one keeper for each copy
    copies = pa.table({"document": [*sorted(copy_of)], "duplicate_of": [copy_of[copy] for copy in sorted(copy_of)]})
    gone = dedup.merge_drops(
        dedup.near_duplicates(0, who, keeper, value),
        dedup.exact_duplicates(0, copies.cast(DUPLICATE), who, keeper, value, exact),
    )
    rows = dedup.verdict_table(names, gone, who.names, 0.5).to_pylist()
    found = {row["id"]: row for number, row in enumerate(rows) if number < 8 or number in copy_of}
    for row in found.values():
        explains("dedup", row)
        if not row["kept"]:
            assert found[row["duplicate_of"]]["kept"], "the document that it is a duplicate of stays"
            assert row["value"] == row["similarity"], "the value is what was measured against that very document"


@given(
    st.lists(st.none() | SHARE, min_size=1, max_size=12),
    st.floats(0, 1),
    st.sampled_from(["fraction", "pareto", "threshold"]),
)
def test_quality(scores: list[float | None], fraction: float, method: str) -> None:
    options = {**COMPLETE["quality"]["select"], "method": method, "keep_fraction": fraction, "skipped_by": []}
    threshold = top_fraction_threshold(lambda: [np.array([score for score in scores if score is not None])], fraction)
    rows = [{"id": f"{number}", "score": score, "curated": False} for number, score in enumerate(scores)]
    for verdict in judged_quality(pa.RecordBatch.from_pylist(rows, schema=SIGNAL), options, threshold).to_pylist():
        explains("quality", verdict)
