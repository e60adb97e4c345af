"""The table and the plot of size, quality, speed and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import generation_speed
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import compression_table
from crawl2llm.stages.report.models import Model

BASE, SFT = Model("base", None, "pretrain.train"), Model("sft", "base", "finetune.train")
INT8 = Model("int8", "sft", "compress.quantize")
SPEED = {
    "tokens_per_second": 217.4,
    "weights_bytes": 1_200_000,
    "peak_memory_bytes": 2**30,
    "threads": 1,
    "machine": "A Xeon",
}


def written(results: Path, step: str, task: str, files: dict[str, int], summary: dict[str, Any]) -> Path:
    folder = results.joinpath(*step.split("."))
    path = folder / f"{task}.manifest.json" if task else folder / "manifest.json"
    paths = []
    for name, number in files.items():
        file = folder / task / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"0" * number)
        paths.append(file)
    Manifest(step, "0" * 16, summary=summary).write(path, paths)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of two models, and of a quantized one; the speed of `sft` is not known."""
    for model, held, bits, scores in (
        (BASE, 4000, 1.7, (0.8, 0.4)),
        (SFT, 4000, 1.8, (0.7, 0.3)),
        (INT8, 1000, 1.81, (0.6, 0.3)),
    ):
        written(tmp_path, model.step, model.task, {"model/model.safetensors": held, "model/tokenizer.json": 77}, {})
        items = {task: {"centered": of} for task, of in zip(("word_order", "next_word"), scores, strict=True)}
        summary = {
            "parameters": 1000,
            "heldout_text": {"bits_per_byte": bits},
            "items": items | {"heldout_questions": {"centered": 9}},
        }
        path = written(tmp_path, "evaluate.model", model.name, {}, summary)
        if model != SFT:
            generation_speed.write(path, SPEED | {"tokens_per_second": 560.0} if model == BASE else SPEED)
    return tmp_path


def run_of(results: Path) -> Run:
    return Run.read(results.rglob("*manifest.json"))


def test_every_model_stands_in_it(results: Path) -> None:
    found = compression_table.compression_rows(run_of(results), [BASE, SFT, INT8])
    assert [(of["name"], of["bytes"], of["bits"]) for of in found] == [
        ("base", 4000, 1.7),
        ("sft", 4000, 1.8),
        ("int8", 1000, 1.81),
    ]
    assert [of["centered"] for of in found] == [pytest.approx(0.6), pytest.approx(0.5), pytest.approx(0.45)]
    shown = compression_table.table(found)
    assert [row["name"] for row in shown["rows"]] == ["Base model", "sft", "int8"]
    assert shown["rows"][2]["cells"][:5] == ["1\xa0kB", "1,000", "1.81", "+0.450", "217"]
    assert shown["rows"][1]["cells"][4:] == ["–", "–", "–"]
    assert "A Xeon, 1 thread." in shown["about"]
    drawn = compression_table.figure(found)
    assert drawn and "int8, 217 tokens/s: 1,000 bytes, 1.81 bits per byte" in drawn and "sft: 4,000 bytes" in drawn


def test_without_a_compressed_model_there_is_none(results: Path) -> None:
    assert compression_table.compression_rows(run_of(results), [BASE, SFT]) == []
    assert compression_table.figure([]) is None and compression_table.table([])["rows"] == []
    (results / "compress/quantize/int8.manifest.json").unlink()
    assert compression_table.compression_rows(run_of(results), [BASE, SFT, INT8]) == [], "it is not made yet"


def test_a_model_that_was_not_evaluated_has_its_size(results: Path) -> None:
    (results / "evaluate/model/sft.manifest.json").unlink()
    found = {of["name"]: of for of in compression_table.compression_rows(run_of(results), [BASE, SFT, INT8])}
    assert found["sft"]["bytes"] == 4000 and found["sft"]["bits"] is None and found["sft"]["centered"] is None
    assert compression_table.table(list(found.values()))["rows"][1]["cells"][2:] == ["–"] * 5


def test_a_speed_that_other_work_disturbed_is_a_lower_bound(results: Path) -> None:
    path = results / "evaluate/model/int8.manifest.json"
    generation_speed.write(path, SPEED | {"tokens_per_second": 196.0, "disturbed": True})
    found = compression_table.compression_rows(Run.read(results.rglob("*manifest.json")), [BASE, SFT, INT8])
    shown = compression_table.table(found)
    assert [row["cells"][4] for row in shown["rows"]] == ["560", "–", "≥ 196"]
    assert "With ≥ the machine had other work at the time" in shown["about"]


@pytest.mark.parametrize(
    ("rounds", "disturbed"),
    [
        ([(900.0, 1.0), (949.0, 0.99), (196.0, 0.4)], False),  # a single slow round disturbs nothing
        ([(196.0, 0.45), (200.0, 0.5), (190.0, 0.4)], True),  # others took half of the time throughout
        ([(949.0, 1.0), (500.0, 1.0), (196.0, 1.0)], True),
        ([(3.0, 1.0)], False),  # one round of a large model
        ([(3.0, 0.5)], True),
    ],
)
def test_which_rounds_are_disturbed(rounds: list[tuple[float, float]], disturbed: bool) -> None:
    assert generation_speed.is_disturbed(rounds) == disturbed
