"""Exports of quantized models: the folder loads as it is and gives the same logits, the card says how it was quantized, GGUF is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import export, gguf_support
from crawl2llm.training.model_loading import load_model, verify_weights
from tests.unit.stages.compress.conftest import needs_quantizers, quantized

METHODS: dict[str, tuple[dict[str, Any], str, str]] = {
    "int8": ({}, "bitsandbytes", "8 bits, with a scale for each row"),
    "nf4": ({"method": "nf4"}, "bitsandbytes", "4 bits, with a scale for each 64 weights"),
    "gptq": ({"method": "gptq", "group_size": 32, "calibration_tokens": 1024}, "compressed-tensors", "for each 32 weights of a row"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8", "nf4", pytest.param("gptq", marks=needs_quantizers)])
def test_it_loads_as_it_is_and_says_how_it_was_made(base: Path, tokens: list[Path], tmp_path: Path, name: str) -> None:
    keys, library, words = METHODS[name]
    status, made = quantized(base, tmp_path, name, tokens, **keys)
    assert status == 0
    told = {"heldout_text": {"bits_per_byte": 1.5, "bytes": 10, "documents": 1}, "items": {}, "questions": None}
    evaluation = tmp_path / f"evaluate/{name}.manifest.json"
    evaluation.parent.mkdir()
    Manifest("evaluate.model", "0" * 16, summary=told).write(evaluation, [])
    entries = {
        name: {"from": "base", "step": "compress.quantize", **keys},
        "give": {"from": name, "step": "compress.export"},
    }
    (tmp_path / "config.json").write_text(json.dumps({"models": entries}))
    out = tmp_path / "export/give.manifest.json"
    out.parent.mkdir()
    given = [
        "--config",
        str(tmp_path / "config.json"),
        "--models",
        str(made),
        str(base),
        "--evaluations",
        str(evaluation),
    ]
    assert export.main([*given, "--record", str(tokens[0]), "--tokens", *map(str, tokens), "--manifest", str(out)]) == 0

    source, folder = verify_weights(made)[1], tmp_path / "export/give"
    assert all((folder / path.name).read_bytes() == path.read_bytes() for path in source.iterdir())
    card = ModelCard.load(folder / "README.md")
    assert {library, name, "8-bit" if name == "int8" else "4-bit"} <= set(card.data.tags)
    assert words in card.text and f"pip install {library}" in card.text and f"then quantized ({name})" in card.text
    summary = Manifest.read(made).summary
    assert f"{summary['quantized_parameters']:,} of {summary['parameters']:,} parameters" in card.text
    ids = torch.arange(1, 33).unsqueeze(0)
    own, _ = load_model(source)
    if name != "gptq":  # whose loader is in the other environment: test_four_bit.py
        with torch.no_grad():
            other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            found, wanted = other(ids).logits.float(), own(ids).logits
        assert torch.allclose(found, wanted, atol=1e-2 * float(wanted.abs().max()))
        assert torch.equal(found.argmax(-1), wanted.argmax(-1))


def test_gguf_of_a_quantized_model_is_refused() -> None:
    made = {"int8": {"from": "base", "step": "compress.quantize"}}
    given = {
        "models": {**made, "give": {"from": "int8", "step": "compress.export"}},
        "tokenize": {"train": {"digits": 1}},
    }
    gguf_support.check_exports(validate(given))
    given["models"]["give"]["types"] = ["safetensors", "q8_0"]
    with pytest.raises(
        InputError,
        match=r"models.give.types asks for q8_0, and models.give.from is 'int8', .*: export 'base', .* with q8_0 or",
    ):
        gguf_support.check_exports(validate(given))
