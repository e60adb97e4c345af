"""pretrain.mix through its rule: a variant with a mix trains from the tokens that are there, on the shares that it says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import TINY, command, environment


@pytest.mark.long
def test_a_variant_trains_on_its_mix(copy_of: Callable[[], Path]) -> None:
    """By quality, in two phases: the rule hands the scores on. Nothing of `main` is made again."""
    folder = copy_of()
    main = {path: path.read_bytes() for path in folder.glob("results/main/**/*manifest.json")}
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    phases = [{"until": 0.5, "temperature": 1}, {"shares": {"q3": 0.8}}]
    tree["variants"] = {"mixed": {"pretrain": {"mix": {"by": "quality", "phases": phases}}}}
    file = folder / "mixed.yaml"
    file.write_text(yaml.safe_dump(tree))
    result = "results/mixed/pretrain/train/manifest.json"
    done = subprocess.run(
        command(folder, result, config=file),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert sorted(path.name for path in folder.glob("results/mixed/*/*") if path.parent.name != "benchmarks") == [
        "mix",
        "train",
    ]
    assert all(path.read_bytes() == held for path, held in main.items())
    drawn = json.loads((folder / "results/mixed/pretrain/mix/manifest.json").read_text())["summary"]
    read = json.loads((folder / result).read_text())["summary"]["by_group"]
    assert {name: part["tokens"] for name, part in read.items()} == {
        name: part["trained"] for name, part in drawn["groups"].items()
    }
    assert sum(part["tokens"] for part in read.values()) == 40 * 1024 and set(read) >= {"q1", "q2", "q3"}
    assert drawn["phases"][1]["groups"]["q3"]["share"] == pytest.approx(0.8)
