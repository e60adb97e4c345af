"""What the report says of texts that a model wrote."""

from __future__ import annotations

from pathlib import Path

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import synthesis_table, tables


def test_a_row_for_each_step_and_one_for_the_corpus(tmp_path: Path) -> None:
    summary = {"model": "big", "seeds": {"chosen": 20}, "tokens": {"prompt": 3000, "completion": 1000}, "money": 0.0125}
    counts = {"in": 40, "kept": 36, "dropped": {"cut": 1, "refusal": 3}}
    Manifest("synthesize.rephrase", "x", counts, summary=summary).write(tmp_path / "a/manifest.json", [])
    held = {"documents": 30, "heldout": 2}
    Manifest("corpus.split", "x", summary={"synthesized": held}).write(tmp_path / "b/manifest.json", [])
    run = Run.read([tmp_path / "a/manifest.json", tmp_path / "b/manifest.json"])
    first, second = synthesis_table.synthesis_facts(run)
    assert first == (
        "Texts of synthesize.rephrase", "36",
        "by big from 20 documents; 4,000 tokens of prompts and replies for 0.0125; dropped of 40: cut 1, refusal 3",
    )  # fmt: skip
    assert second[:2] == ("Synthesized documents in the corpus", "30") and second[2].startswith(
        "2 of them for validation"
    )
    assert tables.corpus_facts(run)[:2] == [first, second] and synthesis_table.synthesis_facts(Run({})) == []
