"""`crawl2llm accept` on a real run: what it shows, what it refuses, and that nothing is left to do after it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from crawl2llm.core import record
from tests.workflow.conftest import TINY, environment, snapshot
from tests.workflow.plan import planned
from tests.workflow.test_matrix import checkout

EDITED = "scripts/crawl2llm/filters/language/select.py"


def accept(root: Path, folder: Path, *options: str, say: str = "") -> tuple[int, str]:
    """(exit status, what it printed) of the command of the code at `root`, in the folder of a run."""
    done = subprocess.run(
        [sys.executable, "-m", "crawl2llm", "accept", *options],
        capture_output=True, text=True, cwd=folder, env={**environment(), "PYTHONPATH": str(root / "scripts")}, input=say, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_person_knows_better(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder, tree = copy_of(), yaml.safe_load(TINY.read_text(encoding="utf-8"))
    before = snapshot(folder)
    with checkout(tmp_path) as root:
        (root / EDITED).write_text((root / EDITED).read_text() + "\nEDITED = 1\n")
        assert "language.select" in planned(folder, tree, root) and "pretrain.train" in planned(folder, tree, root)

        status, text = accept(root, folder, "--configfile", str(TINY))
        assert status == 0 and f"language.select           2  code of {EDITED}" in text
        assert "pretrain.train            1  other settings or code above: tokenize.encode, tokenize.train" in text
        assert "--reason" in text and snapshot(folder) == before
        options = ("--configfile", str(TINY), "--reason", "only a name")
        assert accept(root, folder, *options, say="n\n")[0] == 1 and snapshot(folder) == before
        status, text = accept(root, folder, *options)
        assert status == 1 and "--yes does it without a question" in text and snapshot(folder) == before

        status, text = accept(root, folder, *options, say="y\n")
        assert status == 0, text
        assert planned(folder, tree, root) == {"report.render"}
        data = {
            name: body for name, body in snapshot(folder).items() if "manifest" not in name and "run.json" not in name
        }
        assert data == {name: before[name] for name in data}
        (entry,) = record.read(folder / "results/main/language/select/00000.manifest.json")["accepted"]
        assert entry["changes"] == [f"code of {EDITED}"] and entry["reason"] == "only a name"
        made = json.loads((folder / "results/main/language/select/00000.manifest.json").read_text())
        assert made["fingerprint"] == entry["to"] != entry["from"]
        held = record.read(folder / "results/main/pretrain/train/manifest.json")
        assert held["accepted"] and held["versions"]["torch"] and held["device"] == "cpu"

        assert accept(root, folder, *options) == (0, text_of_nothing(root, folder, options))


def text_of_nothing(root: Path, folder: Path, options: tuple[str, ...]) -> str:
    status, text = accept(root, folder, *options)
    assert status == 0 and "nothing to accept" in text
    return text


@pytest.mark.parametrize("fault", ["missing", "damaged", "other input", "no record"])
def test_what_is_never_accepted(copy_of: Callable[[], Path], tmp_path: Path, fault: str) -> None:
    folder = copy_of()
    step = folder / "results/main/language/select"
    table = step / "00000.parquet"
    if fault == "missing":
        table.unlink()
    elif fault == "damaged":
        table.write_bytes(bytes([table.read_bytes()[0] ^ 1]) + table.read_bytes()[1:])  # of the same size
    elif fault == "other input":
        path = folder / "results/main/language/score/00000.manifest.json"
        made = json.loads(path.read_text())
        next(iter(made["files"].values()))["xxh3"] = "0" * 32
        path.write_text(json.dumps(made))
    else:
        record.path_of(step / "00000.manifest.json").unlink()
    with checkout(tmp_path) as root:
        (root / EDITED).write_text((root / EDITED).read_text() + "\nEDITED = 1\n")
        options = ("--configfile", str(TINY), "--reason", "r", "--yes", "language.select")
        status, text = accept(root, folder, *options)
        words = {
            "missing": "is missing",
            "damaged": "does not have the checksum",
            "other input": "language.score 00000 holds other data",
            "no record": "run.json is gone",
        }[fault]
        assert (
            status == 1 and "not accepted: results/main/language/select/00000.manifest.json" in text and words in text
        )
        assert "language.select" in planned(folder, yaml.safe_load(TINY.read_text(encoding="utf-8")), root)
    shutil.rmtree(folder)


def test_what_is_below_a_step_that_is_accepted_is_taken_along(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder, tree = copy_of(), yaml.safe_load(TINY.read_text(encoding="utf-8"))
    before = snapshot(folder)
    (folder / "results/main/tokenize/train/tokenizer.json").write_bytes(b"damaged")
    with checkout(tmp_path) as root:
        (root / EDITED).write_text((root / EDITED).read_text() + "\nEDITED = 1\n")
        options = ("--configfile", str(TINY), "--reason", "only a name", "--yes", "language.select")
        status, text = accept(root, folder, *options)
        assert status == 0 and "taken along" in text and "corpus.write" in text, text
        planned_now = planned(folder, tree, root)
        assert "tokenize.train" in planned_now and not planned_now & {
            "corpus.write",
            "heuristics.score",
            "language.select",
        }
        below = record.read(folder / "results/main/corpus/write/00000.manifest.json")
        assert "accepted" not in below and below["renewed"]
        held = json.loads((folder / "results/main/tokenize/train/manifest.json").read_text())
        assert held["fingerprint"] == json.loads(before["results/main/tokenize/train/manifest.json"])["fingerprint"]
    shutil.rmtree(folder)
