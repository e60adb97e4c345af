"""The graph of a plan, from lines as Snakemake prints them and the manifests in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.dry_run import completed
from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan import dryrun
from crawl2llm.commands.plan.command import add_own_reasons
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.commands.plan.picture import plan_graph
from crawl2llm.commands.plan.picture.graph import LEFT_OUT, MISSING, RUNS, UP_TO_DATE, Graph
from crawl2llm.core import record

PLAN = """
rule language_select:
    input: results/main/language/score/00000.manifest.json, results/main/language/score/00001.manifest.json
    output: results/main/language/select/manifest.json
    reason: Params have changed since last execution: not up to date: threshold 0.4 → 0.65

rule heuristics_score:
    input: results/main/language/select/manifest.json
    output: results/main/heuristics/score/00000.manifest.json
    reason: Input files updated by another job: results/main/language/select/manifest.json

rule pretrain_train:
    output: results/hot/pretrain/train/manifest.json
    reason: Missing output files: results/hot/pretrain/train/manifest.json

This was a dry-run (flag -n). The order of jobs does not reflect the order of execution.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two books, and the manifests of all that main has; language.select was made with another threshold."""
    made = tmp_path_factory.mktemp("run")
    for number in range(2):
        (made / f"{number}.txt").write_text(f"book {number}")
    books = {"name": "books", "kind": "text", "paths": [f"{made}/*.txt"]}
    variants: dict[str, Any] = {
        "hot": {"pretrain": {"train": {"learning_rate": 0.5}}},
        "long": {"finetune": {"train": {"epochs": 7}}},
        "same": {},
    }
    settings = {"ingest": {"extract": {"shards": 2, "sources": [books]}}, "variants": variants}
    (made / "config.yaml").write_text(yaml.safe_dump(settings))
    completed(made, made / "config.yaml")
    path = made / "results/main/language/select/manifest.json"
    now = json.loads(project_of(made).fingerprint("main", "language.select"))
    now["config"]["threshold"] = 0.4
    now["code"]["scripts/crawl2llm/filters/language/select.py"] = "another"
    record.write(path, json.dumps(now), {})
    return made


def project_of(folder: Path) -> Project:
    return Project(configuration.validate(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))))


def graph_of(folder: Path, text: str = PLAN) -> Graph:
    tasks, errors = dryrun.parse_output(text.splitlines())
    assert not errors
    project = project_of(folder)
    add_own_reasons(tasks, project, folder)
    return plan_graph.build_graph(tasks, project, Work(LastRun(folder), tasks, project.variants), 2)


@pytest.fixture(scope="module")
def graph(folder: Path) -> Graph:
    return graph_of(folder)


def test_what_a_variant_shares_is_drawn_once(graph: Graph) -> None:
    assert graph.variants == ("main", "hot", "long"), "`same` has nothing of its own"
    own = [key for key in graph.boxes if not key.startswith("main/")]
    assert own == [
        "hot/pretrain.plan", "hot/pretrain.train", "hot/finetune.train", "hot/evaluate.model", "hot/evaluate.common",
        "hot/evaluate.compare", "hot/report.render",
        "long/finetune.train", "long/evaluate.model", "long/evaluate.common", "long/evaluate.compare", "long/report.render",
    ]  # fmt: skip
    assert "main/crawl.render" not in graph.boxes, "no source is the demo's crawl"
    assert len(graph.boxes) == 31 + len(own)


def test_edges_lead_from_the_folder_that_is_read(graph: Graph) -> None:
    into = {key: {one for one, other in graph.edges if other == key} for key in graph.boxes}
    assert into["hot/pretrain.train"] == {"main/tokenize.encode", "main/tokenize.train"}
    assert into["hot/finetune.train"] == {"hot/pretrain.train", "main/finetune.pairs"}
    # `long` trains the same base model as main: the evaluation of that one is shared.
    assert into["long/report.render"] == {
        "main/pretrain.plan", "main/evaluate.items", "main/evaluate.model", "long/evaluate.model", "long/evaluate.compare",
        "main/report.inspect", "main/report.whatif",
    }  # fmt: skip
    # What all are compared on is main's.
    assert into["long/evaluate.common"] == {"long/finetune.train", "main/corpus.write", "main/evaluate.items"}
    assert graph.boxes["long/evaluate.model"].tasks == 1 and graph.boxes["hot/evaluate.model"].tasks == 3
    assert "main/pretrain.train" not in into["long/evaluate.model"]
    assert into["main/report.compare"] == {
        f"{name}/{step}" for name in ("main", "hot", "long") for step in ("report.render", "evaluate.common")
    }


def test_states(graph: Graph) -> None:
    found = {key: box.state for key, box in graph.boxes.items()}
    assert found["main/ingest.extract"] == found["main/language.score"] == UP_TO_DATE
    assert found["main/language.select"] == found["main/heuristics.score"] == RUNS
    assert found["hot/pretrain.train"] == MISSING
    assert found["hot/finetune.train"] == LEFT_OUT
    assert graph.boxes["hot/finetune.train"].reasons == (("not there, and nothing in this plan needs it", 0),)


def test_what_a_box_says(graph: Graph) -> None:
    box = graph.boxes["main/language.select"]
    assert (box.tasks, box.tasks_to_run, box.about) == (1, 1, "?")
    assert box.reasons == (("threshold 0.4 → 0.65", 1),)
    assert box.changes == ("threshold 0.4 → 0.65", "code of scripts/crawl2llm/filters/language/select.py")
    box = graph.boxes["main/heuristics.score"]
    assert (box.tasks, box.tasks_to_run) == (1, 1) and box.reasons == (
        ("runs, unless language.select comes out the same", 1),
    )
    box = graph.boxes["hot/pretrain.train"]
    assert box.reasons == (("not made yet", 1),) and box.differs == ("learning_rate auto → 0.5",)
    assert graph.boxes["main/ingest.extract"].reasons == ()


def test_the_same_edges_as_the_table_of_steps(graph: Graph) -> None:
    """Every edge of main, and nothing that is not reached from its report."""
    reduced = {edge for edge in graph.transitive_reduction().edges if edge[1].startswith("main/")}
    assert ("main/dedup.select", "main/quality.train") in reduced
    assert ("main/ingest.extract", "main/quality.train") in graph.edges
    assert ("main/ingest.extract", "main/quality.train") not in reduced


def test_filters_in_the_order_of_the_run(tmp_path: Path) -> None:
    """Those that no variant uses are not there; one that a variant alone uses comes after what it comes after there."""
    (tmp_path / "0.txt").write_text("book")
    books = {"name": "books", "kind": "text", "paths": [f"{tmp_path}/*.txt"]}
    settings = {
        "ingest": {"extract": {"shards": 1, "sources": [books]}},
        "filters": ["quality", "language", "dedup"],
        "variants": {"lined": {"filters": ["quality", "language", "lines", "dedup"]}, "listed": {"filters": ["url"]}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    graph = graph_of(tmp_path, "")
    stages = list(dict.fromkeys(step.partition(".")[0] for step in graph.steps))
    assert stages[:7] == ["ingest", "url", "quality", "language", "lines", "dedup", "corpus"]
    assert {box.step for box in graph.boxes.values()} == set(graph.steps)
    assert "lined/lines.select" in graph.boxes and "lined/language.select" not in graph.boxes
    assert graph.boxes["lined/lines.score"].differs == ("main does not use lines",)
    assert ("main/language.select", "lined/lines.score") in graph.edges
    assert {one for one, other in graph.edges if other == "listed/url.select"} == {"listed/url.score"}
    place = graph.steps.index
    assert all(place(graph.boxes[one].step) < place(graph.boxes[other].step) for one, other in graph.edges)


def test_nothing_to_do(folder: Path) -> None:
    """All of main is there; its variants were never asked for."""
    graph = graph_of(folder, "Nothing to be done (all requested files are present and up to date).")
    assert {box.state for box in graph.boxes.values() if box.variant == "main"} == {UP_TO_DATE}
    assert not any(box.tasks_to_run or box.about for box in graph.boxes.values())


def test_what_is_not_up_to_date_and_not_planned_says_so(folder: Path) -> None:
    """As with --until: the plan ends above it."""
    path = folder / "results/main/quality/select/manifest.json"
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(before.replace('"fingerprint": "', '"fingerprint": "0'), encoding="utf-8")
        box = graph_of(folder).boxes["main/quality.select"]
    finally:
        path.write_text(before, encoding="utf-8")
    assert box.state == LEFT_OUT and box.reasons[0][0]
