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


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder as the hub has one, of a model of one matrix."""
    folder = tmp_path / "small"
    folder.mkdir()
    config: dict[str, Any] = {"model_type": "llama", "vocab_size": 600, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Small\n")
    save_file({"model.embed_tokens.weight": np.zeros((600, 8), np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    """converted(folder, TYPE): a model's folder as a GGUF file, by llama.cpp's converter and quantizer."""

    def convert(folder: Path, kind: str = "f32") -> Path:
        home, file, unquantized = gguf_support.TOOLS.folder(), tmp_path / f"{kind}.gguf", kind in gguf.UNQUANTIZED
        source = file if unquantized else tmp_path / "f32.gguf"
        job = {"model": str(folder), "type": kind if unquantized else "f32", "name": "Small", "file": str(source)}
        gguf.run_job(
            home, tmp_path, do="convert", converter=str(home / "llama.cpp"), pre=gguf.pre_tokenizer(folder), **job
        )
        if not unquantized:
            gguf.run_job(home, tmp_path, do="quantize", source=str(source), file=str(file), type=kind, threads=1)
        return file

    return convert
