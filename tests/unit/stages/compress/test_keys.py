"""What an edit of a key of these steps reruns: the models of the step, or nothing where the key only says how it runs."""

from __future__ import annotations

from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain import config_schema, steps
from crawl2llm.chain.fingerprint import fingerprint
from tests.workflow.expectations import matrix

KEYS = {path: entries[0]["to"] for path, entries in matrix().items() if path.startswith("compress.")}
SFT = {"from": "base", "step": "finetune.train"}
TEACH = "compress.teach."  # has no models of its own
NODES = {path: node for path, node in config_schema.schema_leaves() if path in KEYS}


def prints(step: str, **own: Any) -> dict[tuple[str, str], str]:
    """The fingerprints of two models of a step, of which `small` has keys of its own, and of their evaluations."""
    entry = {"from": "base", "step": step}
    made = configuration.validate({"models": {"small": {**entry, **own}, "other": entry, "sft": SFT}})
    return {
        (name, task): fingerprint(name, made, task=task)
        for name in ("pretrain.train", step, "evaluate.model")
        for task in steps.task_models(name, made)
    }


def test_every_key_has_another_value() -> None:
    assert len(KEYS) > 30 and set(KEYS) == {
        path for path, _ in config_schema.schema_leaves() if path.startswith("compress.")
    }


@pytest.mark.parametrize("path", [path for path in KEYS if path.startswith(TEACH)])
def test_a_key_of_what_a_teacher_says_reruns_that(path: str) -> None:
    """The student hears of it by what it reads."""
    key, students = path.removeprefix(TEACH), {"small": {"from": "base", "step": "compress.distil", "top_k": 1}}
    one, other = (
        configuration.validate({"models": students, "compress": {"teach": teach}}) for teach in ({}, {key: KEYS[path]})
    )
    assert steps.task_models("compress.teach", one) == ["base"]
    assert steps.upstream_tasks("compress.distil", one, "small")[-1] == ("compress.teach", "base")
    changed = fingerprint("compress.teach", one, task="base") != fingerprint("compress.teach", other, task="base")
    assert changed == (not NODES[path].get("placement"))


@pytest.mark.parametrize("path", [path for path in KEYS if not path.startswith(TEACH)])
def test_a_key_reruns_the_model_that_has_it(path: str) -> None:
    stage, name, key = path.split(".")
    before, after = prints(f"{stage}.{name}"), prints(f"{stage}.{name}", **{key: KEYS[path]})
    changed = {of for of in before if before[of] != after[of]}
    assert ((f"{stage}.{name}", "small") in changed) == (not NODES[path].get("placement"))
    assert not {of for of in changed if of[1] != "small"}
