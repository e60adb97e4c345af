"""Two sources, of which one skips two filters, beside a variant in which none skips any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from tests.unit.filters.heuristics.cases import page
from tests.workflow.conftest import differences, run, snapshot
from tests.workflow.plan import planned

GOOD, SHORT = page(), "Too short. the of"
TEXTS = {
    "web": {"good": GOOD, "copy": GOOD, "short": SHORT},
    "wiki": {"stub": SHORT, "again": SHORT, "good too": GOOD, "other": f"{GOOD}\nThe end of this page is of its own."},
}
SELECTS = ("heuristics.select", "dedup.select")


def config(folder: Path, *skipped: str) -> dict[str, Any]:
    """Write the sources, of which `wiki` skips filters; the variant `strict` has the same sources without that."""
    for name, texts in TEXTS.items():
        lines = (json.dumps({"text": text, "title": title}) for title, text in texts.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    sources = [{"name": name, "kind": "jsonl", "paths": [f"{name}.jsonl"]} for name in TEXTS]
    skipping = [sources[0], {**sources[1], "skip_filters": [*skipped]}]
    tree = {
        "ingest": {"extract": {"shards": 2, "sources": skipping}},
        "filters": ["language", "heuristics", "dedup"],
        "language": {"select": {"languages": [], "threshold": 0}},
        "dedup": {"signature": {"permutations": 8, "bands": 4, "rows": 2}},
        "evaluate": {"common": {"enabled": False}},
        "variants": {"strict": {"ingest": {"extract": {"sources": sources}}}},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    return tree


def judged(folder: Path, variant: str, step: str) -> tuple[dict[str, tuple[bool, list[str]]], list[Manifest]]:
    """(title of a document → whether it is kept and the rules that it fails, manifests) of a filter's select."""
    title = {
        row["id"]: json.loads(row["metadata"])["title"]
        for path in sorted((folder / "results/main/ingest/extract").glob("0000?.parquet"))
        for row in rows(path)
    }
    place = folder / "results" / variant / step.replace(".", "/")
    manifests = [Manifest.read(path) for path in sorted(place.glob("*manifest.json"))]
    found = {title[row["id"]]: row for path in sorted(place.glob("0000?.parquet")) for row in rows(path)}
    for made in manifests:
        assert made.counts["in"] == made.counts["kept"] + sum(made.counts["dropped"].values())
    return {name: (row["kept"], row["rules"]) for name, row in found.items()}, manifests


@pytest.mark.slow
@pytest.mark.long
def test_one_source_skips_two_filters(tmp_path: Path) -> None:
    tree = config(tmp_path, "heuristics", "dedup")
    run(tmp_path, "--until", "corpus_write", config=tmp_path / "mine.yaml")
    assert not (tmp_path / "results/strict/ingest").exists(), "documents, and what is measured, are the same"
    assert not (tmp_path / "results/strict/heuristics/score").exists()

    found, manifests = judged(tmp_path, "main", "heuristics.select")
    assert {name for name, (kept, _) in found.items() if not kept} == {"short"}
    assert found["stub"] == (True, found["short"][1]) and "gopher_quality.words_min" in found["short"][1]
    assert sum(made.summary["source_exempt"] for made in manifests) == 2
    found, (made,) = judged(tmp_path, "main", "dedup.select")
    assert sum(found.pop(name)[0] for name in ("good", "copy")) == 1 and made.counts["dropped"]["exact"] == 1
    assert found == dict.fromkeys(TEXTS["wiki"], (True, [])) and made.summary["source_exempt"] == 4

    found, manifests = judged(tmp_path, "strict", "heuristics.select")
    assert {name for name, (kept, _) in found.items() if not kept} == {"short", "stub", "again"}
    assert not any(made.summary["source_exempt"] for made in manifests)
    found, (made,) = judged(tmp_path, "strict", "dedup.select")
    assert found.keys() == {"good", "copy", "good too", "other"} and made.counts["kept"] == 1, "the longest"

    (tmp_path / "again").mkdir()
    config(tmp_path / "again", "dedup", "heuristics")
    run(tmp_path / "again", "--until", "corpus_write", cores=1, config=tmp_path / "again/mine.yaml")
    assert differences(snapshot(tmp_path), snapshot(tmp_path / "again")) == [], "with one worker, too"

    done = {
        path.parent.relative_to(tmp_path / "results/main")
        for path in (tmp_path / "results/main").rglob("*manifest.json")
    }
    steps = {".".join(path.parts) for path in done}
    tree = {**config(tmp_path, "dedup"), "variants": {}}
    above = {step for step in steps if step.split(".")[0] in ("ingest", "language")} | {"heuristics.score"}
    assert planned(tmp_path, tree) & steps == steps - above
