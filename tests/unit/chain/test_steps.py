"""The steps: an order that can be run, the tasks of each, and what they are told."""

from __future__ import annotations

from importlib import import_module

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain.config import validate
from crawl2llm.chain.config_schema import schema
from crawl2llm.chain.filter_order import FILTERS, edit_steps, order_problem, verdict_steps
from crawl2llm.chain.model_registry import (
    CONTINUE_STEP,
    DISTIL_STEP,
    ENCODE_STEP,
    EXPORT_STEP,
    MERGE_STEP,
    PUBLISHED_STEP,
    QUANTIZE_STEP,
    REENCODE_STEP,
    REWARD_STEP,
    TEACH_STEP,
)
from crawl2llm.chain.stage_names import AFTER_FILTERS, ALL_NAMES, BEFORE_FILTERS
from crawl2llm.chain.step import VERDICTS_BEFORE, skipped_by, stage_of
from crawl2llm.chain.steps import (
    COMPARE_ALL,
    STEPS,
    WHATIF,
    extra_settings,
    needed_steps,
    number_of_parts,
    resolve_needs,
    result_ids,
    result_ids_of_task,
    task_ids,
    used_steps,
)
from crawl2llm.core.nested_dicts import lookup
from crawl2llm.core.root import CODE

PACKAGE = CODE / "crawl2llm"
ON_DEMAND = (
    CONTINUE_STEP,
    CONTINUE_STEP,
    REWARD_STEP,
    "align.train",
    "compress.prune",
    DISTIL_STEP,
    MERGE_STEP,
    QUANTIZE_STEP,
    EXPORT_STEP,
)  # used where a model is of them
ASKED_FOR = {
    "dedup.export",
    "language.compare",
    "heuristics.calibrate",
    "pretrain.mix",
    "pretrain.pack",
    "topics.train",
    "topics.score",
    "topics.count",
    "synthesize.rephrase",
    "synthesize.seed",
    "evaluate.stage",
    "evaluate.public",
    "evaluate.found",
    "evaluate.curve",
    "evaluate.common",
    TEACH_STEP,
    "pretrain.rung",
    "pretrain.halve",
    "report.compare",
    "corpus.reference",
    "corpus.heldout",
    "evaluate.generate",
    "evaluate.judge",
    *(f"quality.{name}" for name in ("ngrams", "fasttext", "transformers", "lm", "kenlm", "calibrate", "combine")),
}  # used where the config names what they do


def test_every_step_comes_after_what_it_needs() -> None:
    order = list(STEPS)
    for name in STEPS:
        found = [*resolve_needs(name, list(FILTERS)), *resolve_needs(name, list(FILTERS), of_main=True)]
        assert all(order.index(needed) < order.index(name) for needed in found), name


def test_every_step_has_its_section_in_the_schema_and_every_section_its_step() -> None:
    # A sweep is no stage: it stands for variants.
    stages = {k: v for k, v in schema()["properties"].items() if "properties" in v and k != "sweep"}
    assert {f"{stage}.{name}" for stage, node in stages.items() for name in node["properties"]} == set(STEPS)


def test_every_step_but_the_last_is_needed() -> None:
    assert {name for step in STEPS for name in resolve_needs(step, list(FILTERS))} == set(STEPS) - {COMPARE_ALL}


def test_demo_crawl_is_needed_only_where_a_source_asks_for_it() -> None:
    demo = validate({"ingest": {"extract": {"sources": [{"name": "a", "kind": "crawl"}]}}})
    own = validate({"ingest": {"extract": {"sources": [{"name": "a", "kind": "warc", "paths": ["x"]}]}}})
    assert needed_steps("ingest.extract", demo) == ("crawl.render",)
    assert needed_steps("ingest.extract", own) == ()


def test_tasks() -> None:
    config = validate({"ingest": {"extract": {"shards": 3}}})
    assert (
        task_ids("language.score", config) == task_ids("language.select", config) == ["00000"]
    )  # one for all three shards
    assert result_ids("language.score", config) == result_ids("language.select", config) == ["00000", "00001", "00002"]
    assert task_ids("quality.select", config) == [""]
    assert task_ids("evaluate.model", config) == ["base", "sft", "untrained"]
    assert task_ids("finetune.train", config) == ["sft"]
    assert task_ids("dedup.band", config) == ["00"]
    assert task_ids("dedup.verify", config) == result_ids("dedup.verify", config) == ["000"]
    assert task_ids("dedup.sets", config) == ["00000"] and result_ids_of_task("dedup.sets", "00000", config) == [
        "00000",
        "00001",
        "00002",
    ]
    bands = [band for task in task_ids("dedup.band", config) for band in result_ids_of_task("dedup.band", task, config)]
    assert sorted(bands) == result_ids("dedup.band", config) and len(bands) == config["dedup"]["signature"]["bands"]


def test_pairs_are_in_256_parts_at_most() -> None:
    found = [number_of_parts(shards) for shards in (1, 15, 16, 64, 2048, 4096, 99_999)]
    assert found == [1, 1, 2, 8, 256, 256, 256]
    config = validate({"ingest": {"extract": {"shards": 64}}})
    assert [len(task_ids(f"dedup.{name}", config)) for name in ("band", "sets", "verify")] == [14, 8, 8]


def test_filters_of_the_schema_are_those_of_the_table() -> None:
    assert schema()["properties"]["filters"]["items"]["enum"] == list(FILTERS)
    source = lookup(schema(), "properties.ingest.properties.extract.properties.sources.items.properties")
    assert source["skip_filters"]["items"]["enum"] == list(FILTERS)


