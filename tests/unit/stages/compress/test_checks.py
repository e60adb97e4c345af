"""What is refused before a run: a `keep` that no layer is called by, and models that cannot be merged."""

from __future__ import annotations

import re
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from crawl2llm.chain import config as configuration
from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import checks
from crawl2llm.stages.compress.prune import zero_weights
from crawl2llm.stages.compress.quantize_tools import TYPES
from crawl2llm.stages.compress.settings import PruneSettings
from crawl2llm.training import compressible_layers
from crawl2llm.training.model import build_config as built
from crawl2llm.training.pretraining_settings import ResolvedModel

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "heads": 4, "kv_heads": 2, "layers": 2, "context": 32}
MIXTURES = ("mixtral", "olmoe")
SMALL = {"from": "base", "step": "compress.prune", "layers": 0.5}


def made(keep: list[str], parent: str = "base", **shape: Any) -> dict[str, Any]:
    """A config with a model that is quantized."""
    models: dict[str, Any] = {"x": {"from": parent, "step": "compress.quantize", "keep": keep}}
    models |= {"small": {**SMALL}} if parent == "small" else {}
    return configuration.validate({"pretrain": {"train": {"model": {**SHAPE, **shape}}}, "models": models})


@pytest.mark.parametrize("kind", TYPES)
def test_the_names_are_those_of_transformers(kind: str) -> None:
    settings = made([], type=kind)["pretrain"]["train"]["model"]
    real = compressible_layers.linear_layers(built(ResolvedModel.model_validate(settings), 256, 0))
    assert checks.linear_layer_names(settings) == [layer.name for layer in real if not layer.output]


