"""report.cautions: what a reader of the numbers has to be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import cautions, funnel, summary
from crawl2llm.stages.report.models import models_of_run


def counted(held: int | None = 100, bits: float | None = 1.9, bigram: float | None = 2.6) -> dict[str, Any]:
    return {
        "corpus": {"train": {"documents": 163}, "validation": {"documents": held}},
        "models": [
            {"name": "sft", "evaluation": {"heldout_text": {"bits_per_byte": 9.0}}},
            {"name": "base", "evaluation": {"heldout_text": {"bits_per_byte": bits}}},
        ],
        "beside": {"heldout_text": {"bits_per_byte": {"bigram": bigram, "unigram": 3.1}}},
    }


def test_nothing_is_said_of_a_run_with_enough_of_both() -> None:
    assert not cautions.notes(counted())
    assert (
        not cautions.notes(counted(held=30))
        and not cautions.notes({})
        and not cautions.notes(counted(None, None, None))
    )
    assert not cautions.notes(counted(held=0)), "corpus.split says itself that nothing is held out"


@pytest.mark.parametrize(("held", "words"), [(2, "Only 2 documents are held out"), (1, "Only 1 document is held out")])
def test_few_held_out_documents_are_named_with_the_key(held: int, words: str) -> None:
    (note,) = cautions.notes(counted(held=held))
    assert words in note["text"] and "beside 163 to train on" in note["text"]
    assert "corpus.split.validation_fraction" in note["text"] and note["step"] == "corpus.split"


def test_a_base_model_that_is_worse_than_counts_of_pairs_is_named_with_both_numbers() -> None:
    (note,) = cautions.notes(counted(bits=2.926, bigram=2.625))
    assert (
        "no better than a bigram model" in note["text"] and "2.926 against 2.625 bits per held-out byte" in note["text"]
    )
    assert len(cautions.notes(counted(bits=2.5, bigram=2.5))) == 1


def test_the_summary_and_the_report_show_them(run_folder: Path, manifests: list[Path]) -> None:
    """Of the small run four documents are held out."""
    run = Run.read(manifests)
    counts = funnel.run_counts(run, models_of_run(run))
    notes = [text for name, text in summary.summary_lines(counts, None, Path("report.html")) if name == "note"]
    assert any(text.startswith("corpus.split: Only 4 documents are held out") for text in notes)
    assert any("Only 4 documents" in note["text"] for note in counts["notes"])