def test_sources_that_skip_a_filter_are_told_in_any_order() -> None:
    sources = [
        {"name": "wiki", "kind": "crawl", "skip_filters": ["dedup", "lines"]},
        {"name": "books", "kind": "crawl", "skip_filters": ["lines"]},
        {"name": "web", "kind": "crawl"},
    ]
    config = validate({"ingest": {"extract": {"sources": sources}}})
    assert [skipped_by(f"{name}.select", config) for name in ("lines", "dedup", "url")] == [
        ["books", "wiki"],
        ["wiki"],
        [],
    ]


@given(st.lists(st.sampled_from(list(FILTERS)), unique=True))
def test_every_filter_reads_the_verdicts_of_the_one_before_whatever_their_order(order: list[str]) -> None:
    """Each verdict is read by the next filter's first step with texts; the corpus reads all, in order, and every edit before it."""
    config = validate({"filters": order, "evaluate": {"public": {"presets": ["copa"]}}})
    chain = verdict_steps(order)
    assert chain == ["ingest.check", *(f"{name}.select" for name in order)]
    for before, name in zip(chain, order, strict=False):
        first = next(f"{name}.{step}" for step, facts in FILTERS[name].steps.items() if VERDICTS_BEFORE in facts.needs)
        # Of what edits texts, which a select may do, all that came before.
        others = set(needed_steps(first, config)) & set(chain) - {before} - set(edit_steps(order, name))
        assert before in needed_steps(first, config) and not others - {
            f"{other}.select" for other in FILTERS[name].after
        }
    assert [step for step in needed_steps("corpus.split", config) if step in chain] == chain
    assert set(edit_steps(order)) <= set(needed_steps("corpus.write", config))
    asked_for = {
        "ingest.list",
        "ingest.fetch",
        PUBLISHED_STEP,
        REENCODE_STEP,
        "tokenize.compare",
        *ON_DEMAND,
    }  # no source of the demo is remote, no model is of these steps, and no tokenizer is a ready one
    unused = set(STEPS) - set(used_steps(config)) - asked_for
    without_filters = set() if order else {WHATIF}
    assert (
        unused - {"align.pairs", *ASKED_FOR} - without_filters
        == {f"{name}.{step}" for name in set(FILTERS) - set(order) for step in FILTERS[name].steps} - ASKED_FOR
    )


def test_heuristics_know_the_language_only_after_it_was_found() -> None:
    assert order_problem(["heuristics", "language"]) == (
        "filters is ['heuristics', 'language']: heuristics needs language before it"
    )
    assert order_problem(["dedup", "language", "heuristics"]) is None and order_problem([]) is None
    assert order_problem(["heuristics"]) is not None


def test_a_step_on_demand_is_used_where_a_model_is_of_it() -> None:
    without = validate({})
    assert not set(ON_DEMAND) & set(used_steps(without)) and not set(ON_DEMAND) & set(
        needed_steps("evaluate.model", without)
    )
    for step in ON_DEMAND:
        made = validate({"models": {"small": {"from": "base", "step": step}}})
        assert set(ON_DEMAND) & set(used_steps(made)) == {step}
        assert (step in needed_steps("evaluate.model", made)) == (step not in (EXPORT_STEP, REWARD_STEP))
        assert task_ids(step, made) == ["small"]


def test_each_declares_its_own_steps_and_no_others() -> None:
    folders = [*ALL_NAMES]
    assert list(dict.fromkeys(stage_of(step) for step in STEPS)) == folders
    declared = {path.parent.name for name in ("stages", "filters") for path in (PACKAGE / name).glob("*/steps.py")}
    assert declared == set(folders)
    for stage in (*BEFORE_FILTERS, *AFTER_FILTERS):
        steps = import_module(f"crawl2llm.stages.{stage}.steps").STEPS
        assert set(steps) == {step for step in STEPS if stage_of(step) == stage}


def test_a_step_that_follows_another_comes_right_after_it() -> None:
    order = list(STEPS)
    following = {step: facts.follows for step, facts in STEPS.items() if facts.follows}
    assert following == {
        "dedup.export": "corpus.split",
        REENCODE_STEP: PUBLISHED_STEP,
        EXPORT_STEP: "evaluate.compare",
    }
    assert all(order.index(step) == order.index(follows) + 1 for step, follows in following.items())


def test_an_export_is_compared_on_text_in_the_tokens_of_its_own_root() -> None:
    """A GGUF file's bits per byte on ids of another tokenizer would be those of no text."""
    given = {"from": "tiny", "step": EXPORT_STEP}, {"from": "base", "step": EXPORT_STEP}
    config = validate({"models": {"tiny": {"path": "tiny"}, "theirs": given[0], "ours": given[1]}})
    tokens = {ENCODE_STEP, REENCODE_STEP}
    assert tokens & {*needed_steps(EXPORT_STEP, config, "theirs")} == {REENCODE_STEP}
    assert tokens & {*needed_steps(EXPORT_STEP, config, "ours")} == {ENCODE_STEP}


def test_a_step_is_told_of_others_what_it_declares() -> None:
    config = validate({})
    assert extra_settings("tokenize.train", config) == {}
    assert extra_settings("lines.score", config) == {"skipped_by": []}
    calibrating = extra_settings("heuristics.calibrate", config)
    assert calibrating.keys() == {"select", "skipped_by"} and "languages" not in calibrating["select"]
