"""Fixtures of the tests of pre-training, fine-tuning and alignment, which those here use too."""

from __future__ import annotations

from tests.unit.stages.align.conftest import one_thread  # noqa: F401
from tests.unit.stages.finetune.conftest import base_model, corpus, pairs_manifest, texts  # noqa: F401
from tests.unit.stages.pretrain.conftest import shards, start, tokenizer  # noqa: F401
