"""A run works to its end with the code and the config that it was started with, whatever is edited meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflow.conftest import TINY, command, differences, environment, snapshot
from tests.workflow.plan import planned
from tests.workflow.test_matrix import ORDER, checkout, config_with, downstream

UNTIL = "tokenize_encode"
DATA = set(ORDER[: ORDER.index("tokenize.encode") + 1]) - {
    "dedup.export",
    "report.inspect",
}  # what the run is asked for
EDITS = {
    "scripts/crawl2llm/filters/quality/select.py": ("BINS = 20", "BINS = 21"),
    "rules/filters/heuristics.smk": ("        PROGRAM", '        "exit 1; " + PROGRAM'),
    "scripts/crawl2llm/formats/documents.py": ("BATCH = 1024", "BATCH = 1025"),
    "profiles/local/config.yaml": ("cores: all", "cores: nonsense"),
    "scripts/crawl2llm/filters/language/settings.py": ("threshold: Share", "threshold_of_no_program: Number"),
}


def start(root: Path, folder: Path, config: Path, *options: str) -> subprocess.Popen[str]:
    line = command(folder, "--until", UNTIL, *options, config=config)
    line[line.index("--snakefile") + 1] = str(root / "Snakefile")
    line[line.index("--profile") + 1] = str(root / "profiles/local")
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), cwd=root
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 900
    while not path.exists():
        assert process.poll() is None, process.communicate()[0][-4000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with checkout(tmp_path / "a b é") as root:
        yield root


@pytest.mark.long  # tests/slurm/test_frozen.py has the same on a cluster
def test_edits_in_the_middle_of_a_run_with_seven_workers(root: Path, complete: Path, tmp_path: Path) -> None:
    """Its bytes are those of the complete run, which had two workers and other places."""
    folder, config = tmp_path / "run, too", root / "mine.yaml"
    before: dict[str, Any] = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    config.write_text(json.dumps(before))
    process = start(root, folder, config, "--cores", "7")
    try:
        wait_for(folder / "logs/main/ingest/extract/00000.log", process)
        held = {name: (root / name).read_text() for name in EDITS}
        for name, (old, new) in EDITS.items():
            assert old in held[name]
            (root / name).write_text(held[name].replace(old, new))
        after = config_with("language.select.threshold", 0.77)
        config.write_text(json.dumps(after))
        shown, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, shown[-4000:]
    mine = snapshot(folder)
    assert len(mine) > 30
    assert differences(mine, {path: body for path, body in snapshot(complete).items() if path in mine}) == []

    for name in (
        "rules/filters/heuristics.smk",
        "profiles/local/config.yaml",
        "scripts/crawl2llm/filters/language/settings.py",
    ):
        (root / name).write_text(held[name])
    edited = (root / "scripts/crawl2llm/filters/quality/select.py").read_text()
    for name in ("scripts/crawl2llm/filters/quality/select.py", "scripts/crawl2llm/formats/documents.py"):
        (root / name).write_text(held[name])
    assert planned(folder, before, root) & DATA == set(), "what was made is not what the run was started with"
    assert planned(folder, after, root) & DATA == downstream("language.select") & DATA
    (root / "scripts/crawl2llm/filters/quality/select.py").write_text(edited)
    assert planned(folder, before, root) & DATA == downstream("quality.select") & DATA


def test_a_program_refuses_other_code_and_other_files_than_were_planned(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of defence, where a job meets other code all the same: it refuses by name and writes nothing."""
    import sys

    mark = subprocess.run(
        [sys.executable, "-c", "from crawl2llm.chain.config import validate; from crawl2llm.chain.fingerprint import fingerprint; "
         "print(fingerprint('language.select', validate({})))"],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root / "scripts")}, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    path = root / "scripts/crawl2llm/formats/documents.py"
    path.write_text(path.read_text().replace("BATCH = 1024", "BATCH = 1025"))
    done = subprocess.run(
        [sys.executable, "-m", "crawl2llm.filters.language.select", "--config", mark, "--signals", "none",
         "--manifest", str(tmp_path / "out/manifest.json")],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root / "scripts")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert (
        "not what this run was planned with: scripts/crawl2llm/formats/documents.py; start the run again" in done.stderr
    )
    assert not (tmp_path / "out").exists()


