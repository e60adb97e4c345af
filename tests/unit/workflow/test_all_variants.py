"""report.compare depends on every variant: by its fingerprint, and by its inputs, which name the variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.project import Project
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.report import variants
from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps.read import Variant, input_digests

STEP = steps.COMPARE_ALL


def config(**hot: Any) -> dict[str, Any]:
    source = {"name": "a", "kind": "text", "paths": ["a.txt"]}
    hot = {"pretrain": {"train": {"learning_rate": 0.01}}} | hot
    return validate({"ingest": {"extract": {"shards": 1, "sources": [source]}}, "variants": {"hot": hot, "same": {}}})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A page.")


def test_main_alone_has_the_page_and_only_with_variants() -> None:
    project = Project(config())
    assert [name for name, one in project.variants.items() if steps.is_used(STEP, one)] == ["main"]
    assert not steps.is_used(STEP, validate({}))
    assert steps.REPORT_STEP in steps.needed_steps(STEP, project.variants["main"])


def test_its_fingerprint_is_that_of_all_variants() -> None:
    project = Project(config())
    mark = project.fingerprint("main", STEP)
    assert mark == fingerprint(STEP, config())  # as a program that is started by hand finds it
    assert {"main/report.render", "hot/report.render", "same/report.render"} < json.loads(mark)["upstream"].keys()
    assert json.loads(mark)["config"]["main"] == {"pretrain.train.learning_rate": "auto"}
    other = config(pretrain={"train": {"learning_rate": 0.02}})
    assert Project(other).fingerprint("main", STEP) != mark
    assert Project(config(tokenize={"train": {"vocabulary": 700}})).fingerprint("main", STEP) != mark


def test_variants_with_the_same_files_are_one_training() -> None:
    """Whatever their configs say: the same as main, a default written out, the seed of a step that is not used."""
    more = {
        "default": {"pretrain": {"train": {"learning_rate": "auto"}}},
        "unused": {"dedup": {"select": {"threshold": 0.7}}},
    }
    more |= {"cores": {"evaluate": {"common": {"threads": 1}}}, "seed": {"pretrain": {"train": {"seed": 5}}}}
    source = {"name": "a", "kind": "text", "paths": ["a.txt"]}
    project = Project(
        validate(
            {"filters": [], "ingest": {"extract": {"shards": 1, "sources": [source]}}, "variants": {**more, "same": {}}}
        )
    )
    found, _ = variants.read_comparison(project, CompareSettings())
    assert [row["name"] for row in found["settings"]] == ["main"] and len(found["settings"][0]["variants"]) == 6
    same = {row["name"]: row["same_as"] for row in found["variants"]}
    assert same == {"main": None, "seed": None} | dict.fromkeys(["default", "unused", "cores", "same"], "main")


def test_an_input_of_another_variant_is_compared_with_that_variants() -> None:
    project = Project(config())
    path = Path(project.manifest_path("hot", "pretrain.train"))
    assert path == Path("results/hot/pretrain/train/manifest.json")
    made = Manifest("pretrain.train", "mark", summary={"tokens": 5}).write(path, [])
    inputs = input_digests([Variant("hot", {"pretrain.train": {"": made}})])
    assert list(inputs) == ["hot/pretrain.train"]
    page = Manifest(STEP, "mark", inputs=inputs)
    page.write(Path(project.manifest_path("main", STEP)), [])
    assert project.freshness["main"].damage_reason(page) is None
    Manifest("pretrain.train", "mark", summary={"tokens": 6}).write(path, [])
    assert Project(config()).freshness["main"].damage_reason(page) == "hot/pretrain.train holds other data"
