"""What turns texts into ids: tiktoken where it gives exactly the ids of `tokenizers`, else `tokenizers` itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tiktoken
from tokenizers import Tokenizer

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.stages.tokenize import ranks

Ids = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Engine:
    """`encode`: texts → the ids of each, [tokens]. Special tokens are not recognised in the texts, and none is added."""

    name: str
    encode: Callable[[list[str]], list[Ids]]


def thread_count() -> int:
    """How many threads encode, as the rule says to `tokenizers`; it decides no byte."""
    return int(os.environ.get("RAYON_NUM_THREADS", 1))


def reference_engine(tokenizer: Tokenizer) -> Engine:
    """`tokenizers` itself, in RAYON_NUM_THREADS threads."""
    tokenizer.encode_special_tokens = True  # as text: no special token is looked for in it

    def encode_batch(texts: list[str]) -> list[Ids]:
        return [
            np.array(encoding.ids, np.uint32)
            for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]

    return Engine("tokenizers", encode_batch)


def tiktoken_engine(tokenizer: Tokenizer) -> Engine:
    """The same ids by tiktoken, in `thread_count` threads. Raises ranks.InexpressibleError if there is none.

    Unlike `encode_ordinary`, `encode_to_numpy` has no list of Python integers, lets other threads run, and answers with an
    exception, not with a panic, where the regular expression gives up: on a million spaces in a row. `tokenizers` encodes that text.
    """
    tokenizer_json = json.loads(tokenizer.to_str())
    encoding = tiktoken.Encoding(
        "crawl2llm",
        pat_str=ranks.piece_pattern(tokenizer_json["pre_tokenizer"]),
        mergeable_ranks=ranks.byte_ranks(tokenizer_json),
        special_tokens={token["content"]: token["id"] for token in tokenizer_json["added_tokens"]},
    )
    slow = reference_engine(tokenizer)
    pool = ThreadPoolExecutor(thread_count()) if thread_count() > 1 else None

    def encode_text(text: str) -> Ids:
        try:
            return encoding.encode_to_numpy(text, disallowed_special=())
        except ValueError:
            return slow.encode([text])[0]

    return Engine("tiktoken", lambda texts: list(pool.map(encode_text, texts) if pool else map(encode_text, texts)))


def choose_engine(setting: str, tokenizer: Tokenizer) -> Engine:
    """The engine of `tokenize.encode.engine`; `auto` is tiktoken where it can be proven to give the same ids.

    Raises InputError if tiktoken is asked for and cannot.
    """
    if setting == "tokenizers":
        return reference_engine(tokenizer)
    try:
        return tiktoken_engine(tokenizer)
    except ranks.InexpressibleError as error:
        if setting != "auto":
            raise InputError(
                f"tokenize.encode.engine is {setting}, which cannot encode as this tokenizer does: {error}; "
                "set it to auto or to tokenizers"
            ) from error
        log.info("using tokenizers; tiktoken is faster, but cannot encode as this tokenizer does: %s", error)
        return reference_engine(tokenizer)
