"""A small real corpus, tokenizer and model, made on the spot: Python's own documentation as its pages show it."""

from __future__ import annotations

import importlib
import os
import pydoc
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from crawl2llm.chain import config as configuration
from crawl2llm.chain import config_schema
from crawl2llm.chain.fingerprint import canonical_json
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import DOCUMENT, Writer, document_id, uniform_hash

MODULES = [
    *("argparse", "bdb", "calendar", "cmd", "codecs", "collections", "configparser", "csv", "datetime", "decimal"),
    *("difflib", "email.message", "email.utils", "fractions", "gzip", "heapq", "http.client", "imaplib", "inspect"),
    *("io", "logging", "mailbox", "math", "operator", "os", "os.path", "plistlib", "random", "shutil", "smtplib"),
    *("socket", "statistics", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "tokenize", "trace"),
    *("unittest.case", "urllib.parse", "urllib.request", "uuid", "wave", "xml.dom.minidom", "zipfile"),
]
CONTEXT = 64


def page(module: str) -> str:
    """The main text of a module's pydoc page, extracted as the ingest stage does.

    Without the environment, the place of the file and addresses: a model trained on them would be another one in every folder and run.
    """
    from resiliparse.extract.html2text import extract_plain_text

    html = pydoc.HTMLDoc()
    with mock.patch.dict(os.environ, {"LANG": "C"}, clear=True):
        shown = html.page(module, html.document(importlib.import_module(module), module))
    text = extract_plain_text(shown, main_content=True, preserve_formatting=True)
    return re.sub(r"0x[0-9a-f]{6,}", "0x0", re.sub(r"\bindex\s+/\S+", "index", text))


@cache
def pages() -> dict[str, str]:
    """Module → text, for all MODULES; callers must not change it."""
    return {module: page(module) for module in MODULES}


def write_corpus(folder: Path, texts: dict[str, str], shards: int = 2) -> list[Path]:
    """A corpus.write result of `texts` (every fifth by hash is validation); its manifests."""
    out = []
    for shard in range(shards):
        files: list[Path] = []
        for split in ("train", "validation"):
            path = folder / split / f"{shard:05d}.parquet"
            with Writer(path, DOCUMENT) as writer:
                for number, (name, text) in enumerate(texts.items()):
                    held = uniform_hash(0, name) < 0.2
                    if number % shards == shard and held == (split == "validation"):
                        writer.add({"id": document_id(name), "text": text, "source": "pydoc", "curated": False})
            files.append(path)
        manifest = folder / f"{shard:05d}.manifest.json"
        Manifest("corpus.write", "0" * 16).write(manifest, files)
        out.append(manifest)
    return out


def write_model(folder: Path, texts: dict[str, str], hidden: int = 64, layers: int = 2) -> Path:
    """A pretrain.train result: a randomly initialised Llama and a byte-level BPE of `texts`; its manifest."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        (text[:20000] for text in texts.values()),
        trainers.BpeTrainer(
            vocab_size=1024, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")  # noqa: S106
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=1024,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            bos_token_id=0,
            eos_token_id=0,
            tie_word_embeddings=True,
        )
    )
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    manifest = folder / "manifest.json"
    Manifest("pretrain.train", "0" * 16).write(manifest, list((folder / "model").iterdir()))
    return manifest


def write_mixture(folder: Path, other: Path) -> Path:
    """A pretrain.train result: a randomly initialised Mixtral with the tokenizer of the result `other`; its manifest."""
    import torch
    from transformers import MixtralConfig, MixtralForCausalLM

    shutil.copytree(
        other.parent / "model", folder / "model", ignore=shutil.ignore_patterns("*.safetensors", "*config.json")
    )
    shutil.copy(other.parent / "model/tokenizer_config.json", folder / "model")
    torch.manual_seed(1)
    model = MixtralForCausalLM(
        MixtralConfig(
            vocab_size=1024,
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            max_position_embeddings=CONTEXT,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    model.save_pretrained(folder / "model")
    manifest = folder / "manifest.json"
    Manifest("pretrain.train", "0" * 16).write(manifest, list((folder / "model").iterdir()))
    return manifest


def config(step: str, **changes: Any) -> str:
    """What `--config` takes: the step's tracked settings under the defaults with `changes` to its keys."""
    stage, name = step.split(".")
    if step == "finetune.pairs":
        changes = {"patterns": [{"preset": "summary"}]} | changes  # the corpus is Python's documentation
    settings = config_schema.tracked_section(configuration.validate({stage: {name: changes}}), step)
    return canonical_json({"step": step, "config": settings})
