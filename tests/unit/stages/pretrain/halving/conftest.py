"""Fixtures of the tests of pre-training, which those here use too."""

from __future__ import annotations

from tests.unit.stages.pretrain.conftest import shards, start, tokenizer  # noqa: F401
