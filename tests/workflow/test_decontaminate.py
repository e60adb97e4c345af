"""Decontamination through the rules: what a run's text shares with an evaluation set is out of its corpus, and told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
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


@pytest.mark.long
def test_public_tasks_are_searched_for_and_the_report_says_what_was_found(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    folder = copy_of()
    text = max(texts(folder).values(), key=len).split()
    words = [" ".join(text[at : at + 12]) for at in range(20, 140, 15)]
    asked = [
        {"premise": premise, "choice1": "It is found.", "choice2": "It is not.", "question": "effect", "label": at % 2}
        for at, premise in enumerate(
            [*words[:4], *(f"The {name} of the moon sings a song." for name in ("man", "cat"))]
        )
    ]
    (folder / "copa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["evaluate"]["public"] = {"presets": ["copa"], "data": ["copa.jsonl"], "threads": 1}
    tree["decontaminate"] = {"select": {"action": "cut"}}
    config = tmp_path / "searched.yaml"
    config.write_text(yaml.safe_dump(tree, sort_keys=False))
    run(folder, config=config)
    assert planned(folder, tree) == set()
    found = Manifest.read(folder / "results/main/evaluate/found/manifest.json").summary
    assert found["sets"]["copa"]["found"] == 4 and found["not_searched"] == []
    parts = found["tasks"]["copa"]["base"]
    assert (parts["all"]["items"], parts["removed"]["items"], parts["not_found"]["items"]) == (6, 4, 2)
    page = (folder / "results/main/report/render/report.html").read_text()
    assert "<h3>Decontamination</h3>" in page and "Found, removed" in page
    assert not any(words[0] in text for text in texts(folder).values())
    # Fixed as it was, another task is only evaluated, and said not to have been searched for.
    tree["decontaminate"]["index"] = {"tasks": ["copa"], "data": ["copa.jsonl"]}
    assert planned(folder, tree) == set()