TEXT = """The river ran past the mill and the old bridge, and the people of the village came to it with baskets and nets.
In the evening of day {n} they sat by the water and talked about the {n} fish that they had caught, and about the harvest.
"""


@pytest.mark.parametrize(
    "filters",
    [["language"], ["language", "dedup"]],
    ids=["by-itself", "with-dedup"],
)
@pytest.mark.long
def test_a_task_of_several_shards_redoes_what_changed_and_only_that(
    root: Path, tmp_path: Path, filters: list[str]
) -> None:
    """Beyond TASKS shards a task owns several: a replaced file, a forced step and an interruption reach each of them."""
    steps = root / "scripts/crawl2llm/chain/steps.py"
    steps.write_text(steps.read_text().replace("TASKS = 256", "TASKS = 2").replace("AT_ONCE = 8", "AT_ONCE = 2"))
    pages = tmp_path / "pages"
    pages.mkdir()
    for number in range(12):
        name = f"{number}.txt" if number != 5 else "5 it's {1} Error.txt"
        (pages / name).write_text("".join(TEXT.format(n=100 * number + line) for line in range(5)))
    tree = {
        "ingest": {
            "extract": {"shards": 5, "sources": [{"name": "text", "kind": "text", "paths": [f"{pages}/*.txt"]}]}
        },
        "language": {"select": {"languages": [], "threshold": 0}},
        "heuristics": {"select": {"families": []}},
        "dedup": {"signature": {"permutations": 16, "bands": 2, "rows": 8}},
        "filters": filters,
    }
    config = root / "mine.yaml"
    config.write_text(json.dumps(tree))

    def run(folder: Path, *options: str) -> None:
        process = start(root, folder, config, *(options or ("--until", "corpus_write")))
        shown, _ = process.communicate(timeout=600)
        assert process.returncode == 0, shown[-4000:]

    def bodies(folder: Path) -> dict[str, bytes]:
        found = (path for path in (folder / "results/main").glob("*/*/*") if path.is_file())
        return {str(p.relative_to(folder)): p.read_bytes() for p in found if "benchmarks" not in p.parts}

    def times(step: str) -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in (tmp_path / "run/results/main" / step).glob("*.parquet")}

    run(tmp_path / "run")
    shards = times("language/score")
    assert len(shards) == 5

    # A replaced file, and a run that is cut off in between: the shards of the new file are made again, others stay.
    (pages / "3.txt").write_text("".join(TEXT.format(n=9000 + line) for line in range(7)))
    run(tmp_path / "run", "--until", "language_select")
    again = times("language/score")
    assert len({name for name in shards if shards[name] != again[name]}) == 1
    run(tmp_path / "run")
    run(tmp_path / "fresh")
    one, other = bodies(tmp_path / "run"), bodies(tmp_path / "fresh")
    assert len(one) > 30 and sorted(p for p in one.keys() | other.keys() if one.get(p) != other.get(p)) == []

    # Forced by a person: every shard of the step.
    before = times("language/score")
    run(tmp_path / "run", "--forcerun", "language_score", "--until", "language_select")
    assert all(before[name] != stamp for name, stamp in times("language/score").items())
    assert bodies(tmp_path / "run") == one

    # Fewer shards: nothing of the others stays behind.
    tree["ingest"]["extract"]["shards"] = 3
    config.write_text(json.dumps(tree))
    run(tmp_path / "run")
    left = [path for path in (tmp_path / "run/results").rglob("0000[34].*") if path.is_file()]
    assert left == []
