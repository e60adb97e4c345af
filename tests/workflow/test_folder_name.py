"""The project in a folder whose name has spaces, accents and what a shell would run: README's own crawl plans and runs there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, environment

MINE = """
ingest:
  extract:
    shards: 1
    sources:
      - {name: web, kind: jsonl, paths: ["my crawl/*.jsonl"]}
"""
TEXT = "The road to the old mill was closed, and nobody in the town knew when it would be opened again. "


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, and a crawl beside it."""
    made = tmp_path / "a b é $(touch XD) `touch XD`" / "crawl2llm"
    left_out = shutil.ignore_patterns("__pycache__", ".*", "results", "logs", "checkpoints", "tests", "docs")
    shutil.copytree(ROOT, made, ignore=left_out)
    (made / "my crawl").mkdir()
    (made / "my crawl" / "one é.jsonl").write_text(json.dumps({"text": TEXT * 4}) + "\n", encoding="utf-8")
    (made / "mine.yaml").write_text(MINE, encoding="utf-8")
    return made


def snakemake(project: Path, *options: str) -> str:
    """What a run of README's command prints; fails the test with it where it failed."""
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--configfile", "mine.yaml", *options]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_crawl_is_planned_and_its_first_steps_run(project: Path, tmp_path: Path) -> None:
    planned = snakemake(project, "--dry-run")
    assert "report_render" in planned
    assert "auto: 13 keys of tokenize.train and pretrain.train: known after tokenize" in planned
    target = "results/main/language/score/00000.manifest.json"
    snakemake(project, "--cores", "1", target)
    assert json.loads((project / target).read_text(encoding="utf-8"))["counts"]["kept"] == 1
    assert not list(tmp_path.rglob("XD"))
