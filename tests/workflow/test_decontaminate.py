"""Decontamination through the rules: what a run's text shares with an evaluation set is out of its corpus, and on its report's way there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from scripts.formats.documents import rows
from scripts.workflow.manifest import Manifest
from tests.workflow.conftest import TINY, run
from tests.workflow.plan import planned


def texts(folder: Path) -> dict[str, str]:
    """id → text of the corpus."""
    found = {}
    for path in sorted((folder / "results/main/corpus/write").glob("*.manifest.json")):
        made = Manifest.read(path)
        for name in made.files:
            if name.startswith(("train/", "validation/")):
                found |= {row["id"]: row["text"] for row in rows(made.file(name), ["id", "text"])}
    return found


def test_an_item_in_the_text_is_out_of_the_corpus(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder = copy_of()
    before = texts(folder)
    name, text = max(before.items(), key=lambda item: len(item[1]))
    item = " ".join(text.split()[20:60])  # sixty words of a page of the run
    (folder / "own.jsonl").write_text(json.dumps({"text": item.upper()}) + "\n")
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["decontaminate"] = {"index": {"files": [{"path": "own.jsonl"}]}}
    config = tmp_path / "searched.yaml"
    config.write_text(yaml.safe_dump(tree, sort_keys=False))
    new = {f"decontaminate.{step}" for step in ("index", "score", "select")} | {"evaluate.found"}
    assert new | {"corpus.write", "pretrain.train", "report.render"} <= planned(folder, tree)
    wanted = ["results/main/evaluate/found/manifest.json", "results/main/corpus/write/00000.manifest.json"]
    run(folder, *wanted, config=config)
    after = texts(folder)
    assert name not in after and set(after) < set(before)
    found = Manifest.read(folder / wanted[0])
    assert found.summary["sets"]["own"]["found"] == 1
    assert found.summary["documents"]["dropped"] == len(before) - len(after)
    (line,) = found.rows("found.jsonl")
    assert line["overlap"] == 1 and line["fate"] == "removed" and line["urls"]
