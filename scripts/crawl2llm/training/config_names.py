"""What transformers' configurations call the keys of `pretrain.train.model`."""

SHAPE = {  # most types share these names
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "tie_embeddings": "tie_word_embeddings",
    "context": "max_position_embeddings",
}
OTHER_NAMES = {"mamba2": {"heads": "num_heads"}}
