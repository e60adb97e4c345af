"""Who is judged with whom, what it depends on, and which sweeps are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import halving, steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.chain.project import Project
from crawl2llm.core.errors import ConfigError
from crawl2llm.workflow.project_checks import check_project

RATE = "pretrain.train.learning_rate"
SOURCE = {"name": "books", "kind": "text", "paths": ["a.txt"]}


def config(**more: Any) -> dict[str, Any]:
    sweep = {"grid": {RATE: [1e-3, 2e-3]}, "halving": {"rungs": [0.25, 0.5]}}
    return validate({"ingest": {"extract": {"shards": 1, "sources": [SOURCE]}}, "sweep": sweep, **more})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    return tmp_path


def test_seeds_of_a_setting_are_one_and_equal_trainings_one_contender() -> None:
    sweep = {"grid": {RATE: [1e-3]}, "seeds": 2, "halving": {"rungs": [0.5]}}
    whole = validate({"sweep": sweep, "variants": {"other": {"evaluate": {"model": {"questions": 3}}}}})
    assert halving.setting_by_contender(whole) == {
        "main": "main",
        "seed-1": "main",
        "learning_rate-0_001": "learning_rate-0_001",
        "learning_rate-0_001-seed-1": "learning_rate-0_001",
    }
    assert halving.rung_tasks(whole)[0] == "main-rung1" and len(halving.rung_tasks(whole)) == 4


def test_a_variant_knows_whom_it_is_judged_with_and_a_completed_config_stays() -> None:
    whole = config()
    own = config_of_variant(whole, "learning_rate-0_002")
    assert halving.setting_by_contender(own) == halving.setting_by_contender(whole) and halving.rung_tasks(
        own
    ) == halving.rung_tasks(whole)
    assert halving.contender_section(own, "learning_rate-0_001")["learning_rate"] == 1e-3
    assert validate(whole) == whole


def test_contenders_that_pack_documents_have_their_windows_packed_once() -> None:
    auto = {"packing": "best_fit", "model": {"context": "auto"}}
    variants = {"packed": auto, "longer": {"packing": "best_fit", "model": {"context": 64}}, "cut": {}}
    whole = config(variants={name: {"pretrain": {"train": train}} for name, train in variants.items()})
    for name in ("main", "packed"):
        mine = config_of_variant(whole, name)
        batch = mine["pretrain"]["train"]["global_batch_tokens"]
        assert steps.extra_settings(steps.PACK, mine) == {
            "trainings": [{"context": "auto", "global_batch_tokens": batch}, {"context": 64}]
        }
        assert steps.is_read(steps.PACK, "pretrain.train", mine) == (name == "packed")
        readers = [task for task in halving.rung_tasks(mine) if steps.is_read(steps.PACK, steps.RUNG, mine, task)]
        assert readers == ["packed-rung1", "longer-rung1", "packed-rung2", "longer-rung2"]
    assert not steps.is_used(steps.PACK, config())


def test_without_rungs_or_with_main_alone_there_are_no_steps() -> None:
    for sweep in ({"grid": {RATE: [1e-3]}}, {"halving": {"rungs": [0.5]}}, {"seeds": 3, "halving": {"rungs": [0.5]}}):
        assert not {steps.RUNG, steps.HALVE} & set(steps.used_steps(validate({"sweep": sweep})))


def test_rungs_are_main_s_for_every_variant_and_follow_each_other(here: Path) -> None:
    project = Project(config())
    check_project(project)
    for name in project.variants:
        for task in steps.task_ids(steps.RUNG, project.variants[name]):
            assert project.manifest_path(name, steps.RUNG, task) == f"results/main/pretrain/rung/{task}.manifest.json"
            assert project.fingerprint(name, steps.RUNG, task) == project.fingerprint("main", steps.RUNG, task)
        assert project.manifest_path(name, steps.HALVE) == "results/main/pretrain/halve/manifest.json"
    assert len({project.step_folder(name, "pretrain.train") for name in project.variants}) == 3


def test_a_first_rung_depends_on_its_own_training_alone_and_later_ones_on_the_judgement(here: Path) -> None:
    def marks(**more: Any) -> dict[str, str]:
        project = Project(config(**more))
        return {
            task: project.fingerprint("main", steps.RUNG, task) for task in halving.rung_tasks(project.variants["main"])
        }

    before, added = marks(), marks(variants={"more": {"pretrain": {"train": {"weight_decay": 0.2}}}})
    same = {task for task in before if before[task] == added[task]}
    assert same == {task for task in before if task.endswith("-rung1")}
    placed = marks(variants={"more": {"pretrain": {"train": {"micro_batch": 1}}}})
    assert placed == before, "placement decides nothing"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"variants": {"few": {"quality": {"select": {"keep_fraction": 0.1}}}}}, "the variant few has another tokenize.train"),
        ({"variants": {"small": {"tokenize": {"train": {"vocabulary": 700}}}}}, "the variant small has another tokenize"),
        ({"variants": {"v": {"pretrain": {"train": {"validation_tokens": 7}}}}}, "the variant v has other pretrain.train.val"),
        ({"pretrain": {"mix": {"phases": [{"temperature": 3}]}}}, "main has pretrain.mix.phases"),
        ({"sweep": {"grid": {RATE: [1e-3]}, "halving": {"rungs": [0.5, 0.25]}}}, "the shares do not rise"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_by_name(here: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_project(Project(config(**more)))
