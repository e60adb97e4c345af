"""The encoded shards of pretrain's tests."""

from tests.unit.pretrain.conftest import shards, tokenizer

__all__ = ["shards", "tokenizer"]
