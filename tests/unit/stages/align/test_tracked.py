"""What an edit of a key of `align` reruns where a model is aligned, and that nothing of it is there where none is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain import config_schema, fingerprint, model_registry, steps
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import checks
from tests.workflow.expectations import matrix

MODELS = {"sft": {"from": "base", "step": "finetune.train"}, "dpo": {"from": "sft", "step": "align.train"}}
REWARD = {"rm": {"from": "sft", "step": "align.reward"}}
ALIGNING = [("align.pairs", ""), ("align.reward", "rm"), ("align.train", "dpo")]
LEAVES = {path: node for path, node in config_schema.schema_leaves() if path.startswith("align.")}


def config(changes: dict[str, Any] | None = None, models: dict[str, Any] | None = None) -> dict[str, Any]:
    tree: dict[str, Any] = {"models": MODELS if models is None else models}
    for path, value in (changes or {}).items():
        node = tree
        *sections, leaf = path.split(".")
        for part in sections:
            node = node.setdefault(part, {})
        node[leaf] = value
    return configuration.validate(tree)


def mark(made: dict[str, Any], step: str, task: str) -> str:
    return fingerprint.fingerprint(step, made, None, task)


@pytest.mark.parametrize("path", LEAVES)
def test_a_key_reruns_its_step(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = matrix()[path][0]["to"]
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    for name in (entry["path"] for entry in entries if "path" in entry):
        (tmp_path / str(name)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / str(name)).write_text("{}")
    before, after = config(models=MODELS | REWARD), config({path: value}, MODELS | REWARD)
    assert configuration.lookup(before, path) != configuration.lookup(after, path)
    differ = {step for step, task in ALIGNING if mark(before, step, task) != mark(after, step, task)}
    placed, own = LEAVES[path].get("placement"), ".".join(path.split(".")[:2])
    reads_it = {step for step, _ in ALIGNING} if own == "align.pairs" else {own}
    assert differ == (set() if placed else reads_it)
    assert mark(before, "finetune.train", "sft") == mark(after, "finetune.train", "sft")


@pytest.mark.parametrize(
    ("own", "align", "why"),
    [
        (
            {"method": "dpo"},
            {"align.pairs.files": [{"path": "a.jsonl", "layout": "labels"}, {"path": "b.jsonl", "layout": "prompts"}]},
            r"models\.dpo\.method is 'dpo', which takes rows of layout preference, .* a\.jsonl \(labels\), b\.jsonl \(prompts\); give",
        ),
        (
            {"method": "kto"},
            {"align.pairs.files": [{"path": "b.jsonl", "layout": "prompts"}]},
            r"models\.dpo\.method is 'kto', which takes rows of layout preference or labels, .* b\.jsonl \(prompts\)",
        ),
        (
            {"step": "align.reward"},
            {"align.pairs.files": [{"path": "a.jsonl", "layout": "labels"}]},
            r"models\.dpo\.step is 'align\.reward', which takes rows of layout preference, .* a\.jsonl \(labels\)",
        ),
        ({}, {}, r"align\.train\.method is 'dpo', and align\.pairs\.files is \[\]"),
        ({"method": "kto"}, {}, r"models\.dpo\.method is 'kto', and align\.pairs\.files is \[\]"),
        ({"method": "grpo"}, {}, r"align\.train\.rewards is \[\]; method 'grpo' needs one or more"),
        ({"method": "grpo", "rewards": [{"reward": "format"}]}, {}, r"models\.dpo\.rewards\[0\] lacks `pattern`"),
        (
            {"method": "rloo", "rewards": [{"reward": "exact"}], "generations": 1},
            {},
            r"models\.dpo\.generations is 1; method 'rloo'",
        ),
        (
            {"method": "grpo", "rewards": [{"reward": "exact"}]},
            {"align.train.max_new_tokens": 128},
            r"align\.train\.max_new_tokens is 128; allowed is less than align\.train\.max_length, 128",
        ),
        (
            {},
            {"align.pairs.from": "dpo"},
            r"align\.pairs\.from is 'dpo', which is aligned, or made from such a model; allowed: base, sft$",
        ),
        ({}, {"align.pairs.from": "x"}, r"align\.pairs\.from is 'x', which is no model; allowed: base, sft$"),
        ({}, {"align.pairs.from": "sft"}, r"align\.pairs\.rewards is \[\]; answers of 'sft' need one or more"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run(own: dict[str, Any], align: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        checks.check_alignment(config(align, {**MODELS, "dpo": {**MODELS["dpo"], **own}}))


def test_no_step_without_a_model_of_it() -> None:
    assert not {"align.pairs", "align.train"} & set(steps.used_steps(config(models={"sft": MODELS["sft"]})))
    drawn = config({"align.pairs.from": "sft"})
    assert steps.upstream_tasks("align.pairs", drawn) == [("finetune.train", "sft"), ("finetune.pairs", "")]
    assert steps.upstream_tasks("align.pairs", config()) == [("finetune.pairs", "")]
    assert [step for step in steps.used_steps(config()) if step.startswith("align.")] == ["align.pairs", "align.train"]
    assert steps.upstream_tasks("align.train", config(), "dpo") == [("finetune.train", "sft"), ("align.pairs", "")]
    assert ("align.train", "dpo") in steps.upstream_tasks("evaluate.model", config(), "dpo")


def test_a_reward_model_is_no_language_model() -> None:
    made = config({"align.pairs.files": [{"path": "rows.jsonl"}]}, MODELS | REWARD)
    checks.check_alignment(made)
    assert [step for step in steps.used_steps(made) if step.startswith("align.")] == [
        "align.pairs",
        "align.reward",
        "align.train",
    ]
    assert steps.upstream_tasks("align.reward", made, "rm") == [("finetune.train", "sft"), ("align.pairs", "")]
    assert "rm" not in steps.task_ids("evaluate.model", made) and "rm" not in steps.task_ids("evaluate.generate", made)
    assert ("align.reward", "rm") in steps.upstream_tasks("report.render", made)
    assert "rm" in [model["name"] for model in model_registry.model_rows(made)]
    alone = config(models=REWARD | {"sft": MODELS["sft"]})
    assert "align.pairs" in steps.used_steps(alone)
    with pytest.raises(InputError, match=r"models\.rm\.step is 'align\.reward', and align\.pairs\.files is \[\]"):
        checks.check_alignment(alone)
    mixture = config(
        {"pretrain.train.model.type": "mixtral", "align.pairs.files": [{"path": "rows.jsonl"}]}, REWARD | MODELS
    )
    with pytest.raises(InputError, match=r"takes no pretrain\.train\.model\.type 'mixtral'"):
        checks.check_alignment(mixture)
    with pytest.raises(InputError, match=r"align\.pairs\.from is 'rm', .*allowed: base, sft$"):
        checks.check_alignment(config({"align.pairs.from": "rm"}, MODELS | REWARD))


JUDGED = {"from": "sft", "step": "align.train", "method": "grpo", "rewards": [{"reward": "model", "name": "rm"}]}


def test_a_reward_model_is_read_by_what_it_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("")
    files = {"align.pairs.files": [{"path": "rows.jsonl"}]}
    models = MODELS | REWARD | {"grpo": JUDGED}
    made, other = (config(files, {**models, "rm": {**REWARD["rm"], "epochs": epochs}}) for epochs in (1, 2))
    checks.check_alignment(made)
    assert steps.upstream_tasks("align.train", made, "grpo") == [
        ("finetune.train", "sft"),
        ("align.reward", "rm"),
        ("align.pairs", ""),
    ]
    assert steps.upstream_tasks("align.train", made, "dpo") == [("finetune.train", "sft"), ("align.pairs", "")]
    assert mark(made, "align.train", "grpo") != mark(other, "align.train", "grpo")
    assert mark(made, "align.train", "dpo") == mark(other, "align.train", "dpo")


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("x", {}, "which is no model; allowed: rm$"),
        ("sft", {}, r"which align\.reward does not make; allowed: rm$"),
        ("late", {"late": {"from": "grpo", "step": "align.reward"}}, "which waits for grpo itself; allowed: rm$"),
        (
            "late",
            {"late": {"from": "other", "step": "align.reward"}, "other": {**JUDGED, "from": "grpo"}},
            "which waits for grpo itself; allowed: rm$",
        ),
    ],
)
def test_reward_models_that_cannot_judge(name: str, more: dict[str, Any], why: str) -> None:
    judged = {**JUDGED, "rewards": [{"reward": "exact"}, {"reward": "model", "name": name}]}
    made = config({"align.pairs.files": [{"path": "rows.jsonl"}]}, MODELS | REWARD | {"grpo": judged} | more)
    with pytest.raises(InputError, match=rf"models\.grpo\.rewards\[1\]\.name is '{name}', {why}"):
        checks.check_alignment(made)


def test_a_reward_model_of_the_run_does_not_judge_what_it_learns_from() -> None:
    made = config(
        {"align.pairs.from": "sft", "align.pairs.rewards": [{"reward": "model", "name": "rm"}]}, MODELS | REWARD
    )
    with pytest.raises(InputError, match=r"align\.pairs\.rewards\[0\]\.name is 'rm': .* give the `manifest`"):
        checks.check_alignment(made)


ASKED: dict[str, Any] = {"align.pairs.from": "sft", "align.pairs.rewards": [{"reward": "endpoint"}]}


@pytest.mark.parametrize(
    ("changes", "own", "why"),
    [
        (ASKED, {}, r"align\.pairs\.rewards\[0\]\.reward is 'endpoint', and align\.pairs\.judge\.model is null"),
        (
            {**ASKED, "align.pairs.judge.model": "big", "align.pairs.judge.scale": [5, 5]},
            {},
            r"align\.pairs\.judge\.scale is \[5, 5\]; its second number must be the greater one",
        ),
        (
            {**ASKED, "align.pairs.judge.model": "big", "align.pairs.rewards": [{"reward": "exact"}]},
            {},
            r"align\.pairs\.judge\.model is 'big', and no entry of align\.pairs\.rewards is \{reward: endpoint\}",
        ),
        (
            {**ASKED, "align.pairs.rewards": [{"reward": "endpoint", "most": 3}]},
            {},
            r"align\.pairs\.rewards\[0\]\.most goes with another reward; allowed beside this one: reward, weight$",
        ),
        (
            {},
            {"method": "grpo", "rewards": [{"reward": "exact"}, {"reward": "endpoint"}]},
            r"models\.dpo\.rewards\[1\]\.reward is 'endpoint', which judges in align\.pairs\.rewards alone: answers are drawn at each step",
        ),
    ],
)
def test_an_endpoint_that_cannot_judge(changes: dict[str, Any], own: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        checks.check_alignment(config(changes, {**MODELS, "dpo": {**MODELS["dpo"], **own}}))


def test_a_judge_is_tracked_and_where_it_is_asked_is_not() -> None:
    """Without one nothing of it is in the step's settings, as before there was any."""
    assert "judge" not in fingerprint.tracked_settings("align.pairs", config())
    given = {**ASKED, "align.pairs.judge.model": "big"}
    made, moved, other = (
        config({**given, **more})
        for more in (
            {},
            {"align.pairs.judge.endpoint": "http://127.0.0.1:9/v1", "align.pairs.judge.cache": "elsewhere"},
            {"align.pairs.judge.prompt": "Score {answer}"},
        )
    )
    checks.check_alignment(made)
    assert fingerprint.tracked_settings("align.pairs", made)["judge"] == {"model": "big"}
    assert mark(made, "align.train", "dpo") == mark(moved, "align.train", "dpo") != mark(other, "align.train", "dpo")


