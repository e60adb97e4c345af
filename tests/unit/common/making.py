"""Real inputs of steps, made for a test: documents, verdicts, and the `--config` that the workflow would pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.common import config as configuration
from scripts.common.documents import DOCUMENT, VERDICT, Writer
from scripts.common.fingerprint import fingerprint
from scripts.common.manifest import Manifest


def config(step: str, **settings: Any) -> str:
    """The fingerprint of a step whose settings are the defaults with `settings` laid over them."""
    stage, name = step.split(".")
    return fingerprint(step, configuration.validate({stage: {name: settings}}))


def document(name: str, text: str, **more: Any) -> dict[str, Any]:
    """A row of documents."""
    row = {"source": "web", "curated": False, "url": f"https://example.org/{name}", "date": None, "metadata": "{}"}
    return {"id": name, "text": text, **row, **more}


def documents(folder: Path, rows: list[dict[str, Any]], shard: str = "00000") -> Path:
    """Documents as ingest.extract writes them; returns the manifest's path."""
    path = folder / f"{shard}.parquet"
    with Writer(path, DOCUMENT) as writer:
        for row in rows:
            writer.add(row)
    made = Manifest("ingest.extract", "test", {"in": len(rows), "kept": len(rows), "dropped": {}})
    made.write(folder / f"{shard}.manifest.json", [path])
    return folder / f"{shard}.manifest.json"


def verdicts(folder: Path, shards: dict[str, list[str]], drop: Callable[[str], bool] = lambda _: False) -> Path:
    """Verdicts of a one-task step on the ids of every shard, in order; `drop(id)` says which it drops."""
    files = []
    for shard, ids in shards.items():
        with Writer(folder / f"{shard}.parquet", VERDICT) as writer:
            for name in ids:
                out = drop(name)
                row = {"rule": "short", "value": 1.0, "threshold": 2.0, "rules": ["short"]} if out else {"rules": []}
                writer.add({"id": name, "kept": not out, **row})
        files.append(folder / f"{shard}.parquet")
    Manifest("some.select", "test").write(folder / "manifest.json", files)
    return folder / "manifest.json"
