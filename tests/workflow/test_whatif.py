"""What other thresholds would keep, compared with runs of the workflow."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.chain import steps
from crawl2llm.commands.trace.results import Results
from crawl2llm.commands.whatif.command import whatif_report
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from tests.unit.commands.whatif.test_command import counts
from tests.workflow.conftest import TINY, run

DRAWN = random.Random(7)  # noqa: S311
# A key, and a value drawn for it.
KEYS: dict[str, Callable[[], Any]] = {
    "language.select.threshold": lambda: round(DRAWN.uniform(0.1, 0.95), 2),
    "heuristics.select.gopher_quality.words_min": lambda: DRAWN.randint(10, 200),
    "heuristics.select.gopher_quality.alphabetic_words_min": lambda: round(DRAWN.uniform(0.4, 0.9), 2),
    "heuristics.select.c4.sentences_min": lambda: DRAWN.randint(1, 12),
    "lines.select.sentences_min": lambda: DRAWN.randint(1, 10),
    "dedup.select.threshold": lambda: round(DRAWN.uniform(0.6, 0.99), 2),
    "quality.select.keep_fraction": lambda: round(DRAWN.uniform(0.1, 1), 2),
}


@pytest.fixture
def results(complete: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.chdir(complete)
    return Results([TINY])


def compare(results: Results, folder: Path, edits: dict[str, Any], given: Path = TINY) -> None:
    """The answer beside a run of the workflow, in a copy of the results, to the last step of the edits."""
    found = whatif_report(results, [f"{key}={json.dumps(value)}" for key, value in edits.items()])
    tree = yaml.safe_load(given.read_text(encoding="utf-8"))
    for key, value in edits.items():
        tree = merge_dicts(tree, nest_value(key, value))
    config = folder.with_suffix(".yaml")
    config.write_text(yaml.safe_dump(tree))
    changed = [one["step"] for one in found["steps"] if one["edited"]]
    assert changed and all(one["exact"] for one in found["steps"] if one["edited"])
    first, number = changed[0], [one["step"] for one in found["steps"]].index(changed[0])
    run(folder, "--until", steps.rule_of(first), config=config)
    for one in found["steps"][: number + 1]:
        told = {key: one["after"][key] for key in ("in", "kept", "dropped")}
        assert told == counts(folder, results, one["step"]), (edits, one["step"])


@pytest.mark.parametrize("key", ["heuristics.select.gopher_quality.words_min", "quality.select.keep_fraction"])
def test_counts_are_those_of_a_run(results: Results, copy_of: Callable[[], Path], key: str) -> None:
    compare(results, copy_of(), {key: KEYS[key]()})


def test_thresholds_by_language_are_derived_again(copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow from those of the config, so an edit of these changes what heuristics.calibrate makes."""
    folder, key = copy_of(), "heuristics.select.gopher_quality.mean_word_length_max"
    tree = merge_dicts(yaml.safe_load(TINY.read_text(encoding="utf-8")), nest_value(key, None))
    tree["heuristics"]["calibrate"] = {"method": "tail", "least": 5, "reference": "de", "tail": 0.2}
    config = folder.with_name("calibrated.yaml")
    config.write_text(yaml.safe_dump(tree))
    run(folder, "--until", "heuristics_select", config=config)
    monkeypatch.chdir(folder)
    results = Results([config])
    found = whatif_report(results, [f"{key}=10"])
    assert next(one for one in found["steps"] if one["edited"])["gone"] > 0
    compare(results, folder, {key: 10}, config)


@pytest.mark.long
def test_ten_random_edits(results: Results, copy_of: Callable[[], Path]) -> None:
    folder = copy_of()
    for _ in range(10):
        key = DRAWN.choice(list(KEYS))
        compare(results, folder, {key: KEYS[key]()})


def test_the_reports_curves_are_the_commands_answers(results: Results) -> None:
    """One point of every rule of every step, dedup and quality among them: documents by source and language, and tokens of the corpus."""
    made = results.read_manifest("report.whatif")
    assert made
    curves = json.loads(made.file("whatif.json").read_text(encoding="utf-8"))
    draw, compared = random.Random(3), 0  # noqa: S311
    for step in curves["steps"]:
        assert step["kept"]["documents"]["all"] == counts(Path(), results, step["step"])["kept"]
        assert not any("is not that of" in row["why"] for row in step["left_out"])
        # Each question reads all tables: of the many rules of heuristics three.
        for rule in draw.sample(step["rules"], min(3, len(step["rules"]))):
            place = draw.randrange(len(rule["points"]))
            found = whatif_report(results, [f"{rule['key']}={json.dumps(rule['points'][place])}"], samples=0)
            after = next(one["after"] for one in found["steps"] if one["step"] == step["step"])
            kept, where = rule["kept"]["documents"], (rule["key"], rule["points"][place])
            assert kept["all"][place] == after["kept"], where
            for by in ("source", "language"):
                names = curves[f"{by}s"]["names"]
                told = {name: number for row, name in enumerate(names) if (number := kept[by][row][place])}
                assert told == after[f"by_{by}"], where
            assert rule["kept"]["tokens"]["all"][place] == found["corpus"]["tokens_after"], where
            compared += 1
    assert compared > 6
