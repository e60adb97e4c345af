"""What a run is refused for before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.project import Project
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.core.errors import InputError
from crawl2llm.workflow.config_checks import check_curve, check_judge, check_mix, check_topics
from crawl2llm.workflow.project_checks import check_project


def config(train: dict[str, Any] | None = None, **evaluate: Any) -> dict[str, Any]:
    return validate({"pretrain": {"train": train or {}}, "evaluate": evaluate})


@pytest.mark.parametrize(
    ("every", "kept", "fits"), [(0, 0, True), (500, 500, True), (500, 100, True), (500, 0, False), (500, 300, False)]
)
def test_a_learning_curve_needs_checkpoints_that_stay(every: int, kept: int, fits: bool) -> None:
    given = config({"keep_every": kept}, curve={"every": every})
    if fits:
        check_curve(given)
        return
    with pytest.raises(
        InputError, match=f"evaluate.curve.every is 500, and pretrain.train.keep_every, which is {kept}, keeps no"
    ):
        check_curve(given)


def test_a_judge_needs_answers() -> None:
    check_judge(config())
    check_judge(config(judge={"model": "big"}, generate={"questions": 3}))
    with pytest.raises(InputError, match="answers to judge"):
        check_judge(config(judge={"model": "big"}))


def test_pairs_of_a_model_that_a_variant_alone_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`align.pairs.from` names a model of the variant; main has neither it nor the step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A page.")
    models = {"chat": {"from": "base", "step": "finetune.train"}, "dpo": {"from": "chat", "step": "align.train"}}
    tree = {
        "ingest": {"extract": {"sources": [{"name": "a", "kind": "text", "paths": ["a.txt"]}]}},
        "align": {"pairs": {"from": "chat", "rewards": [{"reward": "length", "least": 1}]}},
        "variants": {"v": {"models": models}},
    }
    project = Project(validate(tree))
    check_project(project)
    assert project.step_folder("v", "align.pairs") == "results/v/align/pairs"


def test_filters_that_a_variant_alone_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their steps are those of the variant, and asking whether the main run has them is no error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crawl.jsonl").write_text('{"text": "one"}\n')
    source = {"name": "web", "kind": "jsonl", "paths": ["crawl.jsonl"]}
    quality = {"lm": {"enabled": True}, "select": {"by": "language"}}
    tree = {"ingest": {"extract": {"shards": 1, "sources": [source]}}, "filters": ["language"]}
    filters = [name for name in filter_order.FILTERS if name not in ("url", filter_order.DECONTAMINATE)]
    project = Project(validate(tree | {"variants": {"every": {"filters": filters, "quality": quality}}}))
    used = steps.used_steps(project.variants["every"])
    assert {"quality.kenlm", "pii.select", "substrings.repeated"} <= set(used)
    shared = (DOCUMENTS, filter_order.FIRST_VERDICTS, "language.score", "language.select", steps.REFERENCE)
    for step in used:
        for task in steps.result_ids(step, project.variants["every"]):
            owner = "main" if step in shared else "every"
            assert str(project.manifest_path("every", step, task)).startswith(f"results/{owner}/"), step


WEB = {"ingest": {"extract": {"sources": [{"name": "web", "kind": "text", "paths": ["a.txt"]}]}}}


def with_web(**more: Any) -> dict[str, Any]:
    return validate({**WEB, **more})


def test_a_mix_by_topic_needs_topics() -> None:
    mix = {"pretrain": {"mix": {"by": "topic", "phases": [{"temperature": 2}]}}}
    with pytest.raises(InputError, match=r"topics\.train\.clusters is 0"):
        check_mix(with_web(**mix))
    check_mix(with_web(**mix, topics={"train": {"clusters": 4}}))


def test_topics_by_language_need_languages() -> None:
    wanted = {"filters": ["dedup"], "topics": {"train": {"clusters": 4}}}
    with pytest.raises(InputError, match=r"set topics\.train\.by: all"):
        check_topics(with_web(**wanted))
    check_topics(with_web(filters=["dedup"], topics={"train": {"clusters": 4, "by": "all"}}))
    check_topics(with_web(filters=["dedup"]))
