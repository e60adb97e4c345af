"""Encode a shard of the corpus into Megatron indexed datasets, one for each split and source.

Writes `{train,validation}/<source>/<shard>.bin` and `.idx` (every document ends with the end-of-text token) and
`<shard>.docs.parquet`: `id, offset, tokens, bytes`, so that any token leads back to its document, and losses turn into bits per byte.
A source without documents in a split of a shard has no files there. The ids are those of `tokenizers`, also where tiktoken encodes:
a sample of the documents is encoded by both and compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import SPLITS, Writer, batches, shard_of, uniform_hash
from crawl2llm.formats.megatron import IndexedWriter, token_dtype
from crawl2llm.stages.tokenize.engine import Engine, Ids, choose_engine, reference_engine
from crawl2llm.stages.tokenize.settings import EncodeSettings
from crawl2llm.training.special_tokens import EOS

DOCS = pa.schema([("id", pa.string()), ("offset", pa.int64()), ("tokens", pa.int64()), ("bytes", pa.int64())])
COMPARED_SHARE = 0.01  # share of the documents, by hash, that both engines encode: a few per cent of the time
ROWS, BYTES = 64, 4 << 20  # of text read, and encoded, at a time; a longer document goes alone
KINDS = (".bin", ".idx", ".docs.parquet")


class Output:
    """The dataset of one source in one split of a shard. Use as a context manager."""

    def __init__(self, stem: Path, dtype: np.dtype, eos: int) -> None:
        self.stem, self.dtype, self.eos = stem, dtype, eos
        self.total = {"documents": 0, "tokens": 0, "bytes": 0}
        self.writer, self.docs = IndexedWriter(stem, dtype), Writer(stem.with_suffix(".docs.parquet"), DOCS)

    def add(self, name: str, ids: Ids, size: int) -> None:
        """Append the document `name` of `size` bytes: ids of shape [tokens], and the end-of-text token."""
        self.writer.add(np.append(ids.astype(self.dtype), self.dtype.type(self.eos)))
        self.docs.add({"id": name, "offset": self.total["tokens"], "tokens": len(ids) + 1, "bytes": size})
        for key, more in (("documents", 1), ("tokens", len(ids) + 1), ("bytes", size)):
            self.total[key] += more

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *error: Any) -> None:
        self.writer.__exit__(*error)
        self.docs.__exit__(*error)


def text_batches(documents: Path) -> Iterator[list[tuple[str, str, str]]]:
    """(id, source, text) of a file of documents, in lists of up to BYTES of characters, or of one longer text."""
    pending: list[tuple[str, str, str]] = []
    size = 0
    for batch in batches(documents, ["id", "source", "text"], size=ROWS):
        for row in zip(*(batch.column(name).to_pylist() for name in ("id", "source", "text")), strict=True):
            if pending and size + len(row[2]) > BYTES:
                yield pending
                pending, size = [], 0
            pending.append(row)
            size += len(row[2])
    if pending:
        yield pending


def check_ids(engine: Engine, exact: Engine, names: list[str], sample: list[str], ids: list[Ids]) -> None:
    """InputError names the first document whose ids differ from those of `tokenizers`.

    names, sample, ids: of the same documents, in the same order; ids by `engine`.
    """
    for name, text, encoded, expected in zip(names, sample, ids, exact.encode(sample), strict=True):
        if not np.array_equal(encoded, expected):
            shorter = min(len(encoded), len(expected))
            at = next(iter(np.flatnonzero(encoded[:shorter] != expected[:shorter])), shorter)
            raise command_line.InputError(
                f"document {name}: {engine.name} gives other tokens than tokenizers, from token {at} on "
                f"({encoded[at : at + 5].tolist()}, not {expected[at : at + 5].tolist()}; {len(text):,} characters): "
                "set tokenize.encode.engine to tokenizers, and report this as a bug"
            )


def encode_split(
    documents: Path,
    folder: Path,
    shard: str,
    tokenizer: Tokenizer,
    engine: Engine,
    progress: Progress,
    end: str = EOS,
) -> tuple[dict[str, dict[str, int]], int]:
    """Encode one split of a shard into `folder`/<source>/<shard>.*; end: the end-of-text token.

    Returns each source's documents, tokens (end-of-text included) and bytes of text, and how many documents were compared.
    """
    eos, dtype, exact = tokenizer.token_to_id(end), token_dtype(tokenizer.get_vocab_size()), reference_engine(tokenizer)
    if eos is None:
        raise command_line.InputError(f"the tokenizer has no {end}, with which documents end")
    for old in (*folder.glob(f"{shard}.*"), *folder.glob(f"*/{shard}.*")):
        old.unlink()  # of a source that this shard no longer has
    compared = 0
    outputs: dict[str, Output] = {}
    with ExitStack() as stack:
        for rows in text_batches(documents):
            ids = engine.encode([text for _, _, text in rows])
            first = not outputs
            sampled = [
                n
                for n, row in enumerate(rows)
                if (first and not n) or uniform_hash(0, row[0], "engine") < COMPARED_SHARE
            ]
            if engine.name != exact.name:
                names, sample = [rows[n][0] for n in sampled], [rows[n][2] for n in sampled]
                check_ids(engine, exact, names, sample, [ids[n] for n in sampled])
                compared += len(sampled)
            for (name, source, text), document_ids in zip(rows, ids, strict=True):
                if source not in outputs:
                    outputs[source] = stack.enter_context(Output(folder / source / shard, dtype, eos))
                size = len(text.encode())
                outputs[source].add(name, document_ids, size)
                progress.add(size)
    return {source: outputs[source].total for source in sorted(outputs)}, compared


@cache
def load_engine(path: Path, setting: str) -> tuple[Tokenizer, Engine]:
    """The tokenizer of a file and its engine, once for all shards of a task."""
    tokenizer = Tokenizer.from_file(str(path))
    return tokenizer, choose_engine(setting, tokenizer)


def body(args: argparse.Namespace, settings: EncodeSettings, manifest: Manifest) -> list[Path]:
    shard, corpus = shard_of(args.corpus), Manifest.read(args.corpus)
    file = Manifest.read(args.tokenizer).verify_files("tokenizer.json").file("tokenizer.json")
    tokenizer, engine = load_engine(file, settings.engine)
    progress = Progress(sum(corpus.summary[split]["bytes"] for split in SPLITS), "bytes")
    files, compared = [], 0
    manifest.summary = {"by_source": {}}
    for split in SPLITS:
        folder = args.manifest.parent / split
        sources, more = encode_split(
            corpus.file(f"{split}/{shard}.parquet"), folder, shard, tokenizer, engine, progress
        )
        compared += more
        totals = {key: sum(part[key] for part in sources.values()) for key in ("documents", "tokens", "bytes")}
        manifest.summary |= {split: totals}
        manifest.summary["by_source"][split] = sources
        files += [folder / source / f"{shard}{kind}" for source in sources for kind in KINDS]
    manifest.summary |= {"engines": {engine.name: 1}, "compared": compared}
    documents = sum(manifest.summary[split]["documents"] for split in SPLITS)
    manifest.counts = {
        "in": sum(corpus.summary[split]["documents"] for split in SPLITS),
        "kept": documents,
        "dropped": {},
    }
    return files


main = Program("tokenize.encode", __doc__, EncodeSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
