"""The models that `crawl2llm gpu-check` trains, whose measured steps predictions are compared with. It imports transformers when called."""

from __future__ import annotations

from typing import Any

# hidden size, layers, heads, key and value heads, feed-forward: a tiny one for CPUs; GPT-3's (arXiv:2005.14165, table 2.1); TinyLlama.
SIZES = {
    "tiny": (64, 2, 4, 4, 192), "125M": (768, 12, 12, 12, 2048), "350M": (1024, 24, 16, 16, 2816), "760M": (1536, 24, 16, 16, 4096),
    "1B": (2048, 22, 32, 4, 5632), "4 layers": (256, 4, 4, 2, 704), "4 wide layers": (2048, 4, 32, 4, 5632),
}  # fmt: skip
VOCABULARY, CONTEXT = 32_768, 2048  # of the steps of gpu-check


def llama_config(size: str, vocabulary: int, context: int, **changes: Any) -> Any:
    """A Llama of SIZES, its embedding tied to its head; changes: further keys of its configuration."""
    from transformers import AutoConfig

    hidden, layers, heads, kv_heads, intermediate = SIZES[size]
    keys: dict[str, Any] = {
        "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "use_cache": False, "max_position_embeddings": context,
        "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    return AutoConfig.for_model("llama", **keys | changes)
