"""report.summary: the last lines of `make demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.report import facts, summary
from scripts.report.records import Run


def test_says_what_to_run_where_nothing_has_run(tmp_path: Path, capsys: Any) -> None:
    assert summary.main(["--results", str(tmp_path / "main")]) == 1
    assert "make demo" in capsys.readouterr().err


def test_prints_the_runs_numbers(run_folder: Path, manifests: list[Path], capsys: Any) -> None:
    (run_folder / "report/render").mkdir(parents=True)
    facts.write(run_folder / "report/render/counts.json", facts.counts(Run.read(manifests)))
    assert summary.main(["--results", str(run_folder)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.replace("base model", "base").splitlines())
    assert lines["report"].endswith("report/render/report.html")
    assert lines["trained"] == "123 k parameters on 60 k tokens, 60 steps"
    assert lines["base"] == "1.91 bits per held-out byte, accuracy 26.0 % ± 1.6 % (chance 25.0 %)"
    assert "41.0 %" in lines["fine-tuned"]
    tasks = sum(1 for _ in (run_folder / "benchmarks").rglob("*.tsv"))
    assert lines["time"].startswith(f"{2.5 * tasks:.1f} s")


def test_damaged_counts_are_named(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "report/render"
    folder.mkdir(parents=True)
    (folder / "counts.json").write_text("{")
    assert summary.main(["--results", str(tmp_path)]) == 1
    assert "counts.json" in capsys.readouterr().err


def test_numbers_that_are_missing_show_as_a_dash(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "report/render"
    folder.mkdir(parents=True)
    (folder / "counts.json").write_text("{}")
    assert summary.main(["--results", str(tmp_path)]) == 0
    assert "–" in capsys.readouterr().out
