"""Models as somebody else would publish them, and GGUF files that llama.cpp's own converter made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from crawl2llm.stages.compress import gguf, gguf_support
from crawl2llm.training.published import tool
from tests.unit.stages.compress.conftest import heldout, random_model  # noqa: F401

needs_published = pytest.mark.skipif(tool.MODEL.problem() is not None, reason=str(tool.MODEL.problem()))

# Of each text of a file of JSON, the ids that llama.cpp gives it, of a GGUF file of which no weight is loaded.
IDS_PROGRAM = """
import ctypes, json, os, sys
import llama_cpp as api
options = api.llama_model_default_params()
options.vocab_only = True
vocab = api.llama_model_get_vocab(api.llama_model_load_from_file(os.fsencode(sys.argv[1]), options))
answers = []
for raw in (text.encode() for text in json.load(open(sys.argv[2]))):
    room = (ctypes.c_int32 * (len(raw) + 8))()
    answers.append(list(room[: api.llama_tokenize(vocab, raw, len(raw), room, len(room), True, True)]))
print(json.dumps(answers))
"""


def llama_ids(file: Path, texts: Sequence[str], place: Path) -> list[list[int]]:
    """The ids of texts by llama.cpp, special tokens themselves, as transformers does by default."""
    (place / "texts.json").write_text(json.dumps(texts))
    command = [sys.executable, "-c", IDS_PROGRAM, str(file), str(place / "texts.json")]
    environment = {**os.environ, "PYTHONPATH": str(gguf_support.TOOLS.folder() / "site")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def write_gguf(file: Path, kind: str = "Q4_1", **keys: Any) -> Path:
    """A GGUF file of a Llama of one layer with random weights, whose matrices have the type `kind`. keys: its keys that differ, by what
    stands behind the last dot (None: it lacks that one), and other names of tensors."""
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    texts = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
    numbers = {
        "block_count": 1, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }  # fmt: skip
    writer = GGUFWriter(file, str(keys.get("architecture", "llama")))
    for key, text in texts.items():
        writer.add_string(key, str(keys.get(key.rpartition(".")[2], text)))
    for key, number in {**numbers, "attention.sliding_window": None}.items():
        if (value := keys.get(key.rpartition(".")[2], number)) is not None:
            writer.add_uint32(f"llama.{key}", int(value))
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array(
        "tokenizer.ggml.tokens", [*(chr(97 + n) for n in range(26)), "<|end|>", "ab", "[PAD28]", "[PAD29]"]
    )
    writer.add_array("tokenizer.ggml.token_type", [1] * 26 + [3, 1, 5, 5])
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    writer.add_uint32("tokenizer.ggml.eos_token_id", 26)
    random = np.random.default_rng(0)
    layer = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64), "ffn_gate": (96, 64),
             "ffn_up": (96, 64), "ffn_down": (64, 96), "attn_norm": (64,), "ffn_norm": (64,)}  # fmt: skip
    shapes = {"token_embd": (30, 64), **{f"blk.0.{name}": shape for name, shape in layer.items()}, "output_norm": (64,)}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, np.float32)
        type_ = GGMLQuantizationType[kind if len(shape) > 1 else "F32"]
        writer.add_tensor(f"{keys.get(name, name)}.weight", quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder as the hub has one, of a model of one matrix."""
    folder = tmp_path / "small"
    folder.mkdir()
    config: dict[str, Any] = {"model_type": "llama", "vocab_size": 600, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Small\n")
    save_file({"model.embed_tokens.weight": np.zeros((600, 8), np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    """converted(folder, TYPE): a model's folder as a GGUF file, by llama.cpp's converter."""

    def convert(folder: Path, kind: str) -> Path:
        home, file = gguf_support.TOOLS.folder(), tmp_path / f"{kind}.gguf"
        job = {"converter": str(home / "llama.cpp"), "pre": gguf.pre_tokenizer(folder), "model": str(folder)}
        gguf.run_job(home, tmp_path, do="convert", type=kind, name="Small", file=str(file), **job)
        return file

    return convert
