"""The plan's line for each variant: what it shares, with whom, what it runs, and about how long that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan import variants
from crawl2llm.commands.plan.complete import Plan
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work, estimates_by_rule
from crawl2llm.commands.plan.last_run import LastRun

FRACTION, SEED = {"quality": {"select": {"keep_fraction": 0.4}}}, {"pretrain": {"train": {"seed": 1}}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Main; a copy of it; another share of documents, twice: once with another seed; and 20 other seeds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    made: dict[str, Any] = {"same": {}, "half": FRACTION, "half-seed-1": {**FRACTION, **SEED}}
    made |= {f"seed-{seed}": {"pretrain": {"train": {"seed": seed}}} for seed in range(1, 21)}
    source = {"name": "books", "kind": "text", "paths": ["a.txt"]}
    return Project(validate({"ingest": {"extract": {"shards": 1, "sources": [source]}}, "variants": made}))


def planned(project: Project, folder: Path) -> Plan:
    """As if nothing were there: each variant makes what it does not share."""
    tasks: list[Task] = []
    for name, config in project.variants.items():
        for step in steps.used_steps(config):
            for task in steps.task_ids(step, config):
                path = project.manifest_path(name, step, task)
                if path.split("/")[1] == name:
                    tasks.append(Task(steps.rule_of(step), {"output": path}))
    work = Work(LastRun(folder), tasks, project.variants, project.sources)
    return Plan(tasks, project, work, 2, estimates_by_rule(tasks, work, 2))


def test_each_variant_has_a_line_with_what_it_shares_and_what_it_runs(project: Project, tmp_path: Path) -> None:
    lines = list(variants.variant_lines(planned(project, tmp_path), 200))
    by_name = {line.split()[0]: line for line in lines}
    assert list(by_name) == ["variant", *project.variants] and len(lines) == len(project.variants) + 1
    assert by_name["same"].split(maxsplit=2)[1:] == ["0", "all with main; nothing"]
    used = steps.used_steps(project.variants["half"])
    shared = used.index("quality.select")  # all steps before it
    assert f" {shared} of {len(used)} steps with main; quality.select, corpus.split" in by_name["half"]
    assert " with main, " in by_name["half-seed-1"]
    assert " with half; pretrain.plan, pretrain.train, finetune.train and" in by_name["half-seed-1"]
    assert by_name["seed-2"].endswith("as above") and " with main; pretrain.plan" in by_name["seed-1"]


def test_what_a_line_counts_is_what_runs_and_what_does_not(project: Project, tmp_path: Path) -> None:
    """Steps shared and steps run are all steps of the variant, and no step is both where it makes one result."""
    plan = planned(project, tmp_path)
    for name, config in project.variants.items():
        found = variants.owners_by_step(project, name)
        mine = {task.step for task in plan.tasks if task.variant == name}
        assert mine == {step for step, names in found.items() if name in names}
        assert list(found) == steps.used_steps(config)


def test_a_plan_of_main_alone_has_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some text")
    source = {"name": "books", "kind": "text", "paths": ["a.txt"]}
    alone = Project(validate({"ingest": {"extract": {"shards": 1, "sources": [source]}}}))
    assert not list(variants.variant_lines(planned(alone, tmp_path), 120))


@given(st.lists(st.sampled_from([*steps.STEPS]), unique=True, max_size=12))
def test_few_names_the_first_and_how_many_more(names: list[str]) -> None:
    said = variants.steps_text(names)
    more = int(said.rsplit(" and ", 1)[1].split()[0]) if said.endswith(" more") else 0
    assert sum(name in said.replace(",", " ").split() for name in names) + more == len(names)
