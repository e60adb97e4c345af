"""The evaluations that a config asks for, through the rules: public tasks, what models write, a judge, the learning curve."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import ROOT, TINY, run
from tests.workflow.plan import planned

MADE = {
    *(
        "evaluate.stage",
        "evaluate.public[base]",
        "evaluate.public[sft]",
        "evaluate.public[untrained]",
        "evaluate.curve",
    ),
    *("evaluate.generate[base]", "evaluate.generate[sft]", "evaluate.judge[base]", "evaluate.judge[sft]"),
    *("evaluate.compare", "report.render"),
}


@pytest.mark.long
def test_all_of_them(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder = copy_of()
    rows = [
        {
            "premise": f"The name {at} is there.",
            "choice1": "It is found.",
            "choice2": "It returns.",
            "question": "effect",
            "label": at % 2,
        }
        for at in range(12)
    ]
    (folder / "copa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        sys.executable,
        "-m",
        "crawl2llm.__main__",
        "serve",
        "--port",
        "0",
        "--results",
        str(folder / "results/main"),
    ]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert address
        tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
        tree["pretrain"]["train"]["keep_every"] = 10
        tree["decontaminate"] = {"index": {"tasks": []}}  # else the training would be another's
        tree["evaluate"] |= {
            "public": {"presets": ["copa"], "data": ["copa.jsonl"], "limit": 8, "threads": 1},
            "curve": {"every": 30, "threads": 1},
            "generate": {"questions": 4, "samples": 2, "max_new_tokens": 8, "threads": 1},
            "judge": {"model": "sft", "endpoint": f"{address[0]}/v1", "prompt": "Rate {answer}", "max_tokens": 4},
        }
        config = tmp_path / "asked.yaml"
        config.write_text(yaml.safe_dump(tree, sort_keys=False))
        assert planned(folder, tree) == MADE
        run(folder, config=config)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=900)
    assert planned(folder, tree) == set()
    compared = json.loads((folder / "results/main/evaluate/compare/compare.json").read_text())
    measured = {one["measure"] for one in compared["pairs"][0]["measures"]}
    assert measured >= {"heldout_text", "copa", "answers.rougeL", "answers.chrf"}
    page = (folder / "results/main/report/render/report.html").read_text()
    for heading in ("Public tasks", "What the models write", "Learning curve of the base model"):
        assert f"<h3>{heading}</h3>" in page
    tree["evaluate"]["public"]["limit"] = 9
    assert planned(folder, tree) == {step for step in MADE if "public" in step} | {
        "evaluate.stage",
        "evaluate.compare",
        "report.render",
    }
    tree["evaluate"]["judge"]["endpoint"] = "http://127.0.0.1:9/v1"
    tree["evaluate"]["public"]["limit"] = 8
    assert planned(folder, tree) == set(), "where the judge is asked decides no byte"
