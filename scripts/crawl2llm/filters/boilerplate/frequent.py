"""Find the lines that are on many documents of their host: of the hosts whose hash is in this part, over all shards.

A line is frequent where it is on `documents_min` documents of its host or more, and on `share_min` of them or more. Writes the frequent
lines of each shard's hosts, as hashes. Memory: the hosts of the part, 24 bytes each, and 2 million lines, about 330 MB, whatever the
corpus; disk is 32 bytes for each line of a host in a shard.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crawl2llm.chain.step_program import Program
from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.boilerplate.keys import DOCUMENTS, LINE, merge_counts
from crawl2llm.filters.boilerplate.settings import FrequentSettings
from crawl2llm.formats.document_numbers import group_starts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.hash_shuffle import Answers, Rows, pieces_of_part, rows_of_part


def host_counts(files: list[Path], part: int, parts: int) -> Rows:
    """The documents of every host of the part: rows of LINE, sorted by host."""
    counts = np.zeros(0, LINE)
    for _, shard in groupby(rows_of_part(files, part, parts, LINE), key=itemgetter(0)):
        counts = merge_counts(np.concatenate((counts, *(rows[rows["key"] == DOCUMENTS] for _, rows in shard))))
    return counts


def frequent_rows(rows: Rows, hosts: Rows, documents_min: int, share_min: float) -> npt.NDArray[np.bool_]:
    """Which rows are of a frequent line, (rows,). rows: of LINE, all of each key among them; hosts: from `hosts`."""
    order = np.argsort(rows["key"], kind="stable")
    ordered = rows[order]
    first = group_starts(ordered["key"])
    begin = np.flatnonzero(first)
    if not len(begin):
        return np.zeros(0, bool)
    count = np.add.reduceat(ordered["count"], begin)
    host_documents = hosts["count"][np.searchsorted(hosts["hash"], ordered["hash"][begin])]
    passes = (count >= documents_min) & (count >= share_min * host_documents) & (ordered["key"][begin] != DOCUMENTS)
    out = np.empty(len(rows), bool)
    out[order] = passes[np.cumsum(first) - 1]
    return out


def body(args: argparse.Namespace, settings: FrequentSettings, manifest: Manifest) -> list[Path]:
    part, parts = shard_of(args.manifest), number_of_parts(len(args.counts))
    host_rows = host_counts(args.counts, int(part), parts)
    out = args.manifest.with_name(f"{part}.parquet")
    progress = Progress(len(host_rows), "hosts")
    progress.add(len(host_rows))
    lines = frequent_lines = 0
    with scratch_folder(args.manifest.with_name(f".{part}")) as folder:
        answers = Answers(folder / "answers", args.counts)
        for shard, rows in pieces_of_part(args.counts, int(part), parts, LINE, folder / "rows", key="key"):
            passes = frequent_rows(rows, host_rows, settings.documents_min, settings.share_min)
            answers.add(shard[passes], rows["key"][passes])
            lines += len(np.unique(rows["key"][rows["key"] != DOCUMENTS]))
            frequent_lines += len(np.unique(rows["key"][passes]))
        answers.write(out)
    manifest.summary = {"hosts": len(host_rows), "lines": lines, "frequent": frequent_lines}
    return [out]


main = Program("boilerplate.frequent", __doc__, FrequentSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
