"""The picture of a plan, from a real dry run of the tiny config with variants."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

import pytest
import yaml
from defusedxml import ElementTree

from crawl2llm.chain.config import validate
from crawl2llm.chain.steps import used_steps
from tests.workflow.conftest import ROOT, TINY, environment


def plan(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`crawl2llm plan` in the folder of a run."""
    return subprocess.run(
        [sys.executable, "-m", "crawl2llm", "plan", "--cores", "2", *options],
        capture_output=True, text=True, cwd=folder, env={**environment(), "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip


def boxes(page: Path) -> dict[str, dict[str, Any]]:
    """`variant/step` → what the page says of it."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    return {f"{box['variant']}/{box['step']}": box for box in json.loads(found[1])["boxes"].values()}


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """The tiny config with an edited key and a variant that trains otherwise."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["quality"]["select"]["keep_fraction"] = 0.8
    tree["variants"] = {"hotter": {"pretrain": {"train": {"learning_rate": 0.001}}}}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return config


def test_a_page_and_a_file_of_the_plan_that_is_printed(complete: Path, edited: Path, tmp_path: Path) -> None:
    page, file = tmp_path / "plan.html", tmp_path / "plan.svg"
    options = ["--configfile", str(edited), "--html", str(page), "--svg", str(file)]
    done = plan(complete, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"picture: {page}\npicture: {file}\n")
    total = re.search(r"^total +(\d+) +(\S+)$", done.stdout, re.MULTILINE)
    assert total and f"<dd>{escape(total[2])}</dd>" in page.read_text(encoding="utf-8")
    assert f"{total[1]} tasks to run, about {escape(total[2])}" in file.read_text(encoding="utf-8")
    ElementTree.parse(file)
    found = boxes(page)
    assert found["main/quality.score"]["state"] == "fresh"
    assert found["main/quality.select"]["reasons"] == [["keep_fraction 0.9 → 0.8", 1]]
    assert found["main/corpus.write"]["state"] == "runs" and found["main/corpus.write"]["amount"] == "1 task"
    assert found["hotter/pretrain.train"]["state"] == "missing"
    assert found["hotter/pretrain.train"]["differs"] == ["learning_rate auto → 0.001"]
    assert [key for key in found if key.startswith("hotter/")] == [
        "hotter/pretrain.plan", "hotter/pretrain.train",
        "hotter/finetune.train", "hotter/evaluate.model", "hotter/evaluate.common", "hotter/evaluate.compare", "hotter/report.render",
    ]  # fmt: skip
    known = [
        box["cost"]
        for name, box in found.items()
        if box["state"] != "fresh" and not name.endswith(("common", "report.compare"))
    ]
    assert all(known), "measured, or taken from main"


def test_a_plan_with_nothing_to_do(complete: Path, tmp_path: Path) -> None:
    done = plan(complete, "--configfile", str(TINY), "--html", str(tmp_path / "plan.html"))
    assert done.returncode == 0 and "nothing to do: every result is up to date\n" in done.stdout
    found = boxes(tmp_path / "plan.html")
    assert len(found) == len(used_steps(validate(yaml.safe_load(TINY.read_text("utf-8"))))) and {
        box["state"] for box in found.values()
    } == {"fresh"}


def test_a_part_of_a_plan(complete: Path, edited: Path, tmp_path: Path) -> None:
    """What --until leaves out is neither up to date nor to run."""
    done = plan(complete, "--configfile", str(edited), "--html", str(tmp_path / "p.html"), "--until", "corpus_split")
    assert done.returncode == 0, done.stdout + done.stderr
    found = boxes(tmp_path / "p.html")
    assert found["main/corpus.split"]["state"] == "runs" and found["main/quality.score"]["state"] == "fresh"
    assert found["main/corpus.write"]["state"] == "left" and found["hotter/pretrain.train"]["state"] == "left"
    assert found["main/corpus.write"]["reasons"][0][0].startswith("other settings or code above")


def test_of_a_folder_without_a_run_everything_is_missing(tmp_path: Path) -> None:
    done = plan(tmp_path, "--configfile", str(TINY), "--html")
    assert done.returncode == 0 and f"picture: {tmp_path / 'plan.html'}" in done.stdout
    assert {box["state"] for box in boxes(tmp_path / "plan.html").values()} == {"missing"}


def test_a_plan_that_failed_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{langauge: {}}")
    done = plan(tmp_path, "--configfile", "config.yaml", "--html", "plan.html", "--svg", "plan.svg")
    assert done.returncode == 1 and "langauge is not a known key" in done.stdout
    assert not list(tmp_path.glob("*plan*"))


def test_a_file_that_cannot_be_written_is_refused_before_the_plan(tmp_path: Path) -> None:
    done = plan(tmp_path, "--configfile", str(TINY), "--html", "none/plan.html")
    assert done.returncode == 2 and "none is no folder" in done.stderr and not done.stdout
    done = plan(tmp_path, "--configfile", str(TINY), "--svg", str(tmp_path))
    assert done.returncode == 2 and "is a folder" in done.stderr


def test_make_dag_writes_the_page() -> None:
    done = subprocess.run(["make", "--dry-run", "dag"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "crawl2llm plan --html=plan.html --svg=plan.svg" in done.stdout and "docs/" not in done.stdout
