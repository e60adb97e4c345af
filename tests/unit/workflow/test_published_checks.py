"""What a published model cannot do is refused before the run, in one line that names key, value and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import InputError
from crawl2llm.workflow.published_checks import check_published_uses
from tests.unit.training.header_published import write_headers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_headers(tmp_path_factory.mktemp("published"), "qwen3-8b")


def config(folder: Path, more: dict[str, Any] | None = None, **entry: Any) -> dict[str, Any]:
    models = {"root": {"path": str(folder)}, **({"own": {"from": "root", **entry}} if entry else {})}
    return validate({"pretrain": {"train": {"enabled": False}}, "models": models, **(more or {})})


@pytest.mark.parametrize(
    ("entry", "more", "message"),
    [
        (
            {"step": "finetune.train", "max_length": 50_000},
            {},
            r"models\.own\.max_length is 50,000; the context of models\.root is 40,960 tokens, by its config\.json",
        ),
        (
            {},
            {"evaluate": {"model": {"context": 50_000}}},
            r"evaluate\.model\.context is 50,000; the context of models\.root is 40,960 tokens, by its config\.json",
        ),
        (
            {"step": "compress.prune", "retrain_tokens": 10**6, "batch_tokens": 8192},
            {},
            r"models\.own\.batch_tokens is 8,192; allowed: multiples of 40,960 tokens, the context of models\.root",
        ),
    ],
)
def test_more_than_its_context(folder: Path, entry: dict[str, Any], more: dict[str, Any], message: str) -> None:
    check_published_uses(config(folder))
    with pytest.raises(InputError, match=f"^{message}$"):
        check_published_uses(config(folder, more, **entry))


def test_a_longer_context_counts_for_what_is_made_from_it(folder: Path) -> None:
    longer = {"from": "root", "step": "pretrain.continue", "context": 65_536, "batch_tokens": 65_536}

    def check(**entry: Any) -> None:
        models = {"root": {"path": str(folder)}, "longer": longer, "own": {"from": "longer", **entry}}
        check_published_uses(validate({"pretrain": {"train": {"enabled": False}}, "models": models}))

    check(step="finetune.train", max_length=50_000)
    with pytest.raises(InputError, match=r"own\.max_length is 70,000; the context of models\.longer is 65,536 tokens$"):
        check(step="finetune.train", max_length=70_000)
    with pytest.raises(
        InputError, match=r"own\.batch_tokens is 40,960; allowed: multiples of 65,536 tokens, .*longer$"
    ):
        check(step="compress.prune", retrain_tokens=10**6, batch_tokens=40_960)


@pytest.mark.parametrize(
    ("keys", "entry", "message"),
    [
        (
            {"quantization_config": {"quant_method": "gptq"}},
            {"step": "align.train"},
            r"models\.own\.step is 'align\.train', and models\.root, .* is quantized \(gptq\) and cannot be trained: .*",
        ),
        (
            {"quantization_config": {"quant_method": "awq"}},
            {"step": "pretrain.continue"},
            r"models\.own\.step is 'pretrain\.continue', and models\.root, .* is quantized \(awq\) and cannot be trained: .*",
        ),
        (
            {"model_type": "gemma2"},
            {"step": "compress.prune"},
            r"compress\.prune\.method is 'structured', which takes models of type llama, .*, and models\.root is .gemma2.",
        ),
        (
            {"model_type": "gemma2"},
            {"step": "compress.export", "types": ["q8_0"]},
            r"models\.own\.types asks for q8_0; of models of transformers llama\.cpp takes here llama, .*, and it is 'gemma2' .*",
        ),
    ],
)
def test_what_a_step_does_not_take(folder: Path, tmp_path: Path, keys: Any, entry: Any, message: str) -> None:
    write_headers(tmp_path, "1b", **keys)
    with pytest.raises(InputError, match=f"^{message}$"):
        check_published_uses(config(tmp_path, **entry))


def test_texts_that_llama_cpp_cuts_otherwise(tmp_path: Path) -> None:
    entry = {"step": "compress.export", "types": ["q8_0"]}
    write_headers(tmp_path, "1b")
    check_published_uses(config(tmp_path, **entry))
    file = tmp_path / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    byte_level = {**tokenizer["pre_tokenizer"], "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    for steps, fits in (([digits, byte_level], True), ([{"type": "Metaspace"}], False)):
        file.write_text(json.dumps({**tokenizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}))
        if fits:
            check_published_uses(config(tmp_path, **entry))
            continue
        with pytest.raises(InputError, match=r"llama\.cpp has no way to cut texts as its tokenizer\.json does"):
            check_published_uses(config(tmp_path, **entry))


YARN = {"rope_type": "yarn", "factor": 2.0}


@pytest.mark.parametrize(
    ("kind", "rope", "why"),
    [
        ("llama", {}, ""),
        ("llama", YARN, ""),
        ("qwen3", {"rope_type": "linear", "factor": 2.0}, ""),
        ("llama", {"rope_type": "llama3"}, ""),
        (
            "qwen3",
            {"rope_type": "llama3"},
            "it takes rope_type llama3 of llama, mistral, mixtral, and the model is qwen3",
        ),
        (
            "llama",
            {"rope_type": "longrope"},
            "it takes rope_type default, dynamic, linear, yarn and llama3, and it is longrope",
        ),
        ("llama", {**YARN, "attention_factor": 1.0}, "of rope_type yarn it takes no attention_factor, which is 1.0"),
        ("qwen3", {**YARN, "truncate": False}, "of rope_type yarn it takes no truncate, which is False"),
        ("llama", {**YARN, "mscale": 0.7, "mscale_all_dim": 0.3}, "of rope_type yarn it takes no mscale, which is 0.7"),
        ("gpt_neox", {"rope_type": "default"}, ""),
        (
            "gpt_neox",
            YARN,
            "of type gpt_neox it takes rope_type default and rope_theta 10000, and they are yarn and 10000",
        ),
        ("gpt_neox", {"rope_theta": 500.0}, "of type gpt_neox it takes .*, and they are default and 500"),
    ],
)
def test_rope_that_llama_cpp_computes_otherwise(tmp_path: Path, kind: str, rope: dict[str, Any], why: str) -> None:
    """What is refused is what was measured: llama.cpp's logits beside those of transformers, of every type and RoPE."""
    write_headers(tmp_path, "1b", model_type=kind, rope_theta=10_000.0, tie_word_embeddings=kind != "gpt_neox")
    longer = {
        "from": "root",
        "step": "pretrain.continue",
        "rope_parameters": {"rope_type": "default", **rope},
        "new_tokens": ["<|tool|>"],
    }
    give = {"from": "sft", "step": "compress.export", "types": ["q8_0"]}
    models = {
        "root": {"path": str(tmp_path)},
        "longer": longer,
        "sft": {"from": "longer", "step": "finetune.train"},
        "give": give,
    }
    tree = validate({"pretrain": {"train": {"enabled": False}}, "models": models})
    tree["models"]["longer"]["rope_parameters"] = longer["rope_parameters"] if rope else None
    file = tmp_path / "config.json"
    if not why:
        check_published_uses(tree)
        return
    message = rf"models\.give\.types asks for q8_0; of llama\.cpp and the rope_parameters of models\.longer: {why}"
    with pytest.raises(InputError, match=f"^{message}$"):
        check_published_uses(tree)
    tree["models"]["longer"]["rope_parameters"] = None  # the same in the config.json of the root
    file.write_text(json.dumps({**json.loads(file.read_text()), "rope_scaling": rope} | rope))
    with pytest.raises(InputError, match=f"^{message.replace('longer', 'root')}$"):
        check_published_uses(tree)
