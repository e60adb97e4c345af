"""The page of a real run from which steps are missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from crawl2llm.chain import steps
from crawl2llm.chain.fingerprint import tracked_settings
from crawl2llm.chain.step import stage_of
from crawl2llm.stages.report import page, render, state
from tests.unit.stages.report.test_render import Page
from tests.workflow.conftest import ROOT, TINY, command, environment


def test_each_step_may_be_missing(complete: Path) -> None:
    """The page copes with the absence of any step, of which it is rendered without the last of each stage (each with CRAWL2LLM_LONG).

    Its figures have tests of their own and are drawn once.
    """
    config = render.complete_config([str(TINY)], "main")
    assert config is not None
    results = complete / "results/main"
    settings = render.Task.model_validate(tracked_settings("report.render", config))
    whole = state.read_state(results, config, config)
    assert whole.is_complete, (whole.missing, whole.other, whole.run.damaged)
    drawn = render.figures_of(
        whole.run, render.template_values(whole.run, results / "x/y", settings, config, ""), config
    )
    used = [step for step in steps.STEPS if step != steps.REPORT_STEP and steps.is_used(step, config)]
    last = {stage_of(step): step for step in used}
    for step in used:
        found = state.read_state(results, config, config)
        del found.run.manifests[step]
        shown = render.template_values(found.run, results / "report/now/report.html", settings, config, "")
        for part in shown["trainings"]:
            part["figures"] = page.as_markup(drawn[part["model"].anchor])
        shown["state"] = None
        if os.environ.get("CRAWL2LLM_LONG") or step in last.values():
            Page(page.render(shown, drawn))
        assert found.run.damaged == {}, step


def test_report_of_a_part_by_the_command_and_by_the_rule(copy_of: Callable[[], Path]) -> None:
    """The data half alone: `snakemake report_now` runs no step, and the final page is not touched."""
    folder = copy_of()
    for stage in ("pretrain", "finetune", "evaluate", "report"):
        shutil.rmtree(folder / "results/main" / stage)
    done = subprocess.run(
        command(folder, "report_now"), capture_output=True, text=True, env=environment(), cwd=ROOT, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    counts = json.loads((folder / "results/main/report/now/counts.json").read_text(encoding="utf-8"))
    missing = {row["step"]: row for row in counts["missing"]}
    made = {
        "pretrain.plan",
        "pretrain.train",
        "finetune.pairs",
        "finetune.train",
        "evaluate.items",
        "evaluate.model",
        "evaluate.compare",
        "report.whatif",
        "report.inspect",
    }
    assert set(missing) == made
    assert missing["evaluate.model"]["words"] == "begun, not finished"
    assert missing["evaluate.model"]["log"].startswith("logs/main/evaluate/model/")
    # Its checkpoints are still there, of this very config.
    assert missing["pretrain.train"]["words"].startswith("in training, or interrupted in it; step 40, loss ")
    assert not counts["other"] and not counts["damaged"]
    text = (folder / "results/main/report/now/report.html").read_text(encoding="utf-8")
    Page(text)
    assert 'id="model-base-loss-title"' in text
    assert [path.name for path in (folder / "results/main/report").iterdir()] == ["now"]
