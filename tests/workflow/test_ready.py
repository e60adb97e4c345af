"""A run that trains from scratch on a ready tokenizer: it works to its end, and what its files hold decides, not where they lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest
from crawl2llm.training.special_tokens import SPECIAL
from tests.workflow.conftest import ROOT, TINY, run
from tests.workflow.plan import planned

TEMPLATE = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level BPE with other special tokens than the project's, one of them in the midst of its entries, that adds a
    beginning to each text and cuts it: a tokenizer as it comes with a model.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<s>", "<|im_end|>"], initial_alphabet=alphabet, show_progress=False
    )
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/stages").glob("*.md"))]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    folder = tmp_path_factory.mktemp("ready")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.safetensors").write_bytes(b"weights, which a tokenizer has nothing to do with")
    return folder


def config_with(folder: Path, **models_: Any) -> dict[str, Any]:
    """The tiny config with a ready tokenizer, and pairs in the layout of a chat."""
    config = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    config["tokenize"]["train"] = {"from": {"path": str(folder)}, "train_bytes": 500000}
    config["finetune"]["pairs"]["template"] = TEMPLATE
    config["models"] = {"sft": {"from": "base", "step": "finetune.train"}, **models_}
    return config


@pytest.mark.slow
def test_a_run_on_a_ready_tokenizer(copy_of: Callable[[], Path], ready: Path, tmp_path: Path) -> None:
    folder, path = copy_of(), tmp_path / "ready.yaml"
    config = config_with(ready, give={"from": "sft", "step": "compress.export"})
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    run(folder, config=path)

    results = folder / "results/main"
    original = Tokenizer.from_file(str(ready / "tokenizer.json"))
    original.no_truncation()
    original.no_padding()
    given = AutoTokenizer.from_pretrained(results / "compress/export/give")
    assert len(given) == 700 + len(SPECIAL) - 1  # it has <|im_end|>
    assert given.convert_tokens_to_ids("<|im_end|>") == 1 and given.eos_token_id == 700
    text = "Zwölf  Füße,\n\n 狐 runs 1234 times"
    assert given.encode(text) == original.encode(text, add_special_tokens=False).ids
    assert given.encode("<|im_start|>a<|im_end|>")[::2] == given.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    model = AutoModelForCausalLM.from_pretrained(results / "compress/export/give")
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == len(given)
    assert model.config.eos_token_id == 700

    manifest = results / "tokenize/compare/manifest.json"
    compared, speeds = Manifest.read(manifest).summary, record.read(manifest)["megabytes_per_second"]
    assert compared["vocabulary"] == {"ready": 715, "own": 715} and min(speeds.values()) > 0
    english = compared["by_language"]["en"]
    assert english["bytes"] > 1.5 * english["own"] and english["bytes"] > 1.5 * english["ready"]
    page = (results / "report/render/report.html").read_text()
    assert "A ready tokenizer" in page and "Bytes per token by language" in page

    moved = shutil.copytree(ready, tmp_path / "moved")
    (moved / "model.safetensors").write_bytes(b"other weights")
    assert planned(folder, config_with(moved, give=config["models"]["give"])) == set()
    content = json.loads((moved / "tokenizer.json").read_text())
    content["model"]["merges"] = content["model"]["merges"][:-1]
    (moved / "tokenizer.json").write_text(json.dumps(content))
    again = planned(folder, config_with(moved, give=config["models"]["give"]))
    assert {"tokenize.train", "tokenize.encode", "tokenize.compare", "pretrain.train", "finetune.train[sft]"} <= again
    assert not any(step.startswith(("ingest", "corpus", "dedup")) for step in again)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"path": "nowhere"}, "tokenize.train.from.path is 'nowhere': no such file"),
        (
            {"hub": "owner/name", "revision": "1" * 40},
            "run crawl2llm fetch-model owner/name --revision 1+ --tokenizer --to ",
        ),
        ({"hub": "owner/name"}, "tokenize.train.from.revision is None; with hub it is the commit"),
        ({"path": "nowhere", "hub": "owner/name"}, "tokenize.train.from has path and hub"),
        ({"hub": "owner/name", "revision": "main"}, "a commit, 40 hexadecimal digits"),
    ],
)
def test_a_bad_tokenizer_is_refused_before_the_run(tmp_path: Path, keys: dict[str, str], words: str) -> None:
    config = config_with(Path("unused"))
    config["tokenize"]["train"]["from"] = keys
    with pytest.raises(BaseException, match=words):
        planned(tmp_path, config)


def test_what_llama_cpp_cannot_cut_is_refused_before_the_run(ready: Path, tmp_path: Path) -> None:
    give = {"from": "base", "step": "compress.export", "types": ["f16"]}
    folder = shutil.copytree(ready, tmp_path / "other")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["pre_tokenizer"]["add_prefix_space"] = True
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(BaseException, match=r"models.give.types asks for GGUF, and tokenize.train.from names .*other"):
        planned(tmp_path, config_with(folder, give=give))
