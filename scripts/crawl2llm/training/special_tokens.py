"""The special tokens: the first ids of every vocabulary, the same in all, so that no later stage needs another tokenizer.

A model that was pre-trained has a row in its embedding for each of them. No text of the corpus encodes to one:
`tokenize.encode` takes what is written in a page as text.
"""

from __future__ import annotations

EOS, PAD = "<|endoftext|>", "<|pad|>"
# As in ChatML (https://github.com/openai/openai-python/blob/release-v0.28.0/chatml.md) and Qwen's tokenizers.
CHAT = ("<|im_start|>", "<|im_end|>")
# Fill-in-the-middle, Bavarian et al. 2022, https://arxiv.org/abs/2207.14255, in the names of code models of several groups.
FILL_IN = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>")
TOOLS = ("<|tool_call|>", "<|tool_response|>")
NAMED_TOKENS = (EOS, PAD, *CHAT, *FILL_IN, *TOOLS)
NUMBER = 16  # with those that have no use yet; one more would move the ids of all other entries
SPECIAL = (*NAMED_TOKENS, *(f"<|reserved_{n}|>" for n in range(NUMBER - len(NAMED_TOKENS))))
