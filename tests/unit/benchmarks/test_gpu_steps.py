"""benchmarks.gpu_steps on a CPU: what each setting trains, and what is estimated of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm.core.root import ROOT


@pytest.mark.long
def test_rows_of_a_tiny_model(tmp_path: Path) -> None:
    """In a process of its own, whose environment the benchmark changes."""
    cases = ["bf16", "compiled, stage 1, muon in bf16", "deepspeed"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_steps", "--steps", "2", "--out", str(tmp_path / "rows.json"), "--only", *cases],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert list(rows) == cases and all(row["tokens_per_second"] > 0 and row["mfu"] is None for row in rows.values())
    # Muon has one moment of a matrix where AdamW has two.
    assert rows[cases[1]]["estimate"]["optimizer"] < 0.7 * rows[cases[0]]["estimate"]["optimizer"]
    assert done.stdout.startswith("No GPU is here")
