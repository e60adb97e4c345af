"""A folder whose weights are not those of its config.json is refused: transformers would fill what is missing with random numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.weights import check_weights
from tests.unit.training.published.test_checks import edit
from tests.unit.training.tiny_published import write_published

Weights = dict[str, torch.Tensor]
HEAD, TABLE, UP = "lm_head.weight", "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"

BROKEN: dict[str, tuple[Callable[[Weights], object], dict[str, object], str]] = {
    "no head": (lambda weights: None, {"tie_word_embeddings": False}, f"lack {HEAD}, of the model of its config.json"),
    "a matrix missing": (lambda weights: weights.pop(UP), {}, f"lack {UP}, "),
    "more layers": (lambda weights: None, {"num_hidden_layers": 1}, "have model.layers.1.* and [0-9] more, which the model"),
    "another width": (lambda weights: None, {"intermediate_size": 32}, "in another shape than the model of its config.json"),
    "tied to others": (
        lambda weights: weights.update({HEAD: weights[TABLE] + 1}), {}, f"ties {HEAD} to the embeddings .*; set it to false there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_weights_that_are_not_those_of_the_model_are_refused(tmp_path: Path, name: str) -> None:
    change, keys, message = BROKEN[name]
    file = write_published(tmp_path) / "model.safetensors"
    weights = load_file(file)
    weights[HEAD] = weights[TABLE].clone()  # as some files have it
    save_file(weights, file, {"format": "pt"})
    check_weights(tmp_path, "models.small.path")
    weights.pop(HEAD)
    change(weights)
    save_file(weights, file, {"format": "pt"})
    edit("config.json", **keys)(tmp_path)
    with pytest.raises(InputError, match=f"^models.small.path: its [^\n]*{message}[^\n]*$"):
        check_weights(tmp_path, "models.small.path")
