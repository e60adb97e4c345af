"""Which benchmark file of a task counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core import task_costs


@pytest.mark.parametrize("name", ["00003.manifest.json", "manifest.json"])
def test_a_start_without_work_leaves_the_cost_of_the_work(tmp_path: Path, name: str) -> None:
    manifest = tmp_path / "results/main/language/score" / name
    path = task_costs.benchmark_path(manifest)
    assert path.relative_to(tmp_path / "results/main").as_posix() in (
        "benchmarks/language/score/00003.tsv",
        "benchmarks/language/score.tsv",
    )

    def counted() -> list[str]:
        return [file.read_text() for file in task_costs.work_benchmarks(sorted(path.parent.glob("*.tsv")))]

    task_costs.keep_work_benchmark(manifest, worked=False)  # a program that somebody runs without Snakemake
    path.parent.mkdir(parents=True)
    for worked, written, expected in ((True, "a", "a"), (False, "b", "a"), (False, "c", "a"), (True, "d", "d")):
        task_costs.keep_work_benchmark(manifest, worked)
        path.write_text(written)  # Snakemake, after the program
        assert counted() == [expected]
