"""topics through their rules: a variant looks for topics and mixes by them, on the texts and tokens that are there."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from crawl2llm.formats.documents import rows
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import topics
from tests.workflow.conftest import TINY, command, environment


@pytest.mark.slow
def test_a_variant_mixes_by_topic(copy_of: Callable[[], Path]) -> None:
    folder = copy_of()
    main = {path: path.read_bytes() for path in folder.glob("results/main/**/*manifest.json")}
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    more = {
        "topics": {"train": {"clusters": 3, "least": 40, "map": 50}},
        "pretrain": {"mix": {"by": "topic", "phases": [{"temperature": 2}], "max_epochs": 1000}},
    }
    tree["variants"] = {"mixed": more}
    file = folder / "mixed.yaml"
    file.write_text(yaml.safe_dump(tree))
    targets = [f"results/mixed/{name}.manifest.json" for name in ("topics/count/00000",)]
    done = subprocess.run(
        command(folder, "results/mixed/pretrain/mix/manifest.json", *targets, config=file),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    made = {str(path.relative_to(folder / "results/mixed")) for path in folder.glob("results/mixed/*/*")}
    assert {name for name in made if "benchmarks" not in name} == {
        "topics/train", "topics/score", "topics/count", "pretrain/mix",
    }  # fmt: skip
    assert all(path.read_bytes() == held for path, held in main.items())
    known = json.loads((folder / "results/mixed/topics/train/manifest.json").read_text())["summary"]["topics"]
    drawn = json.loads((folder / "results/mixed/pretrain/mix/manifest.json").read_text())["summary"]
    assert drawn["by"] == "topic" and set(drawn["groups"]) & set(known)
    of = {row["id"]: row["topic"] for path in folder.glob("results/mixed/topics/score/*.parquet") for row in rows(path)}
    tokens = Counter[str]()
    for path in folder.glob("results/main/tokenize/encode/**/*.parquet"):
        for row in rows(path):
            if "train" in str(path.relative_to(folder)) and "tokens" in row:
                tokens[of[row["id"]] or "unknown"] += row["tokens"]
    assert {name: group["tokens"] for name, group in drawn["groups"].items()} == dict(tokens)

    # What the report adds up are the documents that each filter's own manifests count.
    paths = [
        *(path for path in main if "report" not in path.parts),
        *folder.glob("results/mixed/topics/*/*manifest.json"),
    ]
    run = Run.read(path for path in paths if not path.name.startswith("."))
    _, found = topics.topic_counts(run)
    assert list(found) == ["ingest.check", *(f"{name}.select" for name in run.filters)]
    for step, held in found.items():
        counted = run.counts(step) or {}
        assert held[:, :, 0].sum() == counted["in"] and held[:, :, 2].sum() == counted["in"] - counted["kept"]
    shown = topics.table(run)
    assert shown is not None and {row["name"] for row in shown["rows"]} >= set(known)
    for place in range(len(shown["steps"]) + 1):
        shares = [float(row["shares"][place][0].rstrip("% \u00a0")) for row in shown["rows"]]
        assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 1e-9)
    assert set(topics.topic_maps(run)) and all("<desc" in str(figure) for figure in topics.topic_maps(run).values())
