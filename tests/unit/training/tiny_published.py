"""A small model as somebody else would publish it: a Llama of two layers, with a tokenizer, chat template and end tokens of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TURN = "<turn>"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<turn>{{ message['role'] }}\n{{ message['content'] }}"
    "{{ '<end>' if message['role'] == 'assistant' else '' }}\n{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)
CONTEXT = 128


def tiny_tokenizer(template: str | None = TEMPLATE) -> Any:
    """A byte-level BPE of 400 entries, which puts <s> before every text; its end token is that of documents, and answers end otherwise."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", TURN, "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(__file__).read_text(encoding="utf-8")], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"bos_token": "<s>", "eos_token": "</s>"})
    fast.chat_template = template
    return fast


def write_published(folder: Path) -> Path:
    """Save such a model, untrained, by transformers itself, with a card."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\nmodel_name: Tiny\n---\n\n# Tiny\n", encoding="utf-8")
    return folder
