"""Documents of a benchmark as ingest.extract writes them: real texts, repeated under other ids as often as it takes."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import DOCUMENT, Writer, document_id


def options(parser: argparse.ArgumentParser) -> None:
    """Add --texts, --documents and --shards."""
    data = Path(os.environ.get("CRAWL2LLM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--texts", type=Path, default=data / "corpora/c4_demo.jsonl.zst")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=64)


def texts(path: Path) -> list[str]:
    """The texts of JSON Lines, also compressed."""
    with pa.input_stream(path, compression="detect") as stream:
        return [json.loads(line)["text"] for line in stream.read().splitlines()]


def written(path: Path, numbers: Sequence[int], texts: Iterable[str], **columns: Any) -> pa.Table:
    """A file of documents, an id for each number and a text for each. columns: what else is known of them, arrays of (documents,)."""
    nothing = pa.nulls(len(numbers), pa.string())
    made = {
        "id": pa.array([document_id(str(number)) for number in numbers], pa.string()),
        "text": pa.array(texts, pa.string()),
        "source": pa.array(["web"] * len(numbers), pa.string()),
        "curated": pa.array(np.zeros(len(numbers), bool)),
        "metadata": pa.array(["{}"] * len(numbers), pa.string()),
    }
    rest = {name: nothing for name in DOCUMENT.names if name not in made}
    table = pa.table({**rest, **made, **columns}).select(DOCUMENT.names).cast(DOCUMENT)
    with Writer(path, DOCUMENT) as writer:
        writer.add_table(table)
    return table
