"""What is no whole published model is refused in one line, by the headers of its files alone."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.checks import causal_types, check_published
from crawl2llm.training.published.gguf_file import TYPES, read_header
from tests.unit.training.published.conftest import write_gguf

LABEL = "models.small.path"


def edit(name: str, **keys: Any) -> Callable[[Path], None]:
    """An edit of a folder: keys of a file of JSON."""

    def change(folder: Path) -> None:
        file = folder / name
        content = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**content, **keys}))

    return change


def to_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config.json": (lambda folder: (folder / "config.json").unlink(), "a folder without config.json"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "its config.json is no JSON"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "a folder without tokenizer"),
    "SentencePiece": (
        lambda folder: (folder / "tokenizer.json").rename(folder / "tokenizer.model"),
        "a folder without tokenizer .tokenizer.json.; tokenizer.model alone is not read",
    ),
    "another tokenizer": (
        edit("tokenizer.json", model={"vocab": {str(token): token for token in range(601)}}),
        "its tokenizer.json has 601 tokens, and its config.json 600 .vocab_size.: another model's tokenizer",
    ),
    "no end token": (edit("tokenizer_config.json", eos_token=None), "its tokenizer has no end token .eos_token in"),
    "another type": (edit("config.json", model_type="bert2"), "model_type is 'bert2' in its config.json, which is no"),
    "code": (edit("config.json", auto_map={"AutoModel": "a.B"}), "its config.json has auto_map, code of its own"),
    "code of a tokenizer": (edit("tokenizer_config.json", auto_map={"a": 1}), "tokenizer_config.json has auto_map"),
    "pickles": (to_pickle, "its weights are pickles .pytorch_model.bin., .* safetensors only"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "a folder without weights"),
    "cut": (cut, "model.safetensors has 19,[0-9]+ bytes, and its header says 19,[0-9]+; fetch it again"),
    "cut header": (
        lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", 100) + b"{"),
        "the header of model.safetensors is damaged or cut off",
    ),
    "a shard missing": (
        edit("model.safetensors.index.json", weight_map={"a": "model-00002-of-00002.safetensors"}),
        "half a download, model-00002-of-00002.safetensors of its model.safetensors.index.json is missing",
    ),
    "template": (
        lambda folder: (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }"),
        "its chat template is none .line 1: unexpected '}'.",
    ),
    "half a download": (lambda folder: (folder / "a.incomplete").touch(), "half a download .a.incomplete."),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_no_whole_model_is_refused(small: Path, name: str) -> None:
    check_published(small, LABEL)
    change, message = BROKEN[name]
    change(small)
    with pytest.raises(InputError, match=f"^{LABEL} is '{small}': [^\n]*{message}[^\n]*$"):
        check_published(small, LABEL)


def test_what_is_not_there_or_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{LABEL} is '.*none': there is no such folder or file$"):
        check_published(tmp_path / "none", LABEL)
    (tmp_path / "model.bin").touch()
    with pytest.raises(InputError, match=f"^{LABEL} is '.*model.bin'; allowed: a folder with"):
        check_published(tmp_path / "model.bin", LABEL)


def test_the_types_are_those_of_transformers_and_need_no_torch() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    assert causal_types() == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
    program = (
        "import sys; from crawl2llm.training.published import checks, folder, hub; checks.causal_types()\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'gguf', 'huggingface_hub')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_types_of_tensors_have_the_sizes_that_ggml_gives_them() -> None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    kinds = {number: GGMLQuantizationType(number) for number in TYPES}
    assert {number: (kind.name, *GGML_QUANT_SIZES[kind]) for number, kind in kinds.items()} == TYPES


def test_a_gguf_file_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf")
    check_published(whole, LABEL)
    data, header = whole.read_bytes(), min(tensor.offset for tensor in read_header(whole, LABEL).tensors.values())
    for size in [*range(0, header, 7), *range(header, len(data) - 32, 997)]:  # the last tensor is padded
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        with pytest.raises(InputError, match=rf"^{LABEL}: [^\n]*cut.gguf[^\n]*$"):
            check_published(tmp_path / "cut.gguf", LABEL)
    for at in range(4, header - 8, 5):  # numbers that are larger than any file
        (tmp_path / "bad.gguf").write_bytes(data[:at] + b"\xff" * 8 + data[at + 8 : header + 64])
        with pytest.raises(InputError, match=rf"^{LABEL}: [^\n]*bad.gguf[^\n]*$"):
            check_published(tmp_path / "bad.gguf", LABEL)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"architecture": "gemma3"}, "is of the architecture 'gemma3'; allowed: llama, qwen2, qwen3"),
        ({"embedding_length": None}, "llama.embedding_length is None; a number above 0 is needed"),
        ({"sliding_window": 32}, "has llama.attention.sliding_window 32, which is not read; allowed: none"),
        ({"pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'; allowed: gpt-2, smollm, llama-bpe, qwen2"),
        ({"model": "llama"}, "tokenizer.ggml.model is 'llama'; allowed: gpt2"),
        ({"blk.0.ffn_up": "blk.0.ffn_up_exps"}, "tensor blk.0.ffn_up_exps.weight, which llama does not have here"),
        ({"blk.0.ffn_up": "blk.1.ffn_up"}, "tensor blk.1.ffn_up.weight, which llama does not have here"),
        ({"token_embd": "output"}, "has no tensor of model.embed_tokens.weight"),
        ({"kind": "MXFP4"}, "has the tensor type number 39, which is not read; allowed: F32, F16"),
    ],
)
def test_what_a_gguf_file_has_to_be_is_said(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"^{LABEL}: [^\n]*{message}[^\n]*$"):
        check_published(write_gguf(tmp_path / "a.gguf", **keys), LABEL)
