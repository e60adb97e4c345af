"""The table of steps: an order that can be run, and the tasks of each."""

from __future__ import annotations

from scripts.common.config import schema, validate
from scripts.common.steps import STEPS, needs, tasks


def test_every_step_comes_after_what_it_needs() -> None:
    order = list(STEPS)
    for name, step in STEPS.items():
        assert all(order.index(needed) < order.index(name) for needed in step.needs), name


def test_every_step_has_its_section_in_the_schema_and_every_section_its_step() -> None:
    stages = {k: v for k, v in schema()["properties"].items() if "properties" in v}
    assert {f"{stage}.{name}" for stage, node in stages.items() for name in node["properties"]} == set(STEPS)


def test_every_step_but_the_last_is_needed() -> None:
    assert {name for step in STEPS.values() for name in step.needs} == set(STEPS) - {"report.render"}


def test_demo_crawl_is_needed_only_where_a_source_asks_for_it() -> None:
    demo = validate({"ingest": {"extract": {"sources": [{"name": "a", "kind": "crawl"}]}}})
    own = validate({"ingest": {"extract": {"sources": [{"name": "a", "kind": "warc", "paths": ["x"]}]}}})
    assert needs("ingest.extract", demo) == ("crawl.render",)
    assert needs("ingest.extract", own) == ()


def test_tasks() -> None:
    config = validate({"ingest": {"extract": {"shards": 3}}})
    assert tasks("language.score", config) == ["00000", "00001", "00002"]
    assert tasks("language.select", config) == [""]
    assert tasks("evaluate.model", config) == ["pretrain", "finetune"]
    assert len(tasks("dedup.band", config)) == config["dedup"]["signature"]["bands"]
