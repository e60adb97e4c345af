"""Variants that read other files than the main run, though their settings are the same."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflow.conftest import command, environment


def source(*paths: str) -> dict[str, Any]:
    return {"ingest": {"extract": {"shards": 1, "sources": [{"name": "books", "kind": "text", "paths": list(paths)}]}}}


@pytest.mark.parametrize(("other", "own"), [("b/*.txt", True), ("c/*.txt", False)])
def test_a_variant_with_other_files_has_results_of_its_own(tmp_path: Path, other: str, own: bool) -> None:
    """Which files `paths` finds is in no fingerprint. c/ holds what a/ holds: those results are shared."""
    for name, text in (("a", "one"), ("b", "two"), ("c", "one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text(text)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({**source("a/*.txt"), "variants": {"other": source(other)}}))
    done = subprocess.run(
        command(tmp_path, "-n", config=config),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for made in ("ingest/extract/00000.manifest.json", "pretrain/train/manifest.json", "report/render/manifest.json"):
        assert f"results/main/{made}" in done.stdout
        assert (f"results/other/{made}" in done.stdout) is own
