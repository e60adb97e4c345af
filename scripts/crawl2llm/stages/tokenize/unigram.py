"""A Unigram tokenizer over bytes: trained by sentencepiece, written as one of `tokenizers`.

Kudo 2018, https://arxiv.org/abs/1804.10959. The trainer sees the pieces of the pre-tokenizer, written in GPT-2's alphabet
of bytes, with their counts. Every byte is an entry, so whatever has no entry of its own falls back to its bytes, and every
text comes back. sentencepiece's own byte fallback would read the text `<0x41>` as a byte, and the trainer of `tokenizers`
gives other bytes each time: the order of its hash tables is random.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import regex
import sentencepiece
from tokenizers import Tokenizer, models

from crawl2llm.stages.tokenize import ranks
from crawl2llm.training.special_tokens import SPECIAL

LONGEST = 16  # bytes of an entry, as sentencepiece has it by default in characters
THREADS = 4  # sums are added thread by thread: a fixed number, so that the scores do not depend on the machine
SETTINGS: dict[str, Any] = {
    "input_format": "tsv",  # pieces and how often each is there
    "model_type": "unigram",
    "hard_vocab_limit": False,
    "character_coverage": 1.0,
    "max_sentencepiece_length": LONGEST,
    "num_threads": THREADS,
    "unk_id": 0,
    **dict.fromkeys(("bos_id", "eos_id", "pad_id"), -1),
    # Texts stay as they are, and are cut already.
    "normalization_rule_name": "identity",
    **dict.fromkeys(("add_dummy_prefix", "remove_extra_whitespaces"), False),
    **dict.fromkeys(("split_by_unicode_script", "split_by_number", "split_by_whitespace"), False),
    "minloglevel": 1,
}


def piece_expression(tokenizer: Tokenizer) -> regex.Pattern[str]:
    """The expression whose matches are the pieces of the tokenizer's pre-tokenizer, see `ranks.piece_pattern`."""
    return regex.compile(ranks.piece_pattern(json.loads(tokenizer.to_str())["pre_tokenizer"]))


def train_unigram(texts: Iterable[str], untrained: Tokenizer, entries: int) -> Tokenizer:
    """A tokenizer with the pre-tokenizer and the decoder of `untrained` and `entries` entries, the special tokens first.

    Fewer where the texts do not hold as many. Memory: the distinct pieces of the texts.
    """
    counts: Counter[str] = Counter()
    expression = piece_expression(untrained)
    for text in texts:
        counts.update(expression.findall(text))
    character = {byte: character for character, byte in ranks.byte_alphabet().items()}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "pieces.tsv"
        with table.open("w", encoding="utf-8") as out:
            for piece, count in sorted(counts.items()):
                out.write("".join(character[byte] for byte in piece.encode()) + f"\t{count}\n")
            for alone in sorted(character.values()):
                out.write(f"{alone}\t1\n")
        model = Path(folder) / "unigram"
        # sentencepiece wants an unknown entry.
        files = {"input": str(table), "model_prefix": str(model), "vocab_size": entries - len(SPECIAL) + 1}
        sentencepiece.SentencePieceTrainer.train(**{**SETTINGS, **files})
        processor = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    learned = [(processor.id_to_piece(n), processor.get_score(n)) for n in range(1, processor.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram([*((name, 0.0) for name in SPECIAL), *learned], None, False))
    tokenizer.pre_tokenizer, tokenizer.decoder = untrained.pre_tokenizer, untrained.decoder
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