def test_the_manifest_of_a_reward_model_is_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rm.manifest.json").write_text("{}")
    judged = {**JUDGED, "rewards": [{"reward": "model", "manifest": "rm.manifest.json"}]}
    made = config({}, MODELS | {"grpo": judged})
    marks = [mark(made, "align.train", "grpo")]
    (tmp_path / "rm.manifest.json").write_text('{"step": 1}')
    assert mark(made, "align.train", "grpo") != marks[0]


def test_the_folder_of_data_stands_in_the_file_of_a_function() -> None:
    made = config(
        {"data": "/far/away", "align.train.rewards": [{"function": "{data}/mine.py:ends"}, {"reward": "exact"}]},
        {**MODELS, "dpo": {**MODELS["dpo"], "rewards": [{"function": "{data}/own.py:ends"}]}},
    )
    assert made["align"]["train"]["rewards"] == [{"function": "/far/away/mine.py:ends"}, {"reward": "exact"}]
    assert made["models"]["dpo"]["rewards"] == [{"function": "/far/away/own.py:ends"}]


@pytest.mark.parametrize("step", ["align.train", "align.pairs"])
def test_manifests_of_reward_models_that_are_refused(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of this run: it may be made again after it has judged. One of another step."""
    monkeypatch.chdir(tmp_path)

    def made(manifest: str) -> dict[str, Any]:
        entries = [{"reward": "model", "manifest": manifest}]
        files = {"align.pairs.files": [{"path": "rows.jsonl"}]}
        if step == "align.pairs":
            return config({**files, "align.pairs.from": "sft", "align.pairs.rewards": entries}, MODELS | REWARD)
        return config(files, MODELS | {"grpo": {**JUDGED, "rewards": entries}})

    with pytest.raises(
        InputError, match=r"rewards\[0\]\.manifest is 'results/main/align/reward/rm.*a result of this run"
    ):
        checks.check_alignment(made("results/main/align/reward/rm.manifest.json"))
    Manifest("align.train", "0" * 16).write(tmp_path / "dpo.manifest.json", [])
    with pytest.raises(InputError, match=r"rewards\[0\]\.manifest is 'dpo.*, a manifest of 'align.train'"):
        checks.check_alignment(made("dpo.manifest.json"))
    Manifest("align.reward", "0" * 16).write(tmp_path / "rm.manifest.json", [])
    checks.check_alignment(made("rm.manifest.json"))
