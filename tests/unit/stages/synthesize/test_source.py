"""Texts that a model wrote as a source of ingest.extract: each shard reads its own files, and consumes no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.stages.ingest import extract
from crawl2llm.text.group_split import origin_of
from tests.unit.stages.synthesize.writing import corpus, page, run, says, serving, settings, texts, words  # noqa: F401 - `endpoint`

STEP = "synthesize.seed"


def extracted(tmp_path: Path, shard: int, *options: str) -> int:
    source = {"name": "written", "kind": "synthesized", "step": STEP}
    given = configuration.validate({"ingest": {"extract": {"shards": 2, "sources": [source]}}})
    out = tmp_path / f"extract/0000{shard}.manifest.json"
    return extract.main(["--config", fingerprint("ingest.extract", given), *options, "--manifest", str(out)])


def test_each_shard_reads_its_own_files(endpoint: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(number) for number in range(30)]}})
    url, _ = endpoint(lambda _, body: (200, says(words(body))))
    assert run(tmp_path / "out", url, settings(STEP, where, files=3)) == 0
    made = tmp_path / "out/manifest.json"
    assert all(not extracted(tmp_path, shard, "--synthesized", str(made)) for shard in range(2))
    read = [Manifest.read_unchecked(tmp_path / f"extract/0000{shard}.manifest.json") for shard in range(2)]
    found = [list(rows(tmp_path / f"extract/0000{shard}.parquet")) for shard in range(2)]
    assert [set(manifest.inputs[STEP]) for manifest in read] == [
        {"texts-00000.parquet", "texts-00002.parquet", "summary:files"},
        {"texts-00001.parquet", "summary:files"},
    ]
    written = {row["id"]: row for row in texts(tmp_path / "out")}
    assert {row["id"]: row["text"] for part in found for row in part} == {
        name: row["text"] for name, row in written.items()
    }
    for row in (row for part in found for row in part):
        facts = json.loads(row["metadata"])["synthesized"]
        assert (row["source"], row["curated"], row["url"]) == ("written", False, f"synthesized:{facts['seed']}/0")
        assert (
            facts["url"] == written[row["id"]]["url"]
            and origin_of(row) == facts["origin"] == f"h{int(facts['seed'], 16)}.org"
        )

    assert extracted(tmp_path, 0) == 1
    assert "source 'written' is of synthesize.seed: --synthesized must name its manifest" in capfd.readouterr().err
