"""The Llama of the check `peers` as torchtitan's own configuration, for its `--module` and `--config`. torchtitan alone imports this.

Of commit b5bcd76 (2026-08): its configurations are Python functions, and older copies, which read TOML files, do not take it.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "CRAWL2LLM_TITAN_SHAPE"


def same_llama() -> Any:
    """A Trainer.Config of the shape that VARIABLE names: compiled, without recomputation, with the loss in pieces, on its test data.

    VARIABLE has hidden size, layers, heads, key and value heads, feed-forward, vocabulary, context, micro-batch and steps.
    """
    from torchtitan.config import CompileConfig
    from torchtitan.models import llama3
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.llama3 import config_registry
    from torchtitan.models.llama3.model import Llama3Model

    hidden, layers, heads, kv_heads, feed_forward, vocabulary, context, micro_batch, steps = map(
        int, os.environ[VARIABLE].split()
    )
    config = config_registry.llama3_debugmodel()
    rope = ComplexRoPE.Config(dim=hidden // heads, max_context_length=context, theta=10_000, scaling="none")
    initial_head = llama3._output_linear_init(hidden)
    config.model_spec.model = Llama3Model.Config(
        dim=hidden,
        vocab_size=vocabulary,
        enable_weight_tying=True,
        tok_embeddings=Embedding.Config(
            num_embeddings=vocabulary, embedding_dim=hidden, param_init=llama3._EMBEDDING_SKIP_INIT
        ),
        norm=RMSNorm.Config(normalized_shape=hidden, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=hidden, out_features=vocabulary, param_init=initial_head),
        layers=llama3._build_llama3_layers(
            fuse_qkv=True, n_layers=layers, dim=hidden, n_heads=heads, n_kv_heads=kv_heads, hidden_dim=feed_forward, rope=rope,
            attn_backend="flex",
        ),
    )  # fmt: skip
    config.loss.loss_fn.global_vocab_size = vocabulary
    config.training.num_tokens_per_microbatch_per_dp_rank = micro_batch * context
    config.training.max_context_length = context
    config.training.steps = steps
    config.compile = CompileConfig(enable=True)
    config.activation_checkpoint = None
    config.checkpoint.enable = False
    config.validator.enable = False
    config.metrics.log_freq = 1
    return config
