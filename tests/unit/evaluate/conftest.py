"""A small random model, real held-out questions and an encoded validation split, made once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from scripts.finetune import pairs
from scripts.tokenize.encode import KINDS, encode
from scripts.tokenize.engine import reference
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest

sys.path.append(str(Path(__file__).parents[1] / "finetune"))
import tiny


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
        shard = manifest.name.removesuffix(".manifest.json")
        documents, below = Manifest.read(manifest).file(f"validation/{shard}.parquet"), folder / "tokens/validation"
        encode(documents, below, shard, tokenizer, reference(tokenizer), Progress(None, "bytes"))
        made = folder / "tokens" / manifest.name
        files = [below / "pydoc" / f"{shard}{kind}" for kind in KINDS]
        Manifest("tokenize.encode", "0" * 16).write(made, files)
        tokens.append(made)
    return {"model": [model], "pairs": [out], "tokens": tokens, "corpus": corpus}
