"""report.whatif beside the select steps themselves: every rule of every filter, on signals that are drawn."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config as configuration
from crawl2llm.chain import config_schema, fingerprint, steps
from crawl2llm.chain.steps import program_of
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from crawl2llm.filters.decontaminate.score import MATCH_SCHEMA
from crawl2llm.filters.framework.rules import Rule
from crawl2llm.filters.heuristics import select as heuristics
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.score import FINDING_SCHEMA
from crawl2llm.filters.quality import select as quality
from crawl2llm.filters.quality.top_fraction import fraction_cuts
from crawl2llm.formats.documents import DOCUMENT, Writer, document_id, rows
from crawl2llm.stages.report import whatif
from crawl2llm.stages.report.other_thresholds import overlap
from crawl2llm.stages.report.other_thresholds.points import Spread, choose_thresholds, threshold_bounds
from crawl2llm.stages.report.other_thresholds.shards import aligned_batches

SHARDS, ROWS = ("00000", "00001"), 150
LABELS = ("en", "de", "ko", "th", "zh", "hr")
SOURCES = ("web", "books", "raw")  # books is curated, raw skips some filters
FILTERS = ["url", "language", "multilingual", "heuristics", "lines", "boilerplate", "licence", "sourcecode", "toxicity", "pii",
           "paragraphs", "substrings", "quality", "decontaminate"]  # fmt: skip
CONFIG = {
    "filters": FILTERS,
    "ingest": {
        "extract": {
            "shards": 2,
            "sources": [
                {"name": "web", "kind": "warc", "paths": ["x"]},
                {"name": "books", "kind": "text", "paths": ["x"], "curated": True},
                {"name": "raw", "kind": "warc", "paths": ["x"], "skip_filters": ["heuristics", "language", "quality", "decontaminate"]},
            ],
        }
    },
    "language": {"select": {"languages": ["en", "de", "ko", "hr", "th"], "thresholds": {"de": 0.3}, "agreement_min": 0.2}},
    "multilingual": {"select": {"foreign_max": 0.9, "characters_min": 4}},
    "heuristics": {
        "select": {
            "families": ["gopher_quality", "c4"],
            "gopher_quality": {"mean_word_length_min": 2, "alphabetic_words_min": 0.1, "words_min": 5, "words_max": None,
                               "stop_words_min": 1, "hashes_max": 0.95, "ellipses_max": 0.9},
            "c4": {"curly_brackets_max": None, "lorem_ipsum_max": 35, "sentences_min": 5},
            "languages": {"de": {"gopher_quality": {"words_min": 20}}},
        }
    },
    "lines": {"select": {"flagged_max": 0.9}},
    "boilerplate": {"select": {"words_min": 6, "removed_max": 0.8}},
    "paragraphs": {"select": {"words_min": 9, "removed_max": 0.9}},
    "substrings": {"select": {"words_min": 9}},
    "url": {"select": {"words_max": 30}},
    "licence": {"select": {"beside_max": 20}},
    "sourcecode": {"select": {"lines_max": 30, "longest_line_max": 25, "data_longest_line_max": 35, "mean_line_max": 0.9}},
    "toxicity": {"select": {"terms_max": 30, "share_max": 0.5, "share_terms_min": 3, "thresholds": {"b": 0.7}, "threshold": 0.8}},
    "pii": {"select": {"actions": {"email_address": "drop", "phone_number": "drop", "iban": "keep"}, "drop_from": 2, "total_max": 9}},
    "decontaminate": {"index": {"files": [{"path": "x", "name": "own"}]}},
    "report": {"whatif": {"points": 12}},
}  # fmt: skip
DRAWN = {
    "language": LABELS, "licence": ("cc-by", "gpl", None), "said": ("rel", "link"), "extension": ("py", None),
    "domain": ("bad.example", *[None] * 9), "generated": ("protobuf", *[None] * 9), "spdx": ("MIT", None),
}  # fmt: skip


def drawn(schema: pa.Schema, facts: dict[str, list[Any]], draw: np.random.Generator) -> pa.Table:
    """A table of a schema: counts up to 40, shares and ratios up to 1, null now and then; what `facts` has as it is."""
    number = len(facts["id"])
    columns = {}
    for field in schema:
        if field.name in facts:
            columns[field.name] = pa.array(facts[field.name], field.type)
        elif field.name == "classifiers":
            columns[field.name] = pa.array([["a", "b"][: row % 3] for row in range(number)], field.type)
        elif field.name == "probabilities":
            columns[field.name] = pa.array(
                [draw.random(row % 3).round(2).tolist() for row in range(number)], field.type
            )
        elif field.name in KINDS:
            columns[field.name] = pa.array(draw.poisson(0.5, number), field.type)
        elif pa.types.is_list(field.type):
            columns[field.name] = pa.nulls(number, field.type)
        elif pa.types.is_string(field.type):
            of = DRAWN.get(field.name, (None,))
            columns[field.name] = pa.array([of[at] for at in draw.integers(0, len(of), number)], field.type)
        elif pa.types.is_boolean(field.type):
            columns[field.name] = pa.array(draw.random(number) < 0.3)
        else:
            whole = pa.types.is_integer(field.type)
            values = (
                draw.integers(0, 41, number)
                if whole
                else draw.random(number).round(3) * (8 if "length" in field.name else 1)
            )
            null = draw.random(number) < (0.1 if field.name in MEASURES or field.name == "agreement" else 0)
            columns[field.name] = pa.array(values, field.type, mask=null)
    return pa.table(columns, schema=schema)


def save(path: Path, table: pa.Table) -> Path:
    with Writer(path, table.schema) as writer:
        writer.add_table(table)
    return path


def manifest(root: Path, step: str, shard: str, files: list[Path], **summary: Any) -> Path:
    name = f"{shard}.manifest.json" if shard else "manifest.json"
    path = root / step.replace(".", "/") / name
    Manifest(step=step, fingerprint="", summary=summary).write(path, files)
    return path


def select(root: Path, step: str, config: dict[str, Any], out: Path) -> dict[str, Any]:
    """The verdicts of the step's own program under a config, by shard; id → verdict."""
    stage = steps.stage_of(step)
    words = {
        "language.select": ["--compared"], "heuristics.select": ["--languages"],
    }.get(step, [])  # fmt: skip
    other = {"--compared": "language/compare", "--languages": "language/score"}
    mark = json.dumps({"step": step, "config": fingerprint.tracked_settings(step, config)})
    found: dict[str, Any] = {}
    for shard in SHARDS if step != "quality.select" else ("",):
        own = [shard] if shard else list(SHARDS)
        signals = [str(root / stage / "score" / f"{one}.manifest.json") for one in own]
        more = [part for word in words for part in (word, str(root / other[word] / f"{shard}.manifest.json"))]
        to = out / (f"{shard}.manifest.json" if shard else "manifest.json")
        main = importlib.import_module(program_of(step)).main
        assert main(["--config", mark, "--signals", *signals, *more, "--manifest", str(to)]) == 0
        for one in own:
            found |= {row["id"]: row for row in rows(out / f"{one}.parquet")}
    return found


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return configuration.validate(CONFIG)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]) -> Path:
    """Two shards whose documents all filters have measured and judged."""
    root, draw = tmp_path_factory.mktemp("drawn") / "results/main", np.random.default_rng(5)
    for shard in SHARDS:
        ids = [document_id(f"{shard} {row}") for row in range(ROWS)]
        sources = [SOURCES[at] for at in draw.choice(3, ROWS, p=(0.7, 0.1, 0.2))]
        facts = {"id": ids, "source": sources, "curated": [name == "books" for name in sources]}
        texts = ["é" * int(number) for number in draw.integers(0, 50, ROWS)]
        table = drawn(DOCUMENT, {**facts, "text": texts}, draw)
        manifest(root, "ingest.extract", shard, [save(root / f"ingest/extract/{shard}.parquet", table)])
        for name in FILTERS:
            schema = importlib.import_module(program_of(f"{name}.score")).__dict__.get("SIGNAL", None)
            if name in ("boilerplate", "paragraphs", "substrings"):
                schema = importlib.import_module("crawl2llm.filters.edit_filter").SIGNAL
            if name == "quality":
                schema = pa.schema(
                    [("id", pa.string()), ("source", pa.string()), ("curated", pa.bool_()), ("score", pa.float64())]
                )
            folder = root / name / "score"
            table = drawn(schema, facts, draw)
            files = [save(folder / f"{shard}.parquet", table)]
            if name == "pii":
                places = [
                    {"id": row["id"], "start": 0, "end": 1, "kind": kind}
                    for row in table.to_pylist() for kind in KINDS for _ in range(row[kind])
                ]  # fmt: skip
                files.append(save(folder / f"found/{shard}.parquet", pa.Table.from_pylist(places, FINDING_SCHEMA)))
            if name == "decontaminate":
                files.append(save(folder / f"matches/{shard}.parquet", MATCH_SCHEMA.empty_table()))
            manifest(root, f"{name}.score", shard, files, method="ngram")
        compared = drawn(importlib.import_module("crawl2llm.filters.language.compare").SIGNAL, facts, draw)
        manifest(root, "language.compare", shard, [save(root / f"language/compare/{shard}.parquet", compared)])
        docs = pa.table(
            {"id": ids[::2], "offset": range(ROWS // 2), "tokens": range(1, ROWS // 2 + 1), "bytes": [1] * (ROWS // 2)}
        )
        manifest(root, "tokenize.encode", shard, [save(root / f"tokenize/encode/train/web/{shard}.docs.parquet", docs)])
    for name in FILTERS:
        select(root, f"{name}.select", config, root / name / "select")
    return root


@pytest.fixture(scope="module")
def found(run: Path, config: dict[str, Any]) -> dict[str, Any]:
    mark = json.dumps({"step": "report.whatif", "config": fingerprint.tracked_settings("report.whatif", config)})
    out = run / "report/whatif/manifest.json"
    manifests = sorted(path for path in run.rglob("*manifest.json") if "report" not in path.parts)
    assert whatif.main(["--config", mark, "--manifests", *map(str, manifests), "--manifest", str(out)]) == 0
    answer: dict[str, Any] = json.loads((out.parent / whatif.FILE).read_text(encoding="utf-8"))
    return answer


def about(run: Path) -> dict[str, tuple[str, str, int, int]]:
    """id → source, language, bytes, tokens."""
    out = {}
    for shard in SHARDS:
        labels = {row["id"]: row["language"] for row in rows(run / f"language/score/{shard}.parquet")}
        tokens = {row["id"]: row["tokens"] for row in rows(run / f"tokenize/encode/train/web/{shard}.docs.parquet")}
        for row in rows(run / f"ingest/extract/{shard}.parquet"):
            name = row["id"]
            out[name] = row["source"], labels[name], len(row["text"].encode()), tokens.get(name, 0)
    return out


def test_nothing_that_can_be_asked_is_left_out(found: dict[str, Any]) -> None:
    assert [step["step"] for step in found["steps"]] == [f"{name}.select" for name in FILTERS]
    left = {row["key"]: row["why"] for step in found["steps"] for row in step["left_out"]}
    assert not left
    shown = {rule["key"] for step in found["steps"] for rule in step["rules"]}
    numbers = {
        key for key, node in config_schema.schema_leaves()
        if ".select." in key and {"number", "integer"} & set([node["type"]] if isinstance(node["type"], str) else node["type"])
    }  # fmt: skip
    families = ("heuristics.select.gopher_repetition", "heuristics.select.fineweb")
    asked = {key for key in numbers if key.split(".")[0] in FILTERS and not key.startswith(families)}
    # Those of other methods and actions.
    others = {"quality.select.threshold", "quality.select.alpha", "quality.select.seed", "decontaminate.select.cut_max"}
    assert asked - shown == others


def test_a_curve_says_which_languages_it_does_not_move() -> None:
    own = {"fi": {"gopher_quality": {"mean_word_length_max": 14}}}
    derived = {"fi": {"gopher_quality.mean_word_length_max": 13.0}, "de": {"gopher_quality.mean_word_length_max": 12.0}}
    settings = SelectSettings(languages=own)
    found = {
        ask.key.rpartition(".")[2]: ask.about
        for ask in whatif.asks.thresholds_of_step("heuristics.select", settings, heuristics.rules(settings, derived))
    }
    first, second = found["mean_word_length_max"]
    assert first == "Languages with a threshold of their own keep it: fi."
    assert second.startswith("For de the threshold that heuristics.calibrate derived is kept here")
    assert found["hashes_max"] == []


@pytest.mark.parametrize("name", FILTERS)
def test_every_point_is_what_the_step_itself_keeps(
    run: Path, found: dict[str, Any], config: dict[str, Any], tmp_path: Path, name: str
) -> None:
    """Documents, bytes and tokens, in all, by source and by language, at up to three points of each rule."""
    step = next(one for one in found["steps"] if one["step"] == f"{name}.select")
    facts = about(run)
    for count, rule in enumerate(step["rules"]):
        number = len(rule["points"])
        places = {number // 2} if count > 4 else {0, number // 2, number - 1}
        for place in sorted(places):
            value = rule["points"][place]
            other = configuration.validate(merge_dicts(config, nest_value(rule["key"], value)))
            verdicts = select(run, step["step"], other, tmp_path / f"{rule['key']}-{place}")
            kept = [facts[key] for key, verdict in verdicts.items() if verdict["kept"]]
            for unit, weigh in (
                ("documents", lambda _: 1),
                ("bytes", lambda row: row[2]),
                ("tokens", lambda row: row[3]),
            ):
                of = rule["kept"][unit]
                assert of["all"][place] == sum(map(weigh, kept)), (rule["key"], value, unit)
                for by, at in (("source", 0), ("language", 1)):
                    wanted = Counter[str]()
                    for row in kept:
                        wanted[row[at]] += weigh(row)
                    names = found[f"{by}s"]["names"]
                    assert {key: of[by][index][place] for index, key in enumerate(names)} == {
                        key: wanted[key] for key in names
                    }


def test_what_is_kept_now_is_what_the_step_counts(run: Path, found: dict[str, Any]) -> None:
    for step in found["steps"]:
        made = [Manifest.read(path) for path in sorted((run / step["step"].replace(".", "/")).glob("*manifest.json"))]
        assert step["in"]["documents"]["all"] == sum(one.counts["in"] for one in made)
        assert step["kept"]["documents"]["all"] == sum(one.counts["kept"] for one in made)
        for rule in step["rules"]:
            if rule["now"] is not None:
                place = rule["points"].index(rule["now"])
                assert rule["kept"]["documents"]["all"][place] == step["kept"]["documents"]["all"]


def test_rules_that_drop_together_are_those_of_the_verdicts(run: Path, found: dict[str, Any]) -> None:
    some = 0
    for step in found["steps"]:
        verdicts = [row for shard in SHARDS for row in rows(run / step["step"].replace(".", "/") / f"{shard}.parquet")]
        dropped = [tuple(sorted(row["rules"])) for row in verdicts if not row["kept"]]
        wanted, told = Counter(dropped), step["overlap"]
        assert told["dropped"] == len(dropped)
        assert told["stayed"] == sum(row["kept"] and bool(row["rules"]) for row in verdicts)
        named = {tuple(row["rules"]): row["documents"] for row in told["combinations"]}
        assert len(named) <= overlap.ROWS_SHOWN and all(wanted[rules] == number for rules, number in named.items())
        assert told["rest"]["documents"] == len(dropped) - sum(named.values())
        assert told["rest"]["combinations"] == len(wanted) - len(named)
        for row in told["rules"]:
            assert row["flagged"] == sum(row["rule"] in rules for rules in dropped)
            assert row["unique"] == wanted[(row["rule"],)]
        some += len(named)
        assert all(wanted[rules] <= min(named.values()) for rules in wanted if rules not in named)
    assert some > 20


def test_what_is_allowed_by_name_is_counted_by_value(run: Path, found: dict[str, Any]) -> None:
    (told,) = next(step["categories"] for step in found["steps"] if step["step"] == "language.select")
    labels = Counter(row["language"] for shard in SHARDS for row in rows(run / f"language/score/{shard}.parquet"))
    assert {row["value"]: row["in"] for row in told["values"]} == labels
    assert next(row for row in told["values"] if row["value"] == "zh")["kept"] < labels["zh"]
    assert sum(row["alone"] for row in told["values"]) > 0


def test_a_rule_that_is_read_otherwise_is_not_shown(
    run: Path, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the report's reading of a rule and the verdicts differ, the curve would be wrong: it says so instead."""
    before = whatif.declared_rules.rules_of

    def rules_of(*args: Any) -> list[Rule]:
        rules = (rule for rule in before(*args) if isinstance(rule, Rule))
        return [replace(rule, measure="words") if rule.measure == "removed" else rule for rule in rules]

    monkeypatch.setattr(whatif.declared_rules, "rules_of", rules_of)
    short = configuration.validate({**CONFIG, "filters": ["boilerplate"]})
    mark = json.dumps({"step": "report.whatif", "config": fingerprint.tracked_settings("report.whatif", short)})
    parts = ("ingest/extract", "boilerplate")
    manifests = [str(path) for part in parts for path in sorted((run / part).rglob("*manifest.json"))]
    assert (
        whatif.main(["--config", mark, "--manifests", *manifests, "--manifest", str(tmp_path / "manifest.json")]) == 0
    )
    answer = json.loads((tmp_path / whatif.FILE).read_text())
    (step,) = answer["steps"]
    assert [row["key"] for row in step["left_out"]] == ["boilerplate.select.removed_max"]
    assert "is not that of boilerplate.select for" in step["left_out"][0]["why"]
    assert [rule["key"] for rule in step["rules"]] == ["boilerplate.select.words_min"]
    assert not answer["tokens_known"] and answer["languages"]["names"] == [""]


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=300),
    st.lists(st.floats(0, 1).map(lambda value: round(value, 3)), min_size=1, max_size=8, unique=True),
)
def test_cuts_are_those_of_quality_select(scores: list[float], shares: list[float]) -> None:
    parts = [np.array(scores[at : at + 64], float) for at in range(0, len(scores), 64)]
    found_ = fraction_cuts(lambda: (("", part) for part in parts), np.array(sorted(shares)))[""]
    assert found_.tolist() == [quality.top_fraction_threshold(lambda: iter(parts), share) for share in sorted(shares)]


@given(
    st.lists(st.floats(0, 1e6), max_size=200),
    st.integers(2, 40),
    st.one_of(st.none(), st.floats(0, 1e6)),
    st.booleans(),
    st.booleans(),
)
def test_points_are_few_in_range_and_hold_what_is_set(
    values: list[float], number: int, now: float | None, whole: bool, least: bool
) -> None:
    node = {"type": ["integer" if whole else "number", "null"], "minimum": 0, "maximum": 2e6}
    now = float(round(now)) if now is not None and whole else now
    spread = Spread()
    for part in (values[::2], values[1::2]):
        spread.add(np.array(part, float))
    points = choose_thresholds(spread, number, now, node, least)
    low, high, integer = threshold_bounds(node)
    assert points == sorted(set(points)) and len(points) <= max(number, 4) + 1
    assert all(low <= point <= high for point in points) and integer == whole
    assert now is None or now in points
    assert not whole or all(point.is_integer() for point in points)
    if values and now is None:
        assert points[-1] >= max(values) or (not least and not max(values))
    backwards = Spread()
    backwards.add(np.array(values[::-1], float))
    assert choose_thresholds(backwards, number, now, node, least) == points


def test_tables_of_different_runs_are_refused(tmp_path: Path) -> None:
    one = save(tmp_path / "a.parquet", pa.table({"id": ["a", "b"]}))
    for other in (["a", "c"], ["a"], ["a", "b", "c"]):
        two = save(tmp_path / "b.parquet", pa.table({"id": other}))
        with pytest.raises(InputError, match="do not list the same documents"):
            list(aligned_batches([one, two], [None, None]))
    pq.write_table(pa.table({"id": ["a", "b"]}), tmp_path / "c.parquet", row_group_size=1)
    assert sum(len(batch[0]) for batch in aligned_batches([one, tmp_path / "c.parquet"], [None, None])) == 2
