"""Encode a shard of the corpus into Megatron indexed datasets, one for each split.

Writes `{train,validation}/<shard>.bin` and `.idx` (every document ends with the end-of-text token) and
`<shard>.docs.parquet`: `id, offset, tokens, bytes`, so that any token leads back to its document, and losses turn into bits per byte.
A split without documents has the last alone, without rows: readers of the format cannot map an empty `.bin`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from scripts.formats.documents import Writer, batches, shard_of
from scripts.formats.indexed import IndexedWriter, token_dtype
from scripts.tokenize.train import EOS
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest

DOCS = pa.schema([("id", pa.string()), ("offset", pa.int64()), ("tokens", pa.int64()), ("bytes", pa.int64())])
SPLITS = ("train", "validation")


def encode(documents: Path, stem: Path, tokenizer: Tokenizer, progress: Progress) -> dict[str, int]:
    """Encode one split of a shard; returns its documents, tokens (end-of-text included) and bytes of text."""
    eos = tokenizer.token_to_id(EOS)
    total = {"documents": 0, "tokens": 0, "bytes": 0}
    dtype = token_dtype(tokenizer.get_vocab_size())
    with IndexedWriter(stem, dtype) as writer, Writer(stem.with_suffix(".docs.parquet"), DOCS) as docs:
        for batch in batches(documents, ["id", "text"], size=256):
            texts = batch.column("text").to_pylist()
            # Special tokens are not recognised in text: a page that contains <|endoftext|> must not end a document.
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            for name, text, encoding in zip(batch.column("id").to_pylist(), texts, encodings, strict=True):
                ids = np.array([*encoding.ids, eos], dtype=dtype)
                size = len(text.encode())
                writer.add(ids)
                docs.add({"id": name, "offset": total["tokens"], "tokens": len(ids), "bytes": size})
                total["documents"] += 1
                total["tokens"] += len(ids)
                total["bytes"] += size
                progress.add(size)
    return total


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard, corpus = shard_of(args.corpus), Manifest.read(args.corpus)
    tokenizer = Tokenizer.from_file(str(Manifest.read(args.tokenizer).sound("tokenizer.json").file("tokenizer.json")))
    tokenizer.encode_special_tokens = True
    progress = Progress(sum(corpus.summary[split]["bytes"] for split in SPLITS), "bytes")
    files = []
    for split in SPLITS:
        stem = args.manifest.parent / split / shard
        manifest.summary[split] = encode(corpus.file(f"{split}/{shard}.parquet"), stem, tokenizer, progress)
        kinds = (".bin", ".idx", ".docs.parquet") if manifest.summary[split]["tokens"] else (".docs.parquet",)
        files += [stem.with_suffix(suffix) for suffix in kinds]
    documents = sum(manifest.summary[split]["documents"] for split in SPLITS)
    manifest.counts = {"in": corpus.counts["kept"], "kept": documents, "dropped": {}}
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "tokenize.encode",
        __doc__,
        "--config config.yaml --corpus results/main/corpus/write/00000.manifest.json "
        "--tokenizer results/main/tokenize/train/manifest.json --manifest /tmp/00000.manifest.json",
    )
    parser.add_argument("--corpus", required=True, type=Path, help="manifest of a corpus.write shard")
    parser.add_argument("--tokenizer", required=True, type=Path, help="manifest of tokenize.train")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
