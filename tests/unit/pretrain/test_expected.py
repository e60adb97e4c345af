"""What a plan says of `auto`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from scripts.common import config
from scripts.pretrain.expected import line

WEB = {"name": "web", "kind": "warc", "paths": ["a.warc.gz"]}


def complete(**train: Any) -> dict[str, Any]:
    return config.validate({"ingest": {"extract": {"sources": [WEB]}}, "pretrain": {"train": train}})


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
    demo = yaml.safe_load((config.ROOT / "config.yaml").read_text(encoding="utf-8"))
    assert line(config.validate(demo), []) == ""
