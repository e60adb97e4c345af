"""Count the documents of each topic that got to each filter, and those that it dropped.

`{shard}.parquet`: for each step that judges documents, topic and part of the hosts (topics.score) `documents` and `bytes` that got
there, `dropped` and `dropped_bytes`. Bytes are of the texts as they were extracted: what a filter cuts out of a document that stays is
not among them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.step_program import Program
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import PARTS
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, open_parquet, parquet_file, shard_of, verdict_file
from crawl2llm.stages.topics.settings import CountSettings

COUNT = pa.schema(
    [
        ("step", pa.string()),
        ("topic", pa.string()),
        ("part", pa.int8()),
        ("documents", pa.int64()),
        ("bytes", pa.int64()),
        ("dropped", pa.int64()),
        ("dropped_bytes", pa.int64()),
    ]
)


def body(args: argparse.Namespace, settings: CountSettings, manifest: Manifest) -> list[Path]:
    shard = shard_of(args.topics)
    with open_parquet(parquet_file(args.topics)) as file:
        signals = file.read(["id", "topic", "bytes", "part"])
    coded = signals["topic"].combine_chunks().dictionary_encode("encode")
    names, ids = coded.dictionary.to_pylist(), signals["id"].combine_chunks()
    cells = coded.indices.to_numpy().astype(np.int64) * PARTS + signals["part"].to_numpy()
    sizes = signals["bytes"].to_numpy()
    out = args.manifest.with_name(f"{shard}.parquet")
    with Writer(out, COUNT) as writer:
        for step_verdicts in surviving_texts.manifests_by_step(args.verdicts):
            path = surviving_texts.manifest_of_shard(step_verdicts, shard)
            with open_parquet(verdict_file(path, shard)) as file:
                verdicts = file.read(["id", "kept"])
            rows = (
                pc.index_in(verdicts["id"].combine_chunks(), value_set=ids)
                .to_numpy(zero_copy_only=False)
                .astype(np.int64)
            )
            dropped = ~verdicts["kept"].to_numpy()
            counts = [
                np.bincount(cells[some], weights, minlength=len(names) * PARTS).astype(np.int64)
                for some in (rows, rows[dropped])
                for weights in (None, sizes[some])
            ]
            for cell in np.flatnonzero(counts[0]).tolist():
                numbers = {name: int(of[cell]) for name, of in zip(COUNT.names[3:], counts, strict=True)}
                writer.add(
                    {"step": Manifest.read(path).step, "topic": names[cell // PARTS], "part": cell % PARTS, **numbers}
                )
    manifest.count_all_kept(len(ids))
    return [out]


main = Program("topics.count", __doc__, CountSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
