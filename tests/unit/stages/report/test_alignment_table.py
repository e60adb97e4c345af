"""What the page shows of an alignment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import alignment_table
from crawl2llm.stages.report.models import Model

MODEL = Model("grpo", "sft", "align.train")
SUMMARY = {
    "method": "grpo", "pairs": 100, "heldout_pairs": 20, "steps": 4, "heldout_reward_before": 0.1, "heldout_reward_after": 0.9,
    "heldout_answer_loss_before": 3.8, "heldout_answer_loss_after": 4.0,
    "heldout_reward/format_before": 0.1, "heldout_reward/format_after": 0.9,
}  # fmt: skip


def run_of(folder: Path, rows: list[dict[str, Any]]) -> Run:
    """A run whose only result is an alignment that measured these rows."""
    place = folder / "align/train/grpo"
    place.mkdir(parents=True)
    (place / "losses.jsonl").write_text("")
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "prompts.jsonl").write_text('{"question": "Why?", "before": "So.", "after": "No."}\n{"cut')
    manifest = Manifest("align.train", "0" * 16)
    manifest.write(place.with_name("grpo.manifest.json"), [place / "losses.jsonl", place / "prompts.jsonl"])
    return Run.read([place.with_name("grpo.manifest.json")])


def test_facts_name_what_was_measured() -> None:
    rows = {name: value for name, value, _ in alignment_table.alignment_facts(SUMMARY)}
    assert rows["Held-out reward before"] == "0.1" and rows["Held-out reward after"] == "0.9"
    assert rows["Held-out loss on answers after"] == "4" and rows["Held-out reward/format after"] == "0.9"
    assert "Held-out accuracy before" not in rows


def test_figures_and_prompts(tmp_path: Path) -> None:
    measured = {"heldout_reward": 0.1, "heldout_answer_loss": 3.8}
    steps = [
        {"step": step, "loss": 0.1, "reward": 0.1 * step, "kl": 0.01 * step, "answer_tokens": 9} for step in (1, 2, 3)
    ]
    run = run_of(
        tmp_path, [{"step": 0, **measured}, *steps, {"step": 3, "heldout_reward": 0.9, "heldout_answer_loss": 4.0}]
    )
    figures = alignment_table.figures(run, MODEL)
    assert {name for name, figure in figures.items() if figure} == {"reward", "kl", "lengths", "hacking"}
    assert "held-out loss on answers" in str(figures["hacking"])
    assert [row["after"] for row in alignment_table.fixed_prompts(run, MODEL)] == ["No."]
    ppo = run_of(tmp_path / "ppo", [{**row, "explained_variance": 0.1 * row["step"]} for row in steps])
    assert "variance explained" in str(alignment_table.figures(ppo, MODEL)["explained"])
    other = Model("sft", "base", "finetune.train")
    assert not any(alignment_table.figures(run, other).values()) and alignment_table.fixed_prompts(run, other) == []


def test_a_reward_model_shows_what_its_accuracy_is_worth(tmp_path: Path) -> None:
    place = tmp_path / "align/reward/rm"
    place.mkdir(parents=True)
    steps = [{"step": step, "loss": 0.6, "reward_chosen": 0.1 * step, "accuracy": 0.5} for step in (1, 2, 3)]
    (place / "losses.jsonl").write_text("")
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    Manifest("align.reward", "0" * 16).write(place.with_name("rm.manifest.json"), [place / "losses.jsonl"])
    run, model = Run.read([place.with_name("rm.manifest.json")]), Model("rm", "sft", "align.reward")
    figures = alignment_table.figures(run, model)
    assert (
        figures["accuracy"]
        and figures["reward"]
        and not figures["kl"]
        and alignment_table.fixed_prompts(run, model) == []
    )
    summary = {"pairs": 9, "heldout_accuracy_before": 0.5, "heldout_accuracy_after": 0.7, "longer_accuracy": 0.6}
    rows = {
        name: value for name, value, _ in alignment_table.alignment_facts({**summary, "heldout_accuracy_stderr": None})
    }
    assert rows["Held-out accuracy after"] == "0.7" and rows["Accuracy of the longer answer"] == "0.6"
    assert "Error of the held-out accuracy" not in rows and "Method" not in rows
    assert model.heading == "Reward model: rm"
