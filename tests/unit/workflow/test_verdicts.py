"""Every verdict explains itself: `value` really fails `threshold` in the direction of the rule that the row names.

A rule that compares no number (`language`) has neither, and says in `detail` what was found. All rules of all filters.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.filters.decontaminate.cuts import judge_document as judge_decontaminate
from crawl2llm.filters.dedup import select as dedup
from crawl2llm.filters.dedup.components import EDGE, choose_greedily
from crawl2llm.filters.framework.rules import Rule, Rules
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.heuristics.rules import FAMILIES
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.quality.score import SIGNAL
from crawl2llm.filters.quality.select import Task as QualityTask
from crawl2llm.filters.quality.select import judge_batch as judged_quality
from crawl2llm.filters.quality.select import top_fraction_threshold
from crawl2llm.filters.sourcecode.measures import COUNTS, SHARES
from crawl2llm.formats.document_numbers import DUPLICATE
from tests.unit import making

DROPS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Of filters that do not declare their rules: how a dropped document's value stands to the threshold.
UNDECLARED: dict[str, dict[str, Callable[[float, float], bool] | None]] = {
    "dedup": {"exact": operator.ge, "near": operator.ge},
    "decontaminate": {"overlap_max": operator.gt, "cut_max": operator.gt},
    "quality": {"fraction": operator.lt, "pareto": operator.le, "threshold": operator.lt},
}
CODE_MEASURES = COUNTS + SHARES
SHARE = st.floats(0, 1) | st.sampled_from([0.0, 0.65, 0.6500000000000001, 1.0])


def explains(stage: str, verdict: dict[str, Any], rules: Rules = ()) -> None:
    """Hold one verdict to the rules of its filter. rules: those that it declares."""
    fails_by_rule = UNDECLARED.get(stage) or {
        rule.name: DROPS[rule.drops] if isinstance(rule, Rule) else None for rule in rules
    }
    rule, value, threshold = verdict["rule"], verdict["value"], verdict["threshold"]
    if verdict["kept"]:
        assert (rule, value, threshold, verdict.get("detail")) == (None, None, None, None)
        return
    assert rule == verdict["rules"][0], "the rule that the row names is the first of its rules"
    assert set(verdict["rules"]) <= fails_by_rule.keys()
    fails = fails_by_rule[rule]
    if fails is None:
        assert value is None and threshold is None and verdict["detail"]
    else:
        assert fails(value, threshold), (rule, value, threshold)


def declares(stage: str, row: dict[str, Any], language: str = "", **changes: Any) -> dict[str, Any]:
    """The verdict on a document by the rules that a filter declares, held to these."""
    options = settings_class(f"{stage}.select").model_validate(changes)
    verdict = making.verdict(stage, {"id": "a", **row}, options, language)
    explains(stage, verdict, importlib.import_module(f"crawl2llm.filters.{stage}.select").rules(options))
    assert verdict["kept"] or not row.get("curated")
    return verdict


def test_every_filter_is_held_to_it() -> None:
    declared = {
        name for name in FILTERS if hasattr(importlib.import_module(f"crawl2llm.filters.{name}.select"), "rules")
    }
    assert declared | UNDECLARED.keys() == set(FILTERS) and not declared & UNDECLARED.keys()


@given(st.sampled_from(["en", "fr", "und"]), SHARE, st.sets(st.sampled_from(["en", "de"])), SHARE, st.none() | SHARE)
def test_language(language: str, score: float, wanted: set[str], threshold: float, compared: float | None) -> None:
    row = {"language": language, "score": score, "agreement": compared, "script_share": 0.5}
    least = {"agreement_min": threshold, "script_min": threshold} if compared else {}
    verdict = declares("language", row, language, languages=sorted(wanted), threshold=threshold, **least)
    assert verdict["detail"] == (language if verdict["rule"] == "language" else None)


@given(
    st.none() | st.text(min_size=1),
    st.none() | st.text(min_size=1),
    st.integers(0, 4),
    st.booleans(),
    st.none() | st.integers(0, 3),
)
def test_url(domain: str | None, expression: str | None, words: int, curated: bool, most: int | None) -> None:
    row = {"curated": curated, "domain": domain, "address": None, "expression": expression, "words": words}
    declares("url", row, words_max=most)


@given(st.integers(0, 3), st.integers(0, 9), SHARE, st.booleans(), st.integers(0, 9), st.none() | SHARE)
def test_lines(characters: int, sentences: int, flagged: float, curated: bool, least: int, most: float | None) -> None:
    row = {"curated": curated, "characters": characters, "sentences": sentences, "flagged": flagged}
    declares("lines", row, sentences_min=least, flagged_max=most)


@given(st.integers(0, 2), SHARE, st.integers(0, 9), st.integers(0, 9), st.booleans(), st.none() | SHARE)
def test_what_is_left(taken: int, removed: float, words: int, least: int, curated: bool, most: float | None) -> None:
    row = {"curated": curated, "taken": taken, "removed": removed, "words": words, "characters": words}
    for name in ("boilerplate", "paragraphs", "substrings"):
        declares(name, row, words_min=least, removed_max=most)


@given(
    st.fixed_dictionaries({kind: st.integers(0, 4) for kind in KINDS}),
    st.dictionaries(st.sampled_from(KINDS), st.sampled_from(["mask", "drop", "keep"])),
    st.integers(1, 4),
    st.none() | st.integers(0, 8),
    st.booleans(),
)
def test_pii(counts: dict[str, int], actions: dict[str, str], least: int, most: int | None, curated: bool) -> None:
    declares("pii", {"curated": curated, **counts}, actions=actions, drop_from=least, total_max=most)


@given(
    st.none() | st.sampled_from(["cc-by-4.0", "cc-by-nc-4.0", "mit"]),
    st.sampled_from(["rel", "link"]),
    st.integers(0, 2),
    st.booleans(),
    st.none() | st.integers(0, 1),
    st.sampled_from(["drop", "keep"]),
)
def test_licence(name: str | None, said: str, beside: int, curated: bool, most: int | None, unknown: str) -> None:
    row = {"curated": curated, "licence": name, "said": said if name else None, "beside": beside}
    declares("licence", row, allowed=["cc-by"], said=["rel"], beside_max=most, unknown=unknown)


@given(
    st.dictionaries(st.sampled_from(CODE_MEASURES), st.integers(0, 2000) | SHARE),
    st.none() | st.sampled_from(["py", "json"]),
    st.booleans(),
    st.none() | st.just("autogenerated"),
    st.none() | st.sampled_from(["MIT", "GPL-3.0-only OR MIT"]),
)
def test_sourcecode(
    measures: dict[str, float], ending: str | None, curated: bool, generated: str | None, spdx: str | None
) -> None:
    facts = {"curated": curated, "extension": ending, "data": ending == "json", "generated": generated, "spdx": spdx}
    declares("sourcecode", {**facts, **dict.fromkeys(CODE_MEASURES, 0), **measures}, licences=["Apache-2.0"])


@given(
    st.integers(0, 9), st.integers(0, 9), st.integers(0, 30), st.lists(SHARE, max_size=2), st.none() | st.integers(0, 3)
)
def test_toxicity(terms: int, more: int, words: int, probabilities: list[float], most: int | None) -> None:
    said = {"classifiers": ["hate", "adult"][: len(probabilities)], "probabilities": probabilities}
    declares("toxicity", {"terms": terms, "hits": terms + more, "words": words, **said}, terms_max=most)


@given(st.integers(0, 3), SHARE, st.booleans(), st.integers(0, 3), st.none() | SHARE)
def test_multilingual(characters: int, share: float, curated: bool, least: int, most: float | None) -> None:
    row = {"curated": curated, "characters": characters, "foreign": share}
    declares("multilingual", row, characters_min=least, foreign_max=most)


@given(SHARE, SHARE, SHARE, SHARE, st.sampled_from(["drop", "cut"]))
def test_decontaminate(overlap: float, cut: float, most: float, cut_max: float, action: str) -> None:
    row = {"id": "a", "overlap": overlap, "cut": cut, "set": "own", "item": "b"}
    verdict = judge_decontaminate(row, most, action, cut_max)
    explains("decontaminate", verdict)
    assert verdict["kept"] or verdict["detail"] == "own b"


@settings(max_examples=300)
@given(st.data())
def test_heuristics(data: st.DataObject) -> None:
    thresholds = st.none() | SHARE | st.integers(0, 3)
    options = {  # of any value: a rule does not depend on the range of its key
        family: settings_class(f"heuristics.select.{family}").model_construct(
            **{name: data.draw(thresholds) for name in names}
        )
        for family, names in FAMILIES.items()
    }
    measures = st.none() | st.integers(0, 4) | SHARE
    row = {name: data.draw(measures) for name in MEASURES}
    declares("heuristics", {**row, "curated": data.draw(st.booleans())}, **options)


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
    options = QualityTask(method=method, keep_fraction=fraction, skipped_by=[])
    threshold = top_fraction_threshold(lambda: [np.array([score for score in scores if score is not None])], fraction)
    rows = [{"id": f"{number}", "score": score, "curated": False} for number, score in enumerate(scores)]
    for verdict in judged_quality(pa.RecordBatch.from_pylist(rows, schema=SIGNAL), options, threshold).to_pylist():
        explains("quality", verdict)