@pytest.mark.parametrize(
    ("keep", "shape", "why"),
    [
        (["down_proj$", "attention"], {}, r"models\.x\.keep has 'attention', which no linear layer is called by; .*q_proj"),
        (["layers.2."], {}, r"has 'layers\.2\.', which no linear layer is called by"),
        (["("], {}, r"models\.x\.keep has '\(', which is not a regular expression"),
        (["("], {"type": "gpt2"}, r"models\.x\.keep has '\(', which is not a regular expression"),
        (["attention"], {"layers": "auto"}, r"has 'attention', which no"),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_named(keep: list[str], shape: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        checks.check_compression(made(keep, **shape))


@pytest.mark.parametrize(
    ("keep", "parent", "shape"),
    [
        ([r"layers\.1\.", "down_proj$"], "base", {}),
        (["layers.2."], "base", {"layers": "auto"}),
        (["layers.2."], "small", {}),  # whose layers are counted when it is made
        (["c_attn"], "base", {"type": "gpt2"}),
    ],
)
def test_what_may_match_passes(keep: list[str], parent: str, shape: dict[str, Any]) -> None:
    checks.check_compression(made(keep, parent, **shape))


def pruned(kind: str, method: str) -> dict[str, Any]:
    models = {"x": {"from": "base", "step": "compress.prune", "method": method}}
    return configuration.validate({"pretrain": {"train": {"model": {**SHAPE, "type": kind}}}, "models": models})


@pytest.mark.parametrize(
    ("kind", "method", "why"),
    [
        *((kind, method, f"is '{method}', and .*type '{kind}', a mixture") for kind in MIXTURES for method in ("magnitude", "2:4")),
        *((kind, "structured", f"is 'structured', which takes .* and it is '{kind}'") for kind in (*MIXTURES, "gpt2")),
    ],
)  # fmt: skip
def test_what_cannot_be_pruned_is_refused(kind: str, method: str, why: str) -> None:
    with pytest.raises(InputError, match=f"models.x.method {why}"):
        checks.check_compression(pruned(kind, method))


@pytest.mark.parametrize(("kind", "method"), [("gpt2", "magnitude"), ("llama", "2:4"), ("qwen3", "structured")])
def test_what_can_be_pruned_passes(kind: str, method: str) -> None:
    checks.check_compression(pruned(kind, method))


@pytest.mark.parametrize("kind", [*MIXTURES, "qwen3_moe"])
def test_a_mixture_is_not_zeroed_for_its_experts_are_in_no_linear_layer(kind: str) -> None:
    """What the refusal rests on, and the same refusal of a type that a plan does not know: most weights are in no linear layer."""
    config = AutoConfig.for_model(
        kind, vocab_size=64, hidden_size=32, intermediate_size=64, moe_intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    inside = sum(layer.weight_count for layer in compressible_layers.linear_layers(config) if not layer.output)
    assert inside < sum(value.numel() for value in model.parameters()) / 2
    with pytest.raises(InputError, match=f"of type '{kind}', is a mixture of experts"):
        zero_weights(model, PruneSettings(method="magnitude"))


MODELS = {
    "sft": {"from": "base", "step": "finetune.train"},
    "dpo": {"from": "sft", "step": "finetune.train"},
    "small": {**SMALL},
    "less": {**SMALL, "seed": 1},
    "small2": {**SMALL, "retrain_tokens": 9999},
    "lora": {"from": "base", "step": "finetune.train", "adapter": "lora", "engine": "torch"},
    "ppo": {"from": "sft", "step": "align.train", "method": "ppo", "rewards": [{"reward": "length", "most": 9}]},
    "mean": {"from": "sft", "step": "compress.merge", "with": ["dpo"]},
    "kept": {"from": "sft", "step": "finetune.train", "keep_every": 20},
    "brief": {"from": "base", "step": "pretrain.continue", "tokens": 102_400, "batch_tokens": 1024, "keep_every": 20},
}


def merging(keep_every: int = 0, **entry: Any) -> dict[str, Any]:
    soup = {"from": "sft", "step": "compress.merge", **entry}
    return configuration.validate(
        {"pretrain": {"train": {"keep_every": keep_every}}, "models": {**MODELS, "soup": soup}}
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, "models.soup.with is not set, and compress.merge.method is 'average', which takes one model or more there"),
        ({"method": "slerp", "with": ["dpo", "base"]}, "models.soup.method is 'slerp', which takes one model there"),
        ({"method": "checkpoints", "with": ["dpo"]}, "models.soup.method is 'checkpoints', which takes none there"),
        ({"method": "ties", "with": ["dpo"]}, "over is None, and models.soup.method is 'ties', which needs the model that all"),
        ({"with": ["dpo"], "over": "base"}, "models.soup.over is 'base', and compress.merge.method is 'average', which takes none"),
        ({"with": ["sft"]}, "models.soup.with is ['sft'], and models.soup.from is one of them: name each model once"),
        (
            {"method": "ties", "with": ["dpo"], "over": "sft"},
            "models.soup.over is 'sft', which 'sft' is not made from; allowed: base",
        ),
        ({"with": ["dpo"], "weights": [1, 2, 3]}, "models.soup.weights is [1, 2, 3], and 2 models are merged"),
        ({"with": ["dpo"], "weights": [1, -1]}, "whose sum is not above 0: there is no mean"),
        ({"method": "slerp", "with": ["dpo"], "weights": [1, 1]}, "models.soup.method is 'slerp', which takes none"),
        (
            {"method": "checkpoints"},
            "compress.merge.every is 100, and finetune.train.keep_every, which is 0, keeps no checkpoint of these steps: set it to 100",
        ),
        ({"method": "checkpoints", "from": "lora"}, "models.soup.from is 'lora', whose checkpoints are of an adapter; allowed with"),
        ({"method": "checkpoints", "from": "ppo"}, "models.soup.from is 'ppo', whose checkpoints are of a model of values; allowed"),
        (
            {"method": "checkpoints", "from": "mean"},
            "models.soup.from is 'mean', which compress.merge makes, and it keeps no checkpoints; allowed with models.soup.method",
        ),
        (
            {"method": "checkpoints", "from": "base", "every": 30, "keep_every": 20},
            "models.soup.every is 30, and pretrain.train.keep_every, which is 20, keeps no checkpoint of these steps: set it to 30",
        ),
        (
            {"method": "checkpoints", "from": "brief", "every": 20, "last": 6},
            "models.soup.last is 6, and 'brief', which trains 100 steps, has 5 checkpoints 20 steps apart, its last model among them",
        ),
        ({"with": ["small"]}, "models.soup merges 'sft' and 'small', which compress.prune has made smaller"),
        (
            {"from": "small", "with": ["less"]},
            "models.soup merges 'small' and 'less', of which compress.prune has kept other layers, heads or neurons",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_named(entry: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError) as caught:
        checks.check_compression(merging(**entry))
    assert why in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"with": ["dpo", "base"], "weights": [1, 2, 0.5]},
        {"method": "ties", "with": ["dpo"], "over": "base"},
        {"method": "checkpoints", "from": "base", "every": 40, "keep_every": 20},
        {"method": "checkpoints", "from": "kept", "every": 40},
        {"method": "checkpoints", "from": "brief", "every": 20, "last": 5},
        {"from": "small", "with": ["small2"]},
    ],
)
def test_what_can_be_merged(entry: dict[str, Any]) -> None:
    checks.check_compression(merging(**entry))


TOOL = {"from": "base", "step": "pretrain.continue", "new_tokens": ["<|tool|>"]}
LINEAGE = {
    "tool": TOOL,
    "sft": {"from": "tool", "step": "finetune.train"},
    "plain": {"from": "base", "step": "finetune.train"},
    "two": {"from": "tool", "step": "pretrain.continue", "new_tokens": ["<|page|>"]},
    "page": {**TOOL, "new_tokens": ["<|page|>"]},
    "again": {**TOOL, "tokens": 10_000_000},
}


def made_of_two(step: str, first: str, second: str, **keys: Any) -> dict[str, Any]:
    """A config whose model `x` a step makes from two of LINEAGE."""
    other = {"teacher": second} if step == "compress.distil" else {"with": [second]}
    return configuration.validate({"models": {**LINEAGE, "x": {"from": first, "step": step, **other, **keys}}})


@pytest.mark.parametrize("step", ["compress.distil", "compress.merge"])
@pytest.mark.parametrize(
    ("first", "second", "has"),
    [
        ("sft", "plain", ("tool", "sft", "<|tool|>", "plain")),
        ("plain", "sft", ("tool", "sft", "<|tool|>", "plain")),
        ("sft", "two", ("two", "two", "<|page|>", "sft")),
        ("tool", "page", ("tool", "tool", "<|tool|>", "page")),
    ],
)
def test_models_of_other_new_tokens_are_refused(step: str, first: str, second: str, has: tuple[str, ...]) -> None:
    key, model, token, other = has
    why = (
        f"models.x is made from {first!r} and {second!r}, and by models.{key}.new_tokens {model!r} has the token {token!r}, which "
        f"{other!r} has not at that place: both have to have one tokenizer"
    )
    with pytest.raises(InputError, match=f"^{re.escape(why)}$"):
        checks.check_compression(made_of_two(step, first, second))
    if step == "compress.distil":  # from the text alone, without a teacher
        checks.check_compression(made_of_two(step, first, second, text_share=1))


@pytest.mark.parametrize("step", ["compress.distil", "compress.merge"])
def test_models_of_the_same_new_tokens_go_together(step: str) -> None:
    checks.check_compression(made_of_two(step, "sft", "again"))
