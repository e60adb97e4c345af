"""pretrain.train whose program was edited: a run that is not finished continues and says so, a finished one trains again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.fingerprint import code_hashes
from crawl2llm.core.root import ROOT
from tests.unit.stages.pretrain.runs import finish, kill, rows, wait_for

pytestmark = pytest.mark.slow  # starts trainings
EDITED = "scripts/crawl2llm/training/measures.py"


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """A copy of the code in which a module was edited."""
    root = tmp_path / "edited"
    for name in ("scripts",):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (root / EDITED).open("a") as module:
        module.write("\nEDITED = 1\n")
    return root


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out/manifest.json").read_text())


def test_an_unfinished_run_goes_on_and_its_manifest_says_so(start: Any, tmp_path: Path, edited: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder, 1)
    wait_for(process, folder, "checkpoints/*/step-000010")
    kill(process)
    errors = finish(start(folder, 1, root=edited))
    (part,) = manifest(folder)["summary"]["other_code"]
    step = part["step"]
    assert f"continuing after step {step} under other code: {EDITED}" in errors and 10 <= step < 24
    assert part["modules"] == {EDITED: [found.get(EDITED) for found in codes(edited)]}
    assert (
        f"After step {step} it was trained with other code than before: {EDITED}."
        in manifest(folder)["summary"]["notes"]
    )
    assert [row["step"] for row in rows(folder / "out/losses.jsonl") if "loss" in row] == list(range(1, 25))
    assert len(list(folder.glob("checkpoints/[!.]*"))) == 1


def codes(edited: Path) -> list[dict[str, str]]:
    return [code_hashes("crawl2llm.stages.pretrain.train", root) for root in (ROOT, edited)]


def test_a_finished_run_trains_anew(start: Any, tmp_path: Path, edited: Path) -> None:
    folder = tmp_path / "run"
    finish(start(folder, 1))
    before = manifest(folder)
    (place,) = folder.glob("checkpoints/[!.]*")
    errors = finish(start(folder, 1, root=edited))
    assert f"this training was finished under other code ({EDITED}), so it starts again from its first step" in errors
    assert "resuming" not in errors and "step 24/24" in errors
    assert "other_code" not in manifest(folder)["summary"]
    assert {k: v for k, v in manifest(folder).items() if k != "fingerprint"} == {
        k: v for k, v in before.items() if k != "fingerprint"
    }
    kept = sorted(path.name for path in folder.glob("checkpoints/[!.]*"))
    assert len(kept) == 2 and kept[0] == place.name and kept[1].startswith(f"{place.name}-")
    # The finished one of the first code is still whole, and with that code the second is set apart in its turn.
    assert "starts again from its first step" in finish(start(folder, 1))
