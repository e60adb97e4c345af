"""What follows from a step's name in its rule."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawl2llm.chain import steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.project import Project
from crawl2llm.core.root import ROOT
from crawl2llm.workflow import rule_parts
from crawl2llm.workflow.rule_inputs import RuleInputs
from crawl2llm.workflow.rule_parts import RuleParts

MAIN = SimpleNamespace(variant="main")


def parts_of(folder: Path, monkeypatch: pytest.MonkeyPatch, shards: int = 3, **tree: Any) -> RuleParts:
    monkeypatch.chdir(folder)
    (folder / "a.txt").write_text("some text")
    source = {"name": "books", "kind": "text", "paths": ["a.txt"]}
    project = Project(validate({"ingest": {"extract": {"shards": shards, "sources": [source]}}, "filters": [], **tree}))
    return RuleParts(project, RuleInputs(project), ["--image", "a.sif"])


def test_files_of_a_step() -> None:
    assert rule_parts.result("tokenize.encode") == "results/{variant}/tokenize/encode/{shard}.manifest.json"
    assert rule_parts.result("tokenize.train") == "results/{variant}/tokenize/train/manifest.json"
    assert rule_parts.log_file("tokenize.encode") == "logs/{variant}/tokenize/encode/{shard}.log"
    assert rule_parts.log_file("tokenize.train") == "logs/{variant}/tokenize/train.log"
    assert rule_parts.benchmark_file("align.train") == "results/{variant}/benchmarks/align/train/{model}.tsv"
    assert rule_parts.benchmark_file("align.pairs") == "results/{variant}/benchmarks/align/pairs.tsv"


@pytest.mark.parametrize("step", steps.STEPS)
def test_every_step_has_an_environment(step: str) -> None:
    assert (ROOT / rule_parts.environment_file(step)).is_file()


def test_a_training_up_to_a_rung_is_started_as_the_whole_training_is() -> None:
    assert {step for step in steps.STEPS if rule_parts.is_launched(step)} == {
        "pretrain.train", "pretrain.rung", "pretrain.continue",
        "finetune.train", "align.reward", "align.train", "compress.prune", "compress.distil",
    }  # fmt: skip


def test_options_are_called_after_what_a_rule_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(tmp_path, monkeypatch)
    documents = parts.inputs.manifests("ingest.extract")
    named = {"documents": documents, "edits": parts.inputs.edits(), "profile_gpu": lambda wildcards: ""}
    words = parts.options("ingest.check", named, [lambda wildcards: ["--more", "1"]])(MAIN, 1)
    ranged = "results/main/ingest/extract/{00000..00002}.manifest.json"
    assert words == ["--documents", ranged, "--edits", "--profile-gpu=", "--more", "1"]


def test_a_task_is_told_its_other_shards_and_how_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(tmp_path, monkeypatch, shards=20)
    task = SimpleNamespace(variant="main", shard="00001")
    assert parts.options("ingest.extract", {})(task, 4) == [
        "--also", "00004", "00007", "00010", "00013", "00016", "00019", "--at-once", "4",
    ]  # fmt: skip
    assert parts.threads("ingest.extract")(task) == 7  # type: ignore[misc]
    assert "--at-once" not in parts.options("ingest.fetch", {})(task, 4), "its requests are at the same time already"
    assert parts.options("dedup.verify", {})(SimpleNamespace(variant="main", part="000"), 1) == []


def test_threads_that_the_config_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = {"processes": 3, "threads": 2}
    parts = parts_of(tmp_path, monkeypatch, pretrain={"train": train}, evaluate={"curve": {"threads": 5}})
    assert parts.threads("pretrain.train")(MAIN) == 6  # type: ignore[misc]
    assert parts.threads("evaluate.curve")(MAIN) == 5  # type: ignore[misc]
    assert parts.threads("dedup.exact") is None
    models = {"sft": {"from": "base", "step": "finetune.train", "processes": 4, "threads": 2}}
    parts = parts_of(tmp_path, monkeypatch, models=models)
    assert parts.threads("finetune.train")(SimpleNamespace(variant="main", model="sft")) == 8  # type: ignore[misc]


def test_placement_is_options_of_the_program_or_of_its_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = parts_of(tmp_path, monkeypatch, pretrain={"train": {"processes": 3, "log_every": 7}})
    assert "--log-every=7" in parts.options("pretrain.train", {})(MAIN, 3)
    launcher = parts.launcher("pretrain.train")(MAIN)
    assert "--processes=3" in launcher and launcher[-2:] == ["--image", "a.sif"]


def test_a_training_that_is_judged_has_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts_of(tmp_path, monkeypatch).program("pretrain.train")(MAIN) == ["crawl2llm.stages.pretrain.train"]
    sweep = {"grid": {"pretrain.train.learning_rate": [0.002]}, "halving": {"rungs": [0.5]}}
    parts = parts_of(tmp_path, monkeypatch, sweep=sweep)
    variant = next(name for name in parts.variants if name != "main")
    assert parts.program("pretrain.train")(SimpleNamespace(variant=variant)) == [
        rule_parts.CONTENDER, "--halving", "results/main/pretrain/halve/manifest.json", "--contender", variant,
    ]  # fmt: skip
