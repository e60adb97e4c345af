"""What `tokenize.train.vocabulary: auto` stands for: a size that fits the corpus, a function of its bytes alone."""

from __future__ import annotations

from typing import Any

# (least bytes of training text, entries). The vocabulary that serves a model best grows more slowly than the model
# (Tao et al. 2024, https://arxiv.org/abs/2407.13623), and the model grows with the corpus (training/auto.py): at
# 4 bytes a token, a row here belongs to a row there, and the embedding takes less than half of the model.
TABLE = (
    (0, 1024),
    (2_000_000, 2048),
    (12_000_000, 4096),
    (1_000_000_000, 8192),
    (4_000_000_000, 16384),
    (12_000_000_000, 32768),
)


def vocabulary_entries(setting: Any, size: int) -> int:
    """The vocabulary's entries for `size` bytes of training text: `setting` itself if it is a number."""
    if setting != "auto":
        return int(setting)
    return next(number for least, number in reversed(TABLE) if size >= least)
