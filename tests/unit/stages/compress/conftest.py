"""Small models and held-out text, made once, and what compress.quantize makes of one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from crawl2llm.chain.config import validate
from crawl2llm.stages.compress import gguf_support, quantize, quantize_tools
from crawl2llm.stages.tokenize import unigram
from crawl2llm.stages.tokenize.train import train_bpe, untrained_tokenizer
from crawl2llm.training.model_loading import load_model
from crawl2llm.training.pretraining_settings import ResolvedModel
from tests.unit.stages.evaluate.conftest import encoded
from tests.unit.stages.finetune import tiny

VOCABULARY = 600
needs_llama = pytest.mark.skipif(gguf_support.TOOLS.problem() is not None, reason=str(gguf_support.TOOLS.problem()))

needs_quantizers = pytest.mark.skipif(
    quantize_tools.ENVIRONMENT.problem() is not None,
    reason=str(quantize_tools.ENVIRONMENT.problem()),
)


def tokenizer_files(folder: Path, tokenizer: Tokenizer) -> None:
    """tokenizer.json and tokenizer_config.json as tokenize.train writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))


def trained(digits: int, model: str = "bpe") -> Tokenizer:
    """A tokenizer of tokenize.train's of Python's documentation."""
    texts = (text[:20000] for text in tiny.pages().values())
    return {"bpe": train_bpe, "unigram": unigram.train_unigram}[model](texts, untrained_tokenizer(digits), VOCABULARY)


@pytest.fixture(scope="session")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(folder of a tokenizer with single digits, manifest of tokenize.encode of real documents)."""
    folder = tmp_path_factory.mktemp("compress")
    corpus = tiny.write_corpus(folder / "corpus", tiny.pages(), shards=1)[0]
    tokenizer = trained(1)
    tokenizer_files(folder / "tokenizer", tokenizer)
    return folder / "tokenizer", encoded(corpus, folder / "tokens/00000.manifest.json", tokenizer)


def written(folder: Path, tokenizer: Path, kind: str, **shape: Any) -> Path:
    """A model of pretrain.train.model's `type` as its result holds it: weights of random numbers, five times as large as at the start of a
    training, so that attention and positions decide what comes out.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from crawl2llm.training.model import build_config

    given = {
        "type": kind, "hidden_size": 64, "intermediate_size": 96, "layers": 2, "heads": 4, "kv_heads": 2, "context": 128,
        "tie_embeddings": True, **shape,
    }  # fmt: skip
    if kind in ("gpt2", "gpt_neox"):
        given["kv_heads"] = None
    if kind == "gpt2":
        given["intermediate_size"] = None
    settings = validate({"pretrain": {"train": {"model": given}}})["pretrain"]["train"]["model"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        build_config(ResolvedModel.model_validate(settings), VOCABULARY, 0, tuple(settings))
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(5)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder)
    return folder


@pytest.fixture
def random_model(heldout: tuple[Path, Path], tmp_path: Path) -> Callable[..., Path]:
    """Makes a model of a type and shape, with the tokenizer of the held-out text; returns its folder."""

    def make(kind: str, name: str = "model", **shape: Any) -> Path:
        folder = written(tmp_path / name, heldout[0], kind, **shape)
        load_model(folder)  # as transformers reads it
        return folder

    return make


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a randomly initialised Llama of 64 dimensions."""
    return tiny.write_model(tmp_path_factory.mktemp("pretrain"), tiny.pages())


def config(folder: Path, name: str, step: str, **keys: Any) -> str:
    """A config file whose model `name` is made by a step."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"models": {name: {"from": "base", "step": step, **keys}}}))
    return str(path)


def quantized(
    model: Path, folder: Path, name: str = "small", tokens: list[Path] | None = None, **keys: Any
) -> tuple[int, Path]:
    """(exit status of compress.quantize, manifest). tokens: manifests of tokenize.encode."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{name}.manifest.json"
    given = ["--config", config(folder, name, "compress.quantize", **keys), "--model", str(model)]
    given += ["--tokens", *map(str, tokens)] if tokens else []
    return quantize.main([*given, "--manifest", str(out)]), out


@pytest.fixture(scope="session")
def tokens(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The manifests of tokenize.encode of a small real corpus, by the tokenizer of `base`."""
    from tokenizers import Tokenizer

    from tests.unit.stages.evaluate.conftest import encoded

    folder = tmp_path_factory.mktemp("encoded")
    tokenizer = Tokenizer.from_file(str(base.parent / "model" / "tokenizer.json"))
    corpus = tiny.write_corpus(folder / "corpus", tiny.pages())
    return [encoded(manifest, folder / "tokens" / manifest.name, tokenizer) for manifest in corpus]
