"""A `keep` that no layer is called by is refused before a run."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.compress import checks, layers
from scripts.compress.quantize_tools import TYPES
from scripts.pretrain.model import configuration as built
from scripts.workflow import config as configuration
from scripts.workflow.errors import InputError

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "heads": 4, "kv_heads": 2, "layers": 2, "context": 32}
SMALL = {"from": "base", "step": "compress.prune", "layers": 0.5}


def made(keep: list[str], parent: str = "base", **shape: Any) -> dict[str, Any]:
    """A config with a model that is quantized."""
    models = {"x": {"from": parent, "step": "compress.quantize", "keep": keep}, "small": {**SMALL}}
    return configuration.validate({"pretrain": {"train": {"model": {**SHAPE, **shape}}}, "models": models})


@pytest.mark.parametrize("kind", TYPES)
def test_the_names_are_those_of_transformers(kind: str) -> None:
    settings = made([], type=kind)["pretrain"]["train"]["model"]
    real = layers.linear(built(settings, 256, 0))
    assert checks.layers(settings) == [layer.name for layer in real if not layer.output]


@pytest.mark.parametrize(
    ("keep", "shape", "why"),
    [
        (["down_proj$", "attention"], {}, r"models\.x\.keep has 'attention', which no linear layer is called by; .*q_proj"),
        (["layers.2."], {}, r"has 'layers\.2\.', which no linear layer is called by"),
        (["("], {}, r"models\.x\.keep has '\(', which is no regular expression"),
        (["("], {"type": "gpt2"}, r"models\.x\.keep has '\(', which is no regular expression"),
        (["attention"], {"layers": "auto"}, r"has 'attention', which no"),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_named(keep: list[str], shape: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        checks.check(made(keep, **shape))


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
    checks.check(made(keep, parent, **shape))
