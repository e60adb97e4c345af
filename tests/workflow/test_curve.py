"""evaluate.curve on a complete run: a checkpoint gives what its export gives, and one that is gone is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from crawl2llm.stages.evaluate import curve
from tests.workflow.conftest import TINY

RUN = "results/main"


def config(folder: Path, every: int, kept: int = 10) -> str:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["evaluate"]["curve"] = {"every": every, "threads": 1}
    tree["pretrain"]["train"]["keep_every"] = kept
    (folder / "curve.yaml").write_text(yaml.safe_dump(tree))
    return "curve.yaml"


def draw_curve(folder: Path, every: int, out: str = "out") -> int:
    words = ["--model", f"{RUN}/pretrain/train/manifest.json", "--tasks", f"{RUN}/evaluate/items/manifest.json"]
    return curve.main(["--config", config(folder, every), *words, "--manifest", f"{out}/manifest.json"])


def test_points(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of()
    monkeypatch.chdir(folder)
    assert draw_curve(folder, 30) == 0
    found = json.loads(Path("out/curve.json").read_text())["points"]
    assert [(point["step"], point["tokens"]) for point in found] == [(30, 30 * 1024), (40, 40 * 1024)]
    last = json.loads(Path(f"{RUN}/evaluate/model/base.evaluation.json").read_text())["items"]
    assert {task: of["accuracy"] for task, of in found[-1]["tasks"].items()} == {
        task: of["accuracy"] for task, of in last.items()
    }
    assert found[0]["tasks"] != found[1]["tasks"]
    lines = [json.loads(line) for line in Path("out/curve.items.jsonl").read_text().splitlines()]
    assert {line["step"] for line in lines} == {30, 40}
    stopped = Path(f"{RUN}/pretrain/train/manifest.json")
    manifest = json.loads(stopped.read_text())
    manifest["summary"]["early_stop"] = {"after_step": None, "best_step": 20}
    stopped.write_text(json.dumps(manifest))
    assert draw_curve(folder, 30, "stopped") == 0
    points = json.loads(Path("stopped/curve.json").read_text())["points"]
    assert [(point["step"], point["tokens"]) for point in points] == [(20, 20 * 1024), (30, 30 * 1024)]
    assert [point["tasks"] for point in points] == [found[1]["tasks"], found[0]["tasks"]], (
        "the model is that of step 20"
    )
    del manifest["summary"]["early_stop"]
    stopped.write_text(json.dumps(manifest))
    assert draw_curve(folder, 10) == 1
    assert "has no checkpoint of step 10, 20 (it has those of: 30, 40)" in capfd.readouterr().err
