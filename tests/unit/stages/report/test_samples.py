"""The report's samples of dropped documents: thresholds and all rules come from the verdicts, which alone have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import VERDICT, Writer
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.corpus.write import DROPPED
from crawl2llm.stages.report.samples import add_limits, pick_documents

OUT: dict[str, Any] = {"rule": "words_min", "value": 3.0, "rules": ["words_min", "lines_max"], "threshold": 50.0}


def table(path: Path, step: str, *rows: dict[str, Any], **summary: Any) -> None:
    """A table of a shard with its manifest."""
    with Writer(path, DROPPED if path.parent.name == "dropped" else VERDICT) as writer:
        for row in rows:
            writer.add({name: value for name, value in row.items() if name in writer.schema.names})
    folder = path.parent.parent if path.parent.name == "dropped" else path.parent
    Manifest(step, "0", summary=summary).write(folder / f"{path.stem}.manifest.json", [path])


def test_a_threshold_is_that_of_the_verdict(tmp_path: Path) -> None:
    for shard in ("00000", "00001"):
        heuristics = {**OUT, "id": f"h{shard}", "stage": "heuristics"}
        near = {"id": f"n{shard}", "stage": "corpus", "rule": "near_validation", "value": 0.7, "similarity": 0.7}
        table(tmp_path / f"write/dropped/{shard}.parquet", "corpus.write", heuristics, near)
        exempt = {**OUT, "id": "other", "kept": True, "rule": None}
        table(tmp_path / f"select/{shard}.parquet", "heuristics.select", {**heuristics, "kept": False}, exempt)
    Manifest("corpus.split", "0", summary={"near_duplicates": {"similarity": 0.5}}).write(
        tmp_path / "split/manifest.json", []
    )
    run = Run.read(tmp_path.glob("*/*manifest.json"))
    dropped = pick_documents(run, 2, 0)[1]
    add_limits(run, dropped)
    shown = {row["id"]: (row["rule"], row["threshold"], row["rules"]) for rows in dropped.values() for row in rows}
    assert shown == {
        **{f"h{shard}": ("words_min", 50.0, ["words_min", "lines_max"]) for shard in ("00000", "00001")},
        **{f"n{shard}": ("near_validation", 0.5, None) for shard in ("00000", "00001")},
    }
