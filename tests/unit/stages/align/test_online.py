"""align.train by rewards, on a small random model: what it learns, by any engine; killed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.training.model_loading import load_model
from tests.unit.stages.align.launching import arguments, launched, resumed_is_straight, rows
from tests.unit.stages.finetune import tiny
from tests.unit.stages.pretrain.copies import finished

pytestmark = pytest.mark.slow  # starts trainings

REWARD = "def share(question, answer, reference):\n    return sum(letter in 'aeiou' for letter in answer) / max(1, len(answer))\n"
CONFIG = {
    "max_length": tiny.CONTEXT,
    "max_new_tokens": 8,
    "epochs": 3,
    "batch_size": 4,
    "generations": 6,
    "micro_batch": 5,
    "learning_rate": 1e-2,
    "schedule": "constant",
    "warmup": 0,
    "threads": 1,
    "heldout_prompts": 20,
}
CASES = ["torch-0", "torch-3", "deepspeed-1", "deepspeed-3"]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("reward") / "vowels.py"
    file.write_text(REWARD)
    return {**CONFIG, "rewards": [{"function": f"{file}:share"}]}


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_any_engine_learns_the_same(
    base_model: Path, prompts: Path, settings: dict[str, Any], tmp_path: Path, processes: int
) -> None:
    """GRPO. A draw may differ where the last digits do, so the first steps are compared, and what is learnt."""
    cases = CASES if processes == 2 else CASES[::2]
    made = arguments(base_model, prompts, tmp_path, **settings, method="grpo")
    finished(launched([*made, "--measure-every", "6"], processes, CASES=" ".join(cases)))
    found = {case: rows(tmp_path / case / "made/metrics.jsonl") for case in cases}
    for case in cases:
        steps = [row for row in found[case] if "loss" in row]
        first = [row for row in found[cases[0]] if "loss" in row]
        for row, other in zip(steps[:3], first[:3], strict=True):
            for key in ("loss", "reward", "kl", "answer_tokens"):
                assert row[key] == pytest.approx(other[key], abs=2e-4), (case, key)
        summary = Manifest.read(tmp_path / case / "made.manifest.json").summary
        assert summary["heldout_reward_after"] > summary["heldout_reward_before"] + 0.05, case
        assert steps[0]["kl"] == pytest.approx(0, abs=1e-6) and steps[-1]["kl"] > 0.01
        assert [row["step"] for row in found[case] if "heldout_reward" in row] == [
            *range(0, summary["steps"], 6),
            summary["steps"],
        ]
        assert (
            sum(p.numel() for p in load_model(tmp_path / case / "made/model")[0].parameters()) == summary["parameters"]
        )
        shown = rows(tmp_path / case / "made/prompts.jsonl")
        assert len(shown) == 10 and all(
            row.keys() >= {"question", "before", "after", "reward_before", "reward_after"} for row in shown
        )
        assert any(row["before"] != row["after"] for row in shown)


@pytest.mark.parametrize(
    ("method", "engine", "stage", "processes"),
    [
        ("grpo", "torch", 2, 2),
        pytest.param("rloo", "deepspeed", 1, 2, marks=pytest.mark.long),
        pytest.param("reinforce", "torch", 0, 1, marks=pytest.mark.long),
        pytest.param("grpo", "deepspeed", 3, 2, marks=pytest.mark.long),
    ],
)
def test_killed_and_resumed_gives_the_same_bytes(
    base_model: Path,
    prompts: Path,
    settings: dict[str, Any],
    tmp_path: Path,
    method: str,
    engine: str,
    stage: int,
    processes: int,
) -> None:
    in_slots = {"answers_at_once": 8} if engine == "torch" and processes > 1 else {}
    changes = {**settings, "method": method, "engine": engine, "zero_stage": stage, **in_slots}
    resumed_is_straight(base_model, prompts, tmp_path, processes, **changes)
    if in_slots:
        shares = [row["idle_positions"] for row in rows(tmp_path / "straight/made/metrics.jsonl") if "kl" in row]
        assert shares and all(0 <= share < 1 for share in shares)


@pytest.mark.long
def test_the_coefficient_bounds_the_divergence(
    base_model: Path, prompts: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    """RLOO and REINFORCE: what a nat costs, far above what there is to win, keeps the model where it was."""
    ended = {}
    for method, coefficient in (("rloo", 0.0), ("rloo", 10.0), ("reinforce", 0.0)):
        out = tmp_path / f"{method}-{coefficient}"
        changes = {**settings, "method": method, "kl_coefficient": coefficient, "engine": "torch", "zero_stage": 0}
        finished(launched(arguments(base_model, prompts, out, **changes)))
        ended[out.name] = rows(out / "made/metrics.jsonl")[-2]["kl"], Manifest.read(out / "made.manifest.json").summary
    assert ended["rloo-10.0"][0] < 0.5 * ended["rloo-0.0"][0]
    for name in ("rloo-0.0", "reinforce-0.0"):
        assert ended[name][1]["heldout_reward_after"] > ended[name][1]["heldout_reward_before"] + 0.05, name


def test_what_is_refused(base_model: Path, prompts: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    made = {**settings, "method": "grpo", "engine": "torch", "max_length": 9}
    said = finished(launched(arguments(base_model, prompts, tmp_path, **made)), 1)
    assert "has at most align.train.max_length 9 - max_new_tokens 8 tokens" in said and "Traceback" not in said
