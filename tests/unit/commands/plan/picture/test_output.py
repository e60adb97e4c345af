"""The totals above a picture are those that the plan prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.commands.plan.complete import Plan
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Estimate, Work
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.commands.plan.picture.output import picture_texts, plan_totals


def plan(folder: Path, tasks: list[Task], **costs: Estimate) -> Plan:
    return Plan(tasks, None, Work(LastRun(folder), tasks), 2, costs)


def test_totals(tmp_path: Path) -> None:
    task = Task("pretrain_train", {"resources": "card=8", "output": "results/main/pretrain/train/manifest.json"})
    found = plan_totals(plan(tmp_path, [task], pretrain_train=Estimate(7200, 16, 0, 1)))
    assert (found.title, found.folder) == (f"Plan of {tmp_path.name}", str(tmp_path))
    assert (found.tasks, found.about, found.gpu_hours) == (1, "2h00m", "16.00")
    assert found.estimate.startswith("estimate: 2h00m and 16.00 GPU-hours")


def test_nothing_to_do(tmp_path: Path) -> None:
    found = plan_totals(plan(tmp_path, []))
    assert (found.tasks, found.about, found.gpu_hours) == (0, "", "") and found.summary_line.startswith("nothing to do")


def test_a_plan_without_its_project_has_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no picture"):
        picture_texts(plan(tmp_path, []), ["html"])
