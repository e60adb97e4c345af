"""A small random model, real held-out questions and an encoded validation split, made once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.formats.documents import SPLITS
from crawl2llm.stages.evaluate import items
from crawl2llm.stages.finetune import pairs
from crawl2llm.stages.tokenize.encode import KINDS, encode_split
from crawl2llm.stages.tokenize.engine import reference_engine
from tests.unit.stages.finetune import tiny


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The manifests that evaluate.model takes, by option."""
    folder = tmp_path_factory.mktemp("evaluate")
    texts = tiny.pages()
    corpus = tiny.write_corpus(folder / "corpus", texts)
    model = tiny.write_model(folder / "pretrain", texts)
    settings = tiny.config("finetune.pairs", max_train=100, max_heldout=40)
    out = folder / "pairs" / "manifest.json"
    assert pairs.main(["--config", settings, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    tokenizer = Tokenizer.from_file(str(model.parent / "model" / "tokenizer.json"))
    tokens = []
    for manifest in corpus:
        tokens.append(encoded(manifest, folder / "tokens" / manifest.name, tokenizer))
    trained = folder / "tokenizer/manifest.json"
    trained.parent.mkdir()
    shutil.copy(model.parent / "model/tokenizer.json", trained.parent)
    Manifest("tokenize.train", "0" * 16).write(trained, [trained.with_name("tokenizer.json")])
    found = {"model": [model], "pairs": [out], "tokens": tokens, "corpus": corpus, "tokenizer": [trained]}
    return found | {"tasks": [made_items(found, folder / "items/manifest.json")]}


@pytest.fixture(scope="session")
def few(inputs: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The same with a quarter of the questions and items, for what no number is compared of."""
    folder = tmp_path_factory.mktemp("few")
    settings = tiny.config("finetune.pairs", max_train=100, min_heldout=10, max_heldout=10)
    out = folder / "pairs/manifest.json"
    corpus = map(str, inputs["corpus"])
    assert pairs.main(["--config", settings, "--corpus", *corpus, "--manifest", str(out)]) == 0
    return inputs | {"pairs": [out], "tasks": [made_items(inputs, folder / "items/manifest.json", per_task=4)]}


def encoded(corpus: Path, out: Path, tokenizer: Tokenizer) -> Path:
    """The manifest `out` of tokenize.encode of a shard of a corpus, both splits."""
    shard, files = out.name.removesuffix(".manifest.json"), []
    for split in SPLITS:
        documents, below = Manifest.read(corpus).file(f"{split}/{shard}.parquet"), out.parent / split
        sources, _ = encode_split(
            documents, below, shard, tokenizer, reference_engine(tokenizer), Progress(None, "bytes")
        )
        files += [below / source / f"{shard}{kind}" for source in sources for kind in KINDS]
    Manifest("tokenize.encode", "0" * 16).write(out, files)
    return out


def items_config(**changes: Any) -> str:
    """What `--config` takes of evaluate.items."""
    complete = configuration.validate({"evaluate": {"items": {"per_task": 12, "context_words": 12, **changes}}})
    return canonical_json({"step": "evaluate.items", "config": settings_of("evaluate.items", complete)})


def made_items(given: dict[str, list[Path]], out: Path, **changes: Any) -> Path:
    """The manifest of evaluate.items of the tokens and the tokenizer `given`."""
    options = [part for name in ("tokens", "tokenizer") for part in (f"--{name}", *map(str, given[name]))]
    assert items.main(["--config", items_config(**changes), *options, "--manifest", str(out)]) == 0
    return out
