"""Each stage and filter declares its settings beside its code, and the whole config is made of them."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from crawl2llm.chain import model_registry, settings_registry, stage_names
from crawl2llm.chain.config_schema import schema, schema_errors, schema_leaves, schema_section, schema_validator
from crawl2llm.chain.steps import STEPS
from crawl2llm.core.nested_dicts import nest_value
from crawl2llm.core.root import ROOT

CODE = Path("scripts/crawl2llm")
FILES = sorted((ROOT / CODE).glob("*/*/settings.py"))
SHARED = [ROOT / CODE / "training" / name for name in ("pretraining_settings.py", "shared_settings.py")]


def test_each_stage_and_filter_declares_its_own() -> None:
    assert sorted(path.parent.name for path in FILES) == sorted(stage_names.ALL_NAMES)
    assert list(schema()["properties"])[-len(stage_names.ALL_NAMES) :] == list(stage_names.ALL_NAMES)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_a_class_of_its_settings(step: str) -> None:
    kind = settings_registry.settings_class(step)
    assert kind.__name__ == f"{step.partition('.')[2].capitalize()}Settings"
    assert [field.alias or name for name, field in kind.model_fields.items()] == list(
        schema_section(step)["properties"]
    )


@pytest.mark.parametrize("path", ["nothing", "language.nothing", "language.select.threshold", "sweep"])
def test_a_path_of_no_section_of_a_stage_has_none(path: str) -> None:
    with pytest.raises(KeyError):
        settings_registry.settings_class(path)


@pytest.mark.parametrize("path", [*FILES, *SHARED], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_settings_declare_and_compute_nothing(path: Path) -> None:
    """An edit of these modules reruns nothing (chain/unhashed.py), so nothing that decides bytes can stand there beside a value."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    others = imported - {"typing", "crawl2llm.core.setting_types"}
    assert all(name and name.endswith("settings") for name in others)


VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    2.5,
    -1,
    "",
    "auto",
    "a",
    float("nan"),
    [],
    ["a"],
    ["a", "a"],
    {},
    {"a": 1},
    10**12,
]


@pytest.mark.parametrize("name", stage_names.ALL_NAMES)
def test_the_classes_and_the_schema_take_the_same(name: str) -> None:
    """The classes decide, and errors are those of the schema: for each value that one refuses, the other has a line."""
    kind, checking = settings_registry.settings_class(name), schema_validator(schema_section(name))
    for path, node in schema_leaves(schema_section(name)):
        more = [node[word] + change for word in ("minimum", "maximum") if word in node for change in (-1, 0, 1)]
        for value in [*VALUES, *node.get("enum", []), node["default"], *more]:
            section = nest_value(path, value)
            try:
                kind.model_validate(section)
                accepted = True
            except ValidationError:
                accepted = False
            assert accepted is checking.is_valid(section), (path, value)


RUN_CONFIGS: list[tuple[Any, bool]] = [
    ({"data": ""}, False),
    ({"variants": {"main": {}}}, False),
    ({"variants": {"small": {"tokenize": {}}}}, True),
    ({"filters": ["url", "language"]}, True),
    ({"filters": ["langauge"]}, False),
    ({"filters": ["language", "language"]}, False),
    ({"sweep": {"random": {"keys": {"a.b": [1]}}}}, True),
    ({"sweep": {"random": {"keys": {"a.b": {"low": 1, "high": 2.5, "log": True}}}}}, True),
    ({"sweep": {"random": {"keys": {"a.b": {"low": 1}}}}}, False),
    ({"sweep": {"random": {"keys": {"a.b": []}}}}, False),
    ({"sweep": {"halving": {"rungs": [0.5, 0.5]}}}, False),
    ({"sweep": {"mixes": [{}]}}, False),
    (None, False),
    ([], False),
    ({"nothing": 1}, False),
]


@pytest.mark.parametrize(("config", "accepted"), RUN_CONFIGS, ids=str)
def test_the_sections_of_no_stage_take_what_the_schema_takes(config: Any, accepted: bool) -> None:
    assert settings_registry.is_accepted(config) is accepted
    assert schema_validator(schema()).is_valid(config) is accepted


MODELS: list[tuple[Any, bool]] = [
    ({}, True),
    ({"sft": None}, True),
    ({"sft": {"from": "base", "step": "finetune.train"}}, True),
    ({"sft": {"from": "base", "step": "finetune.train", "epochs": 2}}, True),
    ({"sft": {"from": "base", "step": "finetune.train", "epochs": -2}}, False),
    ({"sft": {"from": "base", "step": "finetune.train", "epoch": 2}}, False),
    ({"sft": {"from_": "base", "from": "base", "step": "finetune.train"}}, False),
    ({"sft": {"from": "base", "step": "pretrain.train"}}, False),
    ({"sft": {"step": "finetune.train"}}, True),  # refused with the allowed parents (chain/model_registry.py)
    ({"tiny": {"path": "a"}}, True),
    ({"tiny": {"path": "a", "epochs": 2}}, False),
    ({"base": {"from": "base", "step": "finetune.train"}}, False),
    ({"sft": []}, False),
]


@pytest.mark.parametrize(("models", "accepted"), MODELS, ids=str)
def test_a_model_takes_the_keys_of_its_step(models: Any, accepted: bool) -> None:
    config = {"models": models}
    assert settings_registry.is_accepted(config) is accepted
    assert bool(schema_errors(config)) is not accepted
    assert schema_validator(model_registry.schema_with_models(schema(), models)).is_valid(config) is accepted


CODE_OF_FINGERPRINTS = """
import json
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import fingerprint
config = validate({})
print(json.dumps({step: fingerprint(step, config) for step in ("language.score", "language.select")}))
"""


def fingerprints(root: Path, folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(root / "scripts")}
    done = subprocess.run(
        [sys.executable, "-c", CODE_OF_FINGERPRINTS], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )  # fmt: skip
    return {step: json.loads(mark) for step, mark in json.loads(done.stdout).items()}


def test_a_default_counts_and_its_description_does_not(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    path = root / CODE / "filters/language/settings.py"
    text = path.read_text(encoding="utf-8")
    before = fingerprints(root, tmp_path)

    path.write_text(text.replace("Least probability of", "The least probability of"), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    assert fingerprints(root, tmp_path) == before

    path.write_text(text.replace("setting(0.65", "setting(0.66"), encoding="utf-8")
    after = fingerprints(root, tmp_path)
    assert after["language.score"] == before["language.score"]
    assert after["language.select"]["config"] == {**before["language.select"]["config"], "threshold": 0.66}
    assert after["language.select"]["code"] == before["language.select"]["code"]
