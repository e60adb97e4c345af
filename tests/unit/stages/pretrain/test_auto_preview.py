"""What a plan says of `auto`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from crawl2llm.chain import config
from crawl2llm.core import root
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.pretrain import auto_preview

WEB = {"name": "web", "kind": "warc", "paths": ["a.warc.gz"]}


def complete(**train: Any) -> dict[str, Any]:
    return config.validate({"ingest": {"extract": {"sources": [WEB]}}, "pretrain": {"train": train}})


def line(
    tree: dict[str, Any], names: list[str], made: list[Manifest] | None = None, packs: Manifest | None = None
) -> str:
    return auto_preview.preview_line(tree, auto_preview.keys_on_auto(tree), names, made or [], packs)


def encoding_manifests(*tokens: int) -> list[Manifest]:
    """The manifests of a tokenizer of 2,000 entries and of shards with so many training tokens."""
    made = [Manifest("tokenize.train", "", summary={"vocabulary": 2000})]
    return made + [Manifest("tokenize.encode", "", summary={"train": {"tokens": number}}) for number in tokens]


def test_says_the_values_once_the_tokens_are_there() -> None:
    """Nothing is "known after tokenize" after tokenize."""
    found = line(complete(), [], encoding_manifests(400_000, 200_000))
    assert found.startswith("auto: 13 keys of tokenize.train and pretrain.train, by 600,000 training tokens: ")
    assert "known after" not in found and found.endswith(" steps of 4,096 tokens")
    shape = {"hidden_size": 64, "intermediate_size": 64, "layers": 2, "heads": 2, "kv_heads": 2, "context": 128}
    rest = {"global_batch_tokens": 1024, "validate_every": 10, "validation_tokens": 100, "tokens": 4096, "warmup": 0}
    found = line(complete(**rest, model=shape), [], encoding_manifests(600_000))
    assert found.startswith(
        "auto: vocabulary 2,000, learning_rate 0.003, by 600,000 training tokens: 185,664 parameters, 4 steps"
    )


def test_a_run_of_published_models_alone_has_no_model_to_say_it_of() -> None:
    tree = {"pretrain": {"train": {"enabled": False}}, "models": {"smollm": {"path": "smollm"}}}
    assert auto_preview.keys_on_auto(config.validate(tree)) == []


def test_an_epoch_of_packed_documents_has_their_windows() -> None:
    shape = {"hidden_size": 64, "intermediate_size": 64, "layers": 2, "heads": 2, "kv_heads": 2, "context": 128}
    tree = complete(global_batch_tokens=1024, epochs=1, packing="best_fit", model=shape)
    for packing, steps in ({}, 586), ({"128": {"windows": 8000}}, 1000), ({"64": {"windows": 8000}}, 586):
        packs = Manifest("pretrain.pack", "", summary={"packing": packing})
        assert line(tree, [], encoding_manifests(600_000), packs).endswith(f" {steps:,} steps of 1,024 tokens")
    stream = complete(global_batch_tokens=1024, epochs=1, model=shape)
    of_others = Manifest("pretrain.pack", "", summary={"packing": {"128": {"windows": 8000}}})
    assert line(stream, [], encoding_manifests(600_000), of_others).endswith(" 586 steps of 1,024 tokens")


def test_a_plan_never_fails_for_what_it_prints() -> None:
    shape = {"hidden_size": 64, "intermediate_size": 64, "layers": 2, "heads": 2, "kv_heads": 2, "context": 128}
    few = line(complete(model=shape), [], encoding_manifests(100))
    assert few.startswith("auto: ") and "the training shards hold 100 tokens, too few" in few
    assert line(complete(), [], [Manifest("tokenize.train", ""), Manifest("tokenize.encode", "")]).endswith(
        "by the corpus"
    )


def test_names_the_keys_and_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "a.warc.gz"
    file.write_bytes(b"x" * 600_000)
    found = line(complete(), [str(file)])
    assert found.startswith("auto: 13 keys of tokenize.train and pretrain.train: known after tokenize")
    assert found.endswith("; at most 0.9 M training tokens and 0.5 M parameters for input of 0.6 MB")
    rest = {key: 1 for key in ("learning_rate", "warmup", "validate_every", "validation_tokens", "steps")}
    shape = {key: 8 for key in ("hidden_size", "intermediate_size", "layers", "heads")}
    assert line(complete(**rest, model=shape), [str(file)]).startswith(
        "auto: vocabulary, kv_heads, context, global_batch_tokens: known"
    )


def test_says_nothing_where_all_is_set() -> None:
    demo = yaml.safe_load((root.ROOT / "config.yaml").read_text(encoding="utf-8"))
    assert auto_preview.keys_on_auto(config.validate(demo)) == []
