"""A published model's folder holds the model that was published: as llama.cpp's converter and transformers see it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress.gguf_reference import TEXTS, own_tokenizer
from crawl2llm.training.model_loading import load_model, load_tokenizer
from crawl2llm.training.published import tool
from crawl2llm.training.published.checks import check_published
from crawl2llm.training.published.folder import content_digest, write_model_folder
from tests.unit.stages.compress.conftest import needs_llama
from tests.unit.training.published.conftest import llama_ids, needs_published, write_gguf
from tests.unit.training.tiny_published import write_published

POSITIONS = {
    "llama": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192},
    "qwen2": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32},
    "qwen3": {"rope_type": "default", "rope_theta": 1000000.0},
}  # fmt: skip
OTHERWISE = ("pad_token_id", "dtype")  # in config.json: the tokenizer's, and as the file has it


@needs_llama
@pytest.mark.slow
@pytest.mark.parametrize("kind", POSITIONS)
def test_what_llama_cpp_converted_is_the_same_model_again(
    random_model: Callable[..., Path], converted: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    overrides = {"rope_parameters": POSITIONS[kind], **({"attention_bias": True} if kind == "llama" else {})}
    source, back = random_model(kind, overrides=overrides, tie_embeddings=kind != "qwen3"), tmp_path / "back"
    bits = "f16" if kind == "qwen2" else "f32"
    file = converted(source, bits)
    check_published(file, "models.small.path")
    facts = write_model_folder(file, back)
    check_published(back, "models.small.path")
    weights, again = load_file(source / "model.safetensors"), load_file(back / "model.safetensors")
    assert weights.keys() == again.keys()
    matrices = {name for name, value in weights.items() if value.ndim > 1}
    assert {str(again[name].dtype) for name in matrices} == {{"f16": "float16", "f32": "float32"}[bits]}
    assert all(np.array_equal(value.astype(again[name].dtype), again[name]) for name, value in weights.items())
    config, copy = (json.loads((folder / "config.json").read_text()) for folder in (source, back))
    assert copy.pop("rope_parameters") == POSITIONS[kind]
    assert {key: config[key] for key in copy if key in config and key not in OTHERWISE} == {
        key: value for key, value in copy.items() if key in config and key not in OTHERWISE
    }
    texts = [own_tokenizer(source).encode(text).ids for text in TEXTS]
    assert [own_tokenizer(back).encode(text).ids for text in TEXTS] == texts
    assert [own_tokenizer(back).decode(ids) for ids in texts] == [own_tokenizer(source).decode(ids) for ids in texts]
    assert (facts.type, facts.name, facts.quantization, facts.context) == (kind, "Small", bits.upper(), 128)
    assert facts.parameters == sum(value.size for value in weights.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_weights_are_those_that_transformers_reads(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    file = write_gguf(tmp_path / "small.gguf", kind)
    facts = write_model_folder(file, tmp_path / "back")
    assert (facts.quantization, facts.vocabulary, facts.context) == (kind, 30, 64)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype="float32").state_dict()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "back", dtype="auto")
    assert model.dtype == {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32)
    ours = model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value.float(), theirs[name]) for name, value in ours.items() if "norm" not in name)


def test_a_folder_is_the_same_wherever_it_lies(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    facts = write_model_folder(small, copy)
    assert (copy / "model.safetensors").samefile(small / "model.safetensors"), "a link: no second copy of the weights"
    assert (facts.licence, facts.name, facts.parameters, facts.vocabulary) == ("apache-2.0", "small", 600 * 8, 600)
    digest = content_digest(small)
    os.utime(copy / "config.json", (1, 1))
    (copy / "notes.txt").touch()
    assert content_digest(copy) == digest
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rope_theta": 7.0}))
    changed = content_digest(copy)
    (copy / "model.safetensors").unlink()
    save_file({"model.embed_tokens.weight": np.ones((600, 8), np.float32)}, copy / "model.safetensors")
    assert len({digest, changed, content_digest(copy)}) == 3


@needs_published
@needs_llama
def test_the_tokenizer_of_a_published_model_cuts_as_llama_cpp_does(tmp_path: Path) -> None:
    """33 of 164 prompts of HumanEval got other ids where the name of the pre-tokenizer was not read."""
    folder = tool.MODEL.folder()
    texts = [*TEXTS, "\n\n1", "1234 + 56", "def f():\n    return 10"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [tokenizer.encode(text).ids for text in texts] == llama_ids(folder / tool.GGUF, texts, tmp_path)


@needs_published
@pytest.mark.slow
def test_a_published_model_is_read_within_a_bound_of_memory_and_answers(tmp_path: Path) -> None:
    folder = tool.MODEL.folder()
    program = (
        "import sys; from pathlib import Path; from tests.unit.peak_memory import peak_bytes\n"
        "from crawl2llm.training.published.folder import write_model_folder\n"
        "write_model_folder(Path(sys.argv[1]), Path(sys.argv[2])); print(peak_bytes(), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(folder / tool.GGUF), str(tmp_path / "back")]
    peak, has_torch = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert int(peak) < 200e6 and has_torch == "False", "the file has 98 MB, the model 538 MB"
    assert content_digest(tmp_path / "back") == content_digest(folder)
    model, tokenizer = load_model(folder)
    question: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        answer = model.generate(**ids, max_new_tokens=16, do_sample=False)[0]
    assert tokenizer.decode(answer).endswith("The capital of France is Paris.<|im_end|>")


def test_weights_are_copied_where_they_cannot_be_linked(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    write_model_folder(small, tmp_path / "copy")
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (small / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "copy")
    with pytest.raises(InputError, match="half a download"):
        (small / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-2.safetensors"}}')
        write_model_folder(small, tmp_path / "copy")


@pytest.mark.parametrize("as_list", [False, True])
def test_a_template_of_tokenizer_config_is_a_file_too(tmp_path: Path, as_list: bool) -> None:
    """By which the chat page asks it as it was tuned, and its card says that it chats."""
    source = write_published(tmp_path / "tiny")
    text = (source / "chat_template.jinja").read_text()
    (source / "chat_template.jinja").unlink()
    config = json.loads((source / "tokenizer_config.json").read_text())
    tools = {"name": "tool_use", "template": "{{ tools }}"}
    config["chat_template"] = [tools, {"name": "default", "template": text}] if as_list else text
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    write_model_folder(source, tmp_path / "out")
    assert (tmp_path / "out/chat_template.jinja").read_text() == text
    assert load_tokenizer(tmp_path / "out").chat_template == text
