"""Fixtures that tests of the stages share."""

from __future__ import annotations

from tests.unit.stages.pretrain.conftest import shards, start, tokenizer  # noqa: F401
