"""Jobs of a run work with the code and the config that it was started with, also those that start after an edit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import Drive, own_profile, until
from tests.workflow.plan import planned
from tests.workflow.test_matrix import checkout, config_with

STEPS = {"language.select", "heuristics.score", "heuristics.select"}


def test_edits_while_jobs_wait(cluster: Cluster, complete: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(complete, folder, symlinks=True)
    with checkout(tmp_path) as root:
        run = Drive(folder, {})
        run.snakefile, run.profile = root / "Snakefile", own_profile(tmp_path / "site")
        before: dict[str, Any] = config_with("language.select.threshold", 0.45)
        (folder / "config.yaml").write_text(yaml.safe_dump(before), encoding="utf-8")
        try:
            run.start("--until", "heuristics_select")
            until("a job in the queue", run.queue)
            after = config_with("language.select.threshold", 0.77)
            after["heuristics"]["select"]["families"] = ["c4"]
            (folder / "config.yaml").write_text(yaml.safe_dump(after), encoding="utf-8")
            rule, program = (
                root / "rules/filters/heuristics.smk",
                root / "scripts/crawl2llm/filters/heuristics/select.py",
            )
            held = {path: path.read_text(encoding="utf-8") for path in (rule, program)}
            rule.write_text(held[rule].replace("        PROGRAM", '        "exit 1; " + PROGRAM'), encoding="utf-8")
            program.write_text(held[program] + "\nEDITED = True\n", encoding="utf-8")
            run.finish()
        finally:
            run.stop()
        for path, text in held.items():
            path.write_text(text, encoding="utf-8")
        assert planned(folder, before, root) & STEPS == set(), "what was made is not what the run was started with"
        assert planned(folder, after, root) & STEPS == STEPS
