"""Held-out text by source and by language: what each model takes of it, in bits per byte and as perplexity.

evaluate.model leaves its losses by document. A document's source is in the index that tokenize.encode wrote beside the tokens,
and its language in what language.score wrote of the same shard: of that only shards with a scored document are read, two columns of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from crawl2llm.core.intervals import DIGITS, LEAST_DOCUMENTS, bootstrap_interval
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.documents import rows
from crawl2llm.stages.evaluate.settings import CompareSettings

KINDS = ("source", "language")
MOST = 20  # parts of a kind that have a line of their own, the largest; the others are OTHER
OTHER = "(other)"  # no source or language has parentheses in its name
UNKNOWN = "unknown"  # the language of a document that language.score did not see


@dataclass(frozen=True)
class Origin:
    """Where a held-out document comes from."""

    source: str
    language: str | None  # None in a run without language identification


def document_origins(documents: set[str], encoded: Iterable[Path], languages: Iterable[Path]) -> dict[str, Origin]:
    """The origin of each document of `documents` that is there. encoded, languages: manifests of tokenize.encode and language.score.

    Raises ManifestError for a file that is missing or damaged.
    """
    source_by_id: dict[str, str] = {}
    by_shard: dict[str, list[str]] = {}
    for path in encoded:
        manifest = Manifest.read(path)
        for name in sorted(manifest.files):
            if not (name.startswith("validation/") and name.endswith(".docs.parquet")):
                continue
            source = "/".join(name.split("/")[1:-1])  # as tokenize.encode writes them
            for row in rows(manifest.file(name), ["id"]):
                if row["id"] in documents:
                    source_by_id[row["id"]] = source
                    by_shard.setdefault(task_of(path), []).append(row["id"])
    language_manifests = {task_of(path): path for path in languages}
    language_by_id: dict[str, str] = {}
    for shard, names in by_shard.items():
        if shard in language_manifests:
            file = Manifest.read(language_manifests[shard]).file(f"{shard}.parquet")
            table = pq.read_table(file, columns=["id", "language"], filters=[("id", "in", names)])
            language_by_id |= dict(zip(table["id"].to_pylist(), table["language"].to_pylist(), strict=True))
    return {
        name: Origin(source, (language_by_id.get(name) or UNKNOWN) if language_manifests else None)
        for name, source in source_by_id.items()
    }


def parts_by_kind(origins: dict[str, Origin], sizes: dict[str, int]) -> dict[str, dict[str, str]]:
    """Kind → document → the name of its part; the MOST largest parts, by bytes of `sizes`, have one. A kind of one part is left out."""
    parts = {}
    for kind in KINDS:
        part_by_document = {
            name: value for name, origin in origins.items() if (value := getattr(origin, kind)) is not None
        }
        total: dict[str, int] = {}
        for name, part in part_by_document.items():
            total[part] = total.get(part, 0) + sizes.get(name, 0)
        largest = sorted(total, key=lambda part: (-total[part], part))[:MOST]
        if len(total) > 1:
            parts[kind] = {name: part if part in largest else OTHER for name, part in part_by_document.items()}
    return parts


def slice_rows(
    lines: Sequence[dict[str, Any]], origins: dict[str, Origin], settings: CompareSettings
) -> list[dict[str, Any]]:
    """What a model takes of each part, the largest first: documents, bytes, tokens, bits_per_byte (with `stderr`), perplexity.

    lines: of `<model>.heldout.jsonl`. stderr: by bootstrap over documents; not there with fewer than LEAST_DOCUMENTS.
    """
    sizes = {line["document"]: int(line["bytes"]) for line in lines}
    out = []
    for kind, names in parts_by_kind(origins, sizes).items():
        parts: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            if line["document"] in names and line["bytes"]:
                parts.setdefault(names[line["document"]], []).append(line)
        kind_rows = []
        for part, part_lines in parts.items():
            nats = np.array([line["nats"] for line in part_lines])
            size = np.array([float(line["bytes"]) for line in part_lines])
            tokens = sum(int(line["tokens"]) for line in part_lines)  # the model's own
            row: dict[str, Any] = {
                "by": kind,
                "name": part,
                "documents": len(part_lines),
                "bytes": int(size.sum()),
                "tokens": tokens,
                "bits_per_byte": round(float(nats.sum()) / math.log(2) / float(size.sum()), DIGITS),
                "perplexity": round(math.exp(min(float(nats.sum()) / tokens, 700.0)), 4),
            }
            if len(part_lines) >= LEAST_DOCUMENTS:
                stderr, _, _ = bootstrap_interval(
                    nats / math.log(2), size, settings.resamples, settings.confidence, [settings.seed]
                )
                row["stderr"] = round(stderr, DIGITS)
            kind_rows.append(row)
        out += sorted(kind_rows, key=lambda row: (-row["bytes"], row["name"]))
    return out
