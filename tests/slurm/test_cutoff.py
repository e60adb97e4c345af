"""An edit that changes nothing below it is seen before anything is submitted: nobody queues for a GPU to learn that nothing changes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT, Drive, jobs_of, own_profile
from tests.workflow.conftest import TINY, snapshot


class Finished(Drive):
    """The real Snakefile in a copy of a finished run, without its checkpoints, and with an edited threshold that moves no document."""

    snakefile = ROOT / "Snakefile"

    def __init__(self, folder: Path, complete: Path) -> None:
        shutil.copytree(complete, folder, symlinks=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        super().__init__(folder, {})
        config = yaml.safe_load(TINY.read_text(encoding="utf-8"))
        config["pretrain"]["train"]["device"] = "cpu"
        config["language"]["select"]["threshold"] = 0.39
        (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.profile = own_profile(folder.with_name("site"), gpus=2)


@pytest.fixture
def finished(cluster: Cluster, complete: Path, tmp_path: Path) -> Iterator[Finished]:
    made = Finished(tmp_path / "finished", complete)
    yield made
    made.stop()


def test_nothing_is_submitted_below_an_edit_that_changes_nothing(finished: Finished) -> None:
    before = {name: body for name, body in snapshot(finished.folder).items() if name.endswith(".safetensors")}
    finished.start("--until", "evaluate_compare").finish()
    mine = jobs_of(finished.folder)
    submitted = re.findall(r"Job (\d+) has been submitted with SLURM jobid", finished.output)
    assert len(mine) == len(submitted) == 1, finished.output  # language.select itself, which was edited
    assert [path.name for path in finished.folder.glob("logs/slurm/rule_*")] == ["rule_language_select"]
    done = set(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", finished.output))
    assert {"corpus_write", "pretrain_train", "finetune_train", "evaluate_model", "evaluate_compare"} <= done
    assert {name: body for name, body in snapshot(finished.folder).items() if name in before} == before and before
