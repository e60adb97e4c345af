"""The registry of models: what is refused and how, what each model is made from, and what an edit of one reruns."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.chain import model_registry, steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.config_schema import schema, tracked_section
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.errors import ConfigError

SFT = {"from": "base", "step": "finetune.train"}
CHAIN = {"sft": SFT, "other": {**SFT, "epochs": 2}, "sft2": {**SFT, "from": "sft", "learning_rate": 0.0002}}


def config(models: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return validate({**({} if models is None else {"models": models}), **more})


def refusal_text(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(yaml.safe_load(text))
    return str(caught.value)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("{a: {from: x, step: finetune.train}}", "models.a.from is 'x', which is no model; allowed: base"),
        ("{a: {from: a, step: finetune.train}}", "models.a.from is 'a', the model itself; allowed: base"),
        (
            "{a: {from: b, step: finetune.train}, b: {from: a, step: finetune.train}, c: {from: base, step: finetune.train}}",
            "models.a.from is 'b', which is made from it; allowed: base, c",
        ),
        (
            "{give: {from: base, step: compress.export}, a: {from: give, step: finetune.train}}",
            "models.a.from is 'give', which is exported, not trained; allowed: base",
        ),
        (
            "{a: {from: base, step: align.it}}",
            "models.a.step is 'align.it'; allowed are 'pretrain.published', 'pretrain.continue', 'finetune.train', "
            "'align.reward', 'align.train', 'compress.prune', 'compress.distil', 'compress.merge', 'compress.quantize', 'compress.export'",
        ),
        (
            "{q: {from: base, step: compress.quantize}, a: {from: q, step: finetune.train}, b: {from: base, step: finetune.train}}",
            "models.a.from is 'q', which compress.quantize makes, and no other model is made from one of those; allowed: base, b",
        ),
        (
            "{q: {from: base, step: compress.quantize}, r: {from: q, step: compress.quantize}}",
            "models.r.from is 'q', which compress.quantize makes, and no other model is made from one of those; allowed: base",
        ),
        (
            "{q: {from: base, step: compress.quantize, method: int3}}",
            "models.q.method is 'int3'; allowed are 'int8', 'nf4', 'int4', 'gptq', 'awq'",
        ),
        (
            "{r: {from: base, step: align.reward}, a: {from: r, step: compress.prune}}",
            "models.a.from is 'r', which align.reward makes, and no other model is made from one of those; allowed: base",
        ),
        (
            "{r: {from: base, step: align.reward}, a: {from: r, step: compress.export}}",
            "models.a.from is 'r', which align.reward makes, and no other model is made from one of those; allowed: base",
        ),
        (
            "{a: {from: base, step: compress.merge, with: [x]}}",
            "models.a.with names 'x', which is no model; allowed: base",
        ),
        (
            "{a: {from: base, step: compress.merge, with: [b]}, b: {from: a, step: finetune.train}}",
            "models.a.with names 'b', which is made from it; allowed: base",
        ),
        (
            "{a: {from: base, step: compress.merge, with: [a]}}",
            "models.a.with names 'a', the model itself; allowed: base",
        ),
        (
            "{q: {from: base, step: compress.quantize}, a: {from: base, step: compress.merge, over: q}}",
            "models.a.over names 'q', which compress.quantize makes, and no other model is made from one of those; allowed: base",
        ),
        ("{q: {from: base, step: compress.quantize, epochs: 1}}", "models.q.epochs is not a known key"),
        ("{a: {from: base}}", "models.a.from is 'base', and the entry names no step that makes the model: set models.a.step"),
        ("{a: {}}", "models.a has neither path nor hub: a published model has one of path"),
        ("{a: {path: x, hub: y/z}}", "models.a has path and hub: a published model has one of path"),
        ("{a: {hub: y/z}}", "models.a.revision is None; with hub it is the commit, 40 hexadecimal digits"),
        ("{a: {hub: y/z, revision: main}}", "models.a.revision is 'main'; allowed: a commit, 40 hexadecimal digits"),
        ("{a: {step: finetune.train}}", "models.a.from is not set; allowed: base"),
        ("{a: {path: x, epochs: 1}}", "models.a.epochs is not a known key"),
        ("{a: 3}", "models.a is 3, which is not of type object or null"),
        ("{base: {from: base, step: finetune.train}}", "models has the key 'base'; allowed are names of small letters"),
        ("{untrained: {from: base, step: finetune.train}}", "models has the key 'untrained'; allowed are names of small letters"),
        ("{A: {from: base, step: finetune.train}}", "models has the key 'A'; allowed are names of small letters"),
        (
            "{a: {from: base, step: finetune.train, learning_rte: 1}}",
            "models.a.learning_rte is not a known key (did you mean models.a.learning_rate?)",
        ),
        (
            "{a: {from: base, step: finetune.train, learning_rate: 2}}",
            "models.a.learning_rate is 2, out of range; allowed: number above 0 to 1",
        ),
        ("{a: {from: base, step: finetune.train, micro_batch_size: 2}}", "models.a.micro_batch_size is now called micro_batch"),
    ],
)  # fmt: skip
def test_refused_with_the_key_the_value_and_what_is_allowed(models: str, words: str) -> None:
    message = refusal_text(f"models: {models}")
    assert words in message and message.count("\n") == 0, message


def test_a_chain_below_a_cycle_is_not_told_of_as_well() -> None:
    message = refusal_text(yaml.safe_dump({"models": {"a": {**SFT, "from": "a"}, "b": {**SFT, "from": "a"}}}))
    assert message.count("models.") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [("finetune.train.micro_batch_size", "micro_batch"), ("pretrain.train.threads_per_process", "threads")],
)
def test_an_old_name_is_refused_with_the_new_one(old: str, new: str) -> None:
    stage, step, key = old.split(".")
    assert f"{old} is now called {new}" in refusal_text(yaml.safe_dump({stage: {step: {key: 2}}}))


def test_the_default_is_one_fine_tuned_model_and_none_is_allowed() -> None:
    assert model_registry.language_models(config()) == ["base", "sft"]
    assert (
        model_registry.language_models(config({})) == model_registry.language_models(config({"sft": None})) == ["base"]
    )
    assert steps.task_ids("finetune.train", config({})) == []
    assert steps.needed_steps("evaluate.model", config({})) == (
        "pretrain.train",
        "finetune.pairs",
        "tokenize.encode",
        "evaluate.items",
    )


def test_an_overlay_changes_one_key_of_one_model_takes_one_away_or_adds_one() -> None:
    overlays = {
        "hot": {"models": {"sft": {"learning_rate": 0.01}}},
        "bare": {"models": {"sft": None}},
        "more": {"models": {"sft": None, "other": {**SFT, "wandb": "offline"}}},
        "wide": {"models": {"sft": {"processes": 2}}},
    }
    validate({"variants": overlays})
    for models, words in (
        ({"sft": {"lerning_rate": 2}}, "variants.v: models.sft.lerning_rate is not a known key"),
        ({"sft": {"from": "sft"}}, "variants.v: models.sft.from is 'sft', the model itself"),
        ({"sft": 3}, "variants.v: models.sft is 3, which is not of type object or null"),
        (["sft"], "variants.v: models is ['sft'], which is not of type object"),
    ):
        assert words in refusal_text(yaml.safe_dump({"variants": {"v": {"models": models}}}))


def test_the_untrained_model_is_evaluated_where_it_is_asked_for() -> None:
    """Whether it is decides no byte of another evaluation."""
    with_it, without = config(CHAIN), config(CHAIN, evaluate={"model": {"untrained": False}})
    assert steps.task_ids("evaluate.model", without) == ["base", "sft", "other", "sft2"]
    assert model_registry.language_models(with_it) == model_registry.language_models(
        without
    ) and "untrained" not in model_registry.language_models(with_it)
    before, after = fingerprints(with_it), fingerprints(without)
    changed = {of for of in before if after.get(of) != before[of]}
    assert changed == {("evaluate.model", "untrained"), ("report.render", "")}


def test_what_each_model_reads() -> None:
    made = config(CHAIN)
    assert steps.task_ids("finetune.train", made) == ["sft", "other", "sft2"]
    assert steps.task_ids("evaluate.model", made) == ["base", "sft", "other", "sft2", "untrained"]
    pairs, tokens, items = ("finetune.pairs", ""), ("tokenize.encode", ""), ("evaluate.items", "")
    assert steps.upstream_tasks("finetune.train", made, "sft") == [("pretrain.train", ""), pairs]
    assert steps.upstream_tasks("finetune.train", made, "sft2") == [("finetune.train", "sft"), pairs]
    assert steps.upstream_tasks("evaluate.model", made, "base") == [("pretrain.train", ""), pairs, tokens, items]
    assert steps.upstream_tasks("evaluate.model", made, "untrained") == steps.upstream_tasks(
        "evaluate.model", made, "base"
    )
    assert steps.upstream_tasks("evaluate.model", made, "sft2") == [("finetune.train", "sft2"), pairs, tokens, items]
    evaluated = [("evaluate.model", name) for name in ("base", *CHAIN, "untrained")]
    pages = [("report.inspect", ""), ("report.whatif", "")]
    assert sorted(steps.upstream_tasks("report.render", made)) == sorted(
        [*evaluated, ("evaluate.compare", ""), items, ("pretrain.plan", ""), *pages]
    )


def test_a_merged_model_is_made_from_all_that_it_names() -> None:
    soup = {"from": "sft2", "step": "compress.merge", "method": "ties", "with": ["other"], "over": "base"}
    made = config({**CHAIN, "soup": soup, "give": {"from": "soup", "step": "compress.export"}})
    assert model_registry.parents(made, "soup") == ["sft2", "other", "base"]
    assert model_registry.ancestors(made, "give") == ["soup", "sft2", "sft", "other", "base"], (
        "base after all that it became"
    )
    makers = [("pretrain.train", ""), ("finetune.train", "other"), ("finetune.train", "sft2")]
    assert steps.upstream_tasks("compress.merge", made, "soup") == makers
    assert "soup" in model_registry.language_models(made)
    named_in_section = config(
        {**CHAIN, "soup": {**SFT, "step": "compress.merge"}}, compress={"merge": {"with": ["sft"]}}
    )
    assert model_registry.parents(named_in_section, "soup") == ["base", "sft"]


def test_an_export_is_no_model() -> None:
    give = {"from": "sft2", "step": "compress.export", "licence": "mit"}
    made, without = config({**CHAIN, "give": give}), config(CHAIN)
    assert model_registry.language_models(made) == model_registry.language_models(
        without
    ) and model_registry.evaluated_models(made) == model_registry.evaluated_models(without)
    assert model_registry.model_rows(made) == model_registry.model_rows(without)
    assert steps.task_ids("compress.export", made) == ["give"] and "compress.export" not in steps.used_steps(without)
    assert model_registry.lineage(made, "give") == ["sft2", "sft", "base", "untrained"]
    read = steps.upstream_tasks("compress.export", made, "give")
    evaluated = [("evaluate.model", name) for name in ("base", "sft", "sft2", "untrained")]
    assert [of for of in read if of[0] == "evaluate.model"] == evaluated, "not those of other models"
    assert [of for of in read if of[0] in model_registry.MAKERS] == [
        ("pretrain.train", ""),
        ("finetune.train", "sft"),
        ("finetune.train", "sft2"),
    ]
    assert ("compress.export", "give") in steps.upstream_tasks("report.render", made)
    own = settings_of("compress.export", made, "give")
    assert own["licence"] == "mit" and own["lineage"] == ["sft2", "sft", "base", "untrained"]
    assert own["sources"]["demo"] == {"licence": None, "datasets": []}
    assert fingerprint("evaluate.compare", made) == fingerprint("evaluate.compare", without)


def test_a_models_own_keys_hold_for_it_alone() -> None:
    made = config(CHAIN, finetune={"train": {"warmup": 0.5}})
    rates = {name: settings_of("finetune.train", made, name)["learning_rate"] for name in CHAIN}
    assert rates == {"sft": 0.001, "other": 0.001, "sft2": 0.0002}
    assert all(settings_of("finetune.train", made, name)["warmup"] == 0.5 for name in CHAIN)
    assert settings_of("finetune.train", made) == tracked_section(made, "finetune.train")
    assert model_registry.section(config({"sft": {**SFT, "processes": 4}}), "finetune.train", "sft")["processes"] == 4


def test_the_steps_that_make_models_are_those_of_the_schema() -> None:
    allowed = schema()["properties"]["models"]["additionalProperties"]["properties"]["step"]["enum"]
    assert [model_registry.BASE_STEP, *allowed] == [*model_registry.MAKERS, model_registry.EXPORT_STEP]
    assert all(steps.STEPS[step].per == "model" for step in allowed)


def fingerprints(made: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The fingerprint of every task of the steps that models have, by (step, model)."""
    memo: dict[str, str] = {}
    tasks = [(step, task) for step in ("finetune.train", "evaluate.model") for task in steps.task_ids(step, made)]
    return {of: fingerprint(of[0], made, memo, of[1]) for of in [("pretrain.train", ""), *tasks, ("report.render", "")]}


