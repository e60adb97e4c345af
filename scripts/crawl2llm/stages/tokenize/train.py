"""Train a byte-level tokenizer, BPE or Unigram, on a sample of the training split, or take a ready one.

Writes `tokenizer.json` (Hugging Face tokenizers) and `tokenizer_config.json`, so that `AutoTokenizer.from_pretrained` loads the
folder. No normaliser: every text comes back byte for byte. Byte-level BPE after Radford et al. 2019 (GPT-2).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import regex
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, write_atomically
from crawl2llm.formats.documents import rows, shard_of, uniform_hash
from crawl2llm.stages.tokenize import ranks, ready, ready_checks, unigram
from crawl2llm.stages.tokenize.settings import TrainSettings
from crawl2llm.training import vocabulary_size
from crawl2llm.training.special_tokens import EOS, PAD, SPECIAL

LONGEST = 30  # tokens named in the summary
# Characters of a piece of text that a tokenizer is trained on: both trainers count pieces, and BPE's takes time by the square of their
# lengths. Three times the longest in real text (docs/stages/tokenize.md); at most 4,096 bytes in GPT-2's alphabet, 8 a character:
# sentencepiece leaves out pieces of more than 4,192 (its `max_sentence_length`).
PIECE = 512
MEASURED_BYTES = 4_000_000  # bytes of validation text that bytes per token is measured on

COMPARED_BYTES = 4_000_000  # of training text that a ready tokenizer and its original both encode


def untrained_tokenizer(digits: int, marks: str = "separate") -> Tokenizer:
    """A byte-level BPE without merges. digits: numbers are split into groups of up to that many (0: not split). marks: whether combining
    marks (Unicode's category M) part words, as in GPT-2, or belong to them (`letters`).
    """
    tokenizer = Tokenizer(models.BPE())
    steps: list[Any] = []
    if digits:
        steps.append(pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{digits}}}"), behavior="isolated"))
    if marks == "letters":
        steps.append(pre_tokenizers.Split(Regex(ranks.MARKED), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=marks != "letters"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sample_texts(paths: list[Path], limit: int, total: int, seed: int) -> Iterator[str]:
    """The texts of a random sample of about `limit` of `total` bytes, by the hash of (seed, id)."""
    share = min(1.0, limit / max(total, 1))
    for path in paths:
        for row in rows(path, ["id", "text"]):
            if uniform_hash(seed, row["id"], "tokenizer") < share:
                yield row["text"]


def cut_long_pieces(texts: Iterable[str], pieces: regex.Pattern[str]) -> Iterator[str]:
    """The texts, each cut in several if a piece has over PIECE characters: after every PIECE of that piece, and after it.

    All other pieces stay as they are, and a text without a long one comes whole. pieces: of the tokenizer, see `unigram.piece_expression`.
    """
    # A piece is white space, or one space at most and what is none.
    run = regex.compile(rf"(?<!\S)\S{{{PIECE}}}|(?<!\s)\s{{{PIECE}}}")  # searched at the start of each run alone
    for text in texts:
        start = 0  # of what was not given yet
        for piece in pieces.finditer(text) if run.search(text) else ():
            begin, end = piece.span()
            if end - begin > PIECE:
                # With what is before: how white space is cut depends on what follows it.
                yield text[start : begin + PIECE]
                yield from (text[at : min(at + PIECE, end)] for at in range(begin + PIECE, end, PIECE))
                start = end
        if start < len(text):
            yield text[start:]


def train_bpe(texts: Iterator[str], tokenizer: Tokenizer, entries: int) -> Tokenizer:
    """Trains `tokenizer`, which is as `untrained_tokenizer` makes it."""
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


MODELS: dict[str, Callable[[Iterator[str], Tokenizer, int], Tokenizer]] = {
    "bpe": train_bpe,
    "unigram": unigram.train_unigram,
}


def longest_entries(tokenizer: Tokenizer, number: int = LONGEST) -> list[str]:
    """The longest entries of the vocabulary, decoded; very long ones show what the corpus repeats."""
    entries = [tokenizer.decode([index]) for index in range(tokenizer.get_vocab_size())]
    return sorted((text for text in entries if text not in SPECIAL), key=lambda text: (-len(text), text))[:number]


def count_bytes_and_tokens(tokenizer: Tokenizer, paths: list[Path]) -> tuple[int, int]:
    """(bytes, tokens) of the first texts that together have MEASURED_BYTES bytes; nothing after them is read."""
    size = tokens = 0
    for path in paths:
        for row in rows(path, ["text"]):
            size += len(row["text"].encode())
            tokens += len(tokenizer.encode(row["text"], add_special_tokens=False).ids)
            if size >= MEASURED_BYTES:
                return size, tokens
    return size, tokens


class Task(TrainSettings):
    """What the program is given. content: digest of the files of a ready tokenizer."""

    content: str | None = None


def take_ready(settings: Task, texts: Iterator[str]) -> ready.Ready:
    """The tokenizer of `from`. Raises InputError where a text of the corpus has other ids than by its original, or the files have changed.

    texts: the sample, of which COMPARED_BYTES are compared.
    """
    ready_tokenizer = ready.read_ready(settings)
    if (content := ready_checks.content_digest(settings.ready)) != settings.content:  # after they were read
        raise InputError(
            f"{ready_checks.KEY}: {ready_checks.tokenizer_path(settings.ready)} has changed since the run began ({content}, planned "
            f"{settings.content})"
        )
    ready_tokenizer.check_hard_texts()
    size = 0
    for text in ready_tokenizer.check_texts(texts):
        size += len(text.encode())
        if size >= COMPARED_BYTES:
            break
    log.info("%.1f MB of the corpus get the ids of the original", size / 1e6)
    for note in ready_notes(ready_tokenizer):
        log.warning("%s", note)
    return ready_tokenizer


def ready_notes(ready_tokenizer: ready.Ready) -> list[str]:
    """What a reader has to know of a ready tokenizer: texts with other ids than by its original, and texts that it changes."""
    notes = []
    if ready_tokenizer.differing:
        notes.append(
            f"The ready tokenizer gives {len(ready_tokenizer.differing)} of {len(ready.HARD_TEXTS)} hard texts other ids than its "
            f"original does: {', '.join(map(repr, ready_tokenizer.differing))}."
        )
    if ready_tokenizer.composed:
        notes.append(
            f"The ready tokenizer writes texts in NFC: {ready_tokenizer.composed} of the compared ones are other bytes before."
        )
    return notes


def training_texts(args: argparse.Namespace, limit: int, seed: int) -> tuple[Iterator[str], int]:
    """The texts of a sample of about `limit` bytes of the training split, and the bytes of the whole split.

    Raises InputError for a corpus without training text.
    """
    corpus = {shard_of(path): Manifest.read(path) for path in args.corpus}
    total = sum(part.summary["train"]["bytes"] for part in corpus.values())
    if not total:
        raise InputError("the corpus has no training text: no document is in the training split (corpus.split)")
    return sample_texts(
        [part.file(f"train/{shard}.parquet") for shard, part in corpus.items()], limit, total, seed
    ), total


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    texts, total = training_texts(args, settings.train_bytes, settings.seed)
    progress = Progress(None, "documents sampled")

    def counted_texts() -> Iterator[str]:
        for text in texts:
            progress.add()
            yield text

    ready_tokenizer = take_ready(settings, counted_texts()) if ready_checks.is_ready(settings.ready) else None
    if ready_tokenizer is None:
        log.info("training on about %.1f MB of %.1f MB", min(settings.train_bytes, total) / 1e6, total / 1e6)
        entries = vocabulary_size.vocabulary_entries(settings.vocabulary, total)
        empty = untrained_tokenizer(settings.digits, settings.marks)
        tokenizer = MODELS[settings.model](
            cut_long_pieces(counted_texts(), unigram.piece_expression(empty)), empty, entries
        )
    else:
        tokenizer = ready_tokenizer.tokenizer
    out = args.manifest.with_name("tokenizer.json")
    write_atomically(out, tokenizer.to_str(pretty=True))
    settings_file = args.manifest.with_name("tokenizer_config.json")
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "bos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_atomically(settings_file, json.dumps(facts, indent=1) + "\n")

    tokenizer.encode_special_tokens = True  # as in tokenize.encode: special tokens are not recognised in text
    began = time.monotonic()
    size, tokens = count_bytes_and_tokens(
        tokenizer, [Manifest.read(path).file(f"validation/{shard_of(path)}.parquet") for path in args.corpus]
    )
    manifest.summary = {
        "vocabulary": tokenizer.get_vocab_size(),
        "sampled_documents": progress.done,
        "bytes_per_token": round(size / tokens, 6) if tokens else None,
        "measured_bytes": size,
        "longest_tokens": longest_entries(tokenizer),
    }
    if ready_tokenizer is not None:
        manifest.summary |= {
            "differing_texts": ready_tokenizer.differing,
            "composed_texts": ready_tokenizer.composed,
            "notes": ready_notes(ready_tokenizer),
        }
    speed = size / 1e6 / max(time.monotonic() - began, 1e-9)
    manifest.run["megabytes_per_second"] = round(speed, 3)
    log.info(
        "vocabulary %s, %.3f bytes per token, encodes %.2f MB/s",
        f"{tokenizer.get_vocab_size():,}", size / max(tokens, 1), speed,
    )  # fmt: skip
    return [out, settings_file]


main = Program("tokenize.train", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
