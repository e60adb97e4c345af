"""Weights that are published under other names are the model's own in its folder, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from crawl2llm.training.published.folder import write_model_folder
from crawl2llm.training.published.sizes import read_sizes


@pytest.mark.parametrize("sharded", [False, True])
def test_a_body_alone_with_tables_of_positions(small: Path, tmp_path: Path, sharded: bool) -> None:
    file = small / "model.safetensors"
    whole, sizes = load_file(file), read_sizes(small, "small")
    body = {name.removeprefix("model."): value for name, value in whole.items()}
    body |= {f"layers.{layer}.self_attn.rotary_emb.inv_freq": torch.rand(8) for layer in range(2)}
    file.unlink()
    names = sorted(body)
    shards = [names[::2], names[1::2]] if sharded else [names]
    files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)] if sharded else ["model.safetensors"]
    for part, name in zip(shards, files, strict=True):
        save_file({key: body[key] for key in part}, small / name)
    if sharded:
        weights = {key: name for part, name in zip(shards, files, strict=True) for key in part}
        (small / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    facts = write_model_folder(small, tmp_path / "out")
    written: dict[str, torch.Tensor] = {}
    for name in files:
        written |= load_file(tmp_path / "out" / name)
    assert written.keys() == whole.keys() and all(torch.equal(written[name], whole[name]) for name in whole)
    assert facts.parameters == sizes.parameters == read_sizes(small, "small").parameters
    if sharded:
        index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())["weight_map"]
        assert all(name in load_file(tmp_path / "out" / index[name]) for name in whole)