@st.composite
def registries(draw: st.DrawFn) -> dict[str, Any]:
    """Up to six models, each from one that comes before it, in any order."""
    names = [f"m{number}" for number in range(draw(st.integers(0, 6)))]
    made = {name: {**SFT, "from": draw(st.sampled_from(["base", *names[:at]]))} for at, name in enumerate(names)}
    return {name: made[name] for name in draw(st.permutations(names))}


def above(made: dict[str, Any], step: str, task: str) -> set[tuple[str, str]]:
    """All that a task reads from, through others too."""
    near = steps.upstream_tasks(step, made, task)
    return {*near, *(far for of in near for far in above(made, *of))}


@settings(max_examples=30)
@given(registries())
def test_the_models_that_one_is_made_from_are_all_upstream_of_it(models: dict[str, Any]) -> None:
    made = config(models)
    for name in models:
        ancestors = {model_registry.making_task(made, other) for other in model_registry.ancestors(made, name)}
        found = above(made, "finetune.train", name)
        assert {of for of in found if of[0] in model_registry.MAKERS} == ancestors
        assert ("finetune.train", name) not in found


@settings(max_examples=30)
@given(registries().filter(bool), st.data())
def test_an_edit_of_one_model_reruns_it_and_what_is_made_from_it(models: dict[str, Any], data: st.DataObject) -> None:
    edited = data.draw(st.sampled_from(list(models)))
    changed = {**models, edited: {**models[edited], "learning_rate": 0.0123}}
    before, after = fingerprints(config(models)), fingerprints(config(changed))
    made = config(models)
    touched = {name for name in models if name == edited or edited in model_registry.ancestors(made, name)}
    expected = {(step, name) for step in ("finetune.train", "evaluate.model") for name in touched}
    assert {of for of in before if before[of] != after[of]} == {*expected, ("report.render", "")}


@settings(max_examples=15)
@given(registries().filter(bool))
def test_a_placement_key_of_a_model_reruns_nothing(models: dict[str, Any]) -> None:
    moved = {name: {**entry, "processes": 2, "tensorboard": True} for name, entry in models.items()}
    assert fingerprints(config(models)) == fingerprints(config(moved))
