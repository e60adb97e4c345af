"""The input functions of the rules: which manifests, and as which words of a command line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.chain.project import Project
from crawl2llm.workflow.rule_inputs import RuleInputs

SHARD = SimpleNamespace(variant="main", shard="00001")
MAIN = SimpleNamespace(variant="main")


def inputs_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **tree: Any) -> RuleInputs:
    monkeypatch.chdir(folder)
    (folder / "a.txt").write_text("some text")
    source = {"name": "books", "kind": "text", "paths": ["a.txt"]}
    return RuleInputs(Project(validate({"ingest": {"extract": {"shards": 3, "sources": [source]}}, **tree})))


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuleInputs:
    return inputs_of(tmp_path, monkeypatch, filters=["language", "lines", "dedup"])


def test_a_step_without_results_in_a_run_gives_none(inputs: RuleInputs) -> None:
    assert inputs.manifest("crawl.render", "heuristics.score")(SHARD) == []
    assert inputs.manifests("crawl.render")(MAIN) == []
    assert inputs.manifest("ingest.extract", "quality.train", "tokenize.train")(SHARD) == [
        "results/main/ingest/extract/00001.manifest.json",
        "results/main/tokenize/train/manifest.json",
    ]


def test_all_shards_are_one_word_on_a_command_line_but_many_paths_to_wait_for(inputs: RuleInputs) -> None:
    """A task owns several shards: there is nothing to wait for by the names of the others."""
    function = inputs.manifests("ingest.extract", "ingest.check")
    check = "results/main/ingest/check/manifest.json"
    assert function(MAIN) == ["results/main/ingest/extract/00000.manifest.json", check]
    assert inputs.words_of(function, MAIN) == ["results/main/ingest/extract/{00000..00002}.manifest.json", check]


def test_what_is_no_input_function_is_its_own_words(inputs: RuleInputs) -> None:
    assert inputs.words_of("a.json", MAIN) == "a.json"
    assert inputs.words_of(lambda wildcards: 3, MAIN) == "3"
    assert inputs.words_of(lambda wildcards: ["a", wildcards.variant], MAIN) == ["a", "main"]


def test_of_a_step_by_shard_the_same_shard_of_a_step_over_all_every_shard(inputs: RuleInputs) -> None:
    assert inputs.verdicts_before("dedup")(SHARD) == ["results/main/lines/select/00001.manifest.json"]
    assert inputs.edits("dedup")(SHARD) == ["results/main/lines/score/00001.manifest.json"]
    assert inputs.edits("lines")(SHARD) == []
    assert inputs.words_of(inputs.edits(), MAIN) == ["results/main/lines/score/{00000..00002}.manifest.json"]
    assert inputs.verdicts()(SHARD) == [
        "results/main/ingest/check/manifest.json",
        "results/main/language/select/00001.manifest.json",
        "results/main/lines/select/00001.manifest.json",
        "results/main/dedup/select/manifest.json",
    ]


def test_an_ordinary_filter_reads_what_its_step_declares(inputs: RuleInputs) -> None:
    assert list(inputs.scored_texts("url.score")) == ["documents", "verdicts"]
    assert list(inputs.scored_texts("lines.score")) == ["documents", "verdicts", "edits"]
    assert list(inputs.scored_texts("pii.score")) == ["documents", "verdicts", "edits", "languages"]


def test_what_is_read_only_if_the_config_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for by, read in ((None, []), ("language", ["results/main/language/score/{00000..00002}.manifest.json"])):
        select = {"by": by} if by else {}
        inputs = inputs_of(tmp_path, monkeypatch, filters=["language", "quality"], quality={"select": select})
        assert inputs.words_of(inputs.manifests_if_needed("language.score", by="quality.select"), MAIN) == read


def test_models_and_what_they_are_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "sft": {"from": "base", "step": "finetune.train"},
        "int8": {"from": "sft", "step": "compress.quantize"},
        "awq": {"from": "sft", "step": "compress.quantize", "method": "awq"},
        "soup": {"from": "sft", "step": "compress.merge", "with": ["base"]},
    }
    inputs = inputs_of(tmp_path, monkeypatch, filters=[], models=models)
    base, sft = "results/main/pretrain/train/manifest.json", "results/main/finetune/train/sft.manifest.json"
    int8, awq = (SimpleNamespace(variant="main", model=name) for name in ("int8", "awq"))
    assert inputs.model()(int8) == ["results/main/compress/quantize/int8.manifest.json"]
    assert inputs.parent()(int8) == [sft]
    assert inputs.lineage()(int8) == [sft, base]
    assert inputs.other_parents()(SimpleNamespace(variant="main", model="soup")) == [base]
    assert inputs.other_parents()(int8) == []
    calibrating = inputs.manifests_if_needed("tokenize.encode", by="compress.quantize")
    assert calibrating(int8) == [] and calibrating(awq) == ["results/main/tokenize/encode/00000.manifest.json"]


def test_several_inputs_as_one(inputs: RuleInputs) -> None:
    function = inputs.join_inputs(inputs.manifests("ingest.extract"), inputs.verdicts_before("language"))
    assert function(MAIN) == [
        "results/main/ingest/extract/00000.manifest.json",
        "results/main/ingest/check/manifest.json",
    ]
    assert inputs.words_of(function, MAIN) == [
        "results/main/ingest/extract/{00000..00002}.manifest.json",
        "results/main/ingest/check/manifest.json",
    ]


def test_a_variant_reads_its_own_and_what_main_has_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"language": {"select": {"threshold": 0.9}}}
    inputs = inputs_of(tmp_path, monkeypatch, filters=["language", "lines"], variants={"other": other})
    wildcards = SimpleNamespace(variant="other", shard="00000")
    assert inputs.manifest("language.score", "language.select")(wildcards) == [
        "results/main/language/score/00000.manifest.json",
        "results/other/language/select/00000.manifest.json",
    ]
    assert inputs.manifests_of_main("corpus.split")(wildcards) == ["results/main/corpus/split/manifest.json"]
    assert inputs.edits_of_main()(wildcards) == ["results/main/lines/score/00000.manifest.json"]
    assert inputs.manifests_of_all_variants("report.render")(MAIN) == [
        "results/main/report/render/manifest.json",
        "results/other/report/render/manifest.json",
    ]
