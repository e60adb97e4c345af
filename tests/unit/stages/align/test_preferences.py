"""align.train by DPO and KTO on real text and a small random model: as a plain loop by any engine, as TRL, killed and resumed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import losses
from crawl2llm.stages.align.batches import Preferences, rows_for
from crawl2llm.stages.align.settings import TrainSettings
from crawl2llm.training import checkpoint
from crawl2llm.training.model_loading import load_model
from crawl2llm.training.pair_batches import tokenized_pairs
from tests.unit.stages.align import launching
from tests.unit.stages.align.launching import launched, rows
from tests.unit.stages.finetune import tiny
from tests.unit.stages.pretrain.copies import finished

pytestmark = pytest.mark.slow  # starts trainings

RATE, BETA = 3e-3, 0.3
CONFIG = {
    "max_length": tiny.CONTEXT,
    "epochs": 2,
    "batch_size": 8,
    "micro_batch": 3,
    "learning_rate": RATE,
    "schedule": "linear",
    "warmup": 0,
    "threads": 1,
    "beta": BETA,
}
CASES = ["torch-0", "torch-3-8", "deepspeed-1"]


def arguments(base: Path, pairs: Path, out: Path, **changes: object) -> list[str]:
    return launching.arguments(base, pairs, out, **{**CONFIG, **changes})


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("dpo", 1), marks=pytest.mark.long),
        ("dpo", 2),
        pytest.param(("kto", 2), marks=pytest.mark.long),
    ],
    ids=lambda given: "-".join(map(str, given)),
)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, base_model: Path, preferences: Path
) -> tuple[str, int, Path]:
    """(method, processes, the folder of what each case left, a folder of its name)."""
    method, processes = request.param
    out = tmp_path_factory.mktemp(f"{method}-{processes}")
    finished(launched(arguments(base_model, preferences, out, method=method), processes, CASES=" ".join(CASES)))
    return method, processes, out


def plain(method: str, base: Path, preferences: Path) -> dict[str, Any]:
    """A loop without any engine: answer after answer without padding, a second model as the reference, torch's AdamW."""
    model, tokenizer = load_model(base.parent / "model")
    reference, _ = load_model(base.parent / "model")
    batches = Preferences(preferences, tokenizer, TrainSettings(**CONFIG), 1, method)
    moves = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)

    def ratio(row: dict[str, Any], name: str, learns: bool = True) -> torch.Tensor:
        """The log-probability of an answer, minus that of the reference."""
        one = [{"question": row["question"], "answer": row[name]}]
        ((ids, scored, _),) = tokenized_pairs(one, batches.template, tokenizer, tiny.CONTEXT)
        out = []
        for who, on in ((model, learns), (reference, False)):
            with torch.set_grad_enabled(on):
                logits = who(input_ids=torch.from_numpy(ids[None])).logits[0, -scored - 1 : -1]
                out.append(logits.log_softmax(1).gather(1, torch.from_numpy(ids[-scored:])[:, None]).sum())
        return out[0] - out[1]

    def loss(some: list[dict[str, Any]], learns: bool) -> torch.Tensor:
        if method == "dpo":
            each = [ratio(row, "chosen", learns) - ratio(row, "rejected", learns) for row in some]
            return torch.stack([-torch.nn.functional.logsigmoid(BETA * one) for one in each]).mean()
        apart = torch.stack([ratio(row, "other", False) for row in some]).mean().clamp(min=0)
        sides = [(1 if row["label"] else -1) * (ratio(row, "answer", learns) - apart) for row in some]
        return torch.stack([1 - torch.sigmoid(BETA * side) for side in sides]).mean()

    made = []
    for step in range(1, batches.steps + 1):
        moves.param_groups[0]["lr"] = RATE * (1 - step / (batches.steps + 1))
        found = loss([batches.rows[number] for number in batches.step_indices(step)], True)
        found.backward()
        made.append(float(found.detach()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        moves.step()
        moves.zero_grad()
    heldout = batches.fit_rows(rows_for(method, preferences, "heldout")[0]).rows
    return {"losses": made, "after": float(loss(heldout, False))}


@pytest.fixture(scope="module")
def plainly(base_model: Path, preferences: Path) -> Any:
    held: dict[str, Any] = {}
    return lambda method: (
        held.setdefault(method, None) or held.update({method: plain(method, base_model, preferences)}) or held[method]
    )


def test_as_a_plain_loop(found: tuple[str, int, Path], plainly: Any) -> None:
    """Any engine, micro-batch and number of processes; what is measured of the held-out rows too."""
    method, _, out = found
    wanted = plainly(method)
    for case in CASES:
        made = rows(out / case / "made/losses.jsonl")
        assert [row["loss"] for row in made] == pytest.approx(wanted["losses"], abs=2e-5), case
        summary = Manifest.read(out / case / "made.manifest.json").summary
        assert summary["heldout_preference_loss_after"] == pytest.approx(wanted["after"], abs=1e-4), case
        assert summary["heldout_preference_loss_before"] == pytest.approx(
            {"dpo": 0.693147, "kto": 0.5}[method], abs=1e-6
        )
        if method == "dpo":  # every pair is tied before the first step
            assert summary["heldout_accuracy_before"] == 0.5, case


def test_it_learns_to_prefer_and_shows_how(found: tuple[str, int, Path]) -> None:
    method, _, out = found
    summary = Manifest.read(out / CASES[0] / "made.manifest.json").summary
    assert summary["method"] == method and summary["pairs"] > 15 and summary["heldout_pairs"] > 3
    assert summary["heldout_margin_after"] > 0 and summary["heldout_accuracy_after"] > 0.5
    shown = [row for row in rows(out / CASES[0] / "made/metrics.jsonl") if "reward_margin" in row]
    assert len(shown) == summary["steps"] and shown[0]["reward_margin"] == pytest.approx(0, abs=1e-5)
    assert shown[-1]["reward_margin"] == pytest.approx(shown[-1]["reward_chosen"] - shown[-1]["reward_rejected"])
    assert shown[-1]["reward_margin"] > 0.05 and shown[-1]["accuracy"] > 0.6
    assert ("kl" in shown[-1]) == (method == "kto") and shown[-1]["chosen_tokens"] > 3
    model, _ = load_model(out / CASES[0] / "made/model")
    assert sum(p.numel() for p in model.parameters()) == summary["parameters"]


@pytest.mark.parametrize(
    ("method", "engine", "stage", "processes"),
    [
        pytest.param("dpo", "torch", 3, 2, marks=pytest.mark.long),
        pytest.param("kto", "torch", 0, 1, marks=pytest.mark.long),
        pytest.param("dpo", "deepspeed", 1, 2, marks=pytest.mark.long),
        pytest.param("kto", "deepspeed", 3, 2, marks=pytest.mark.long),
        pytest.param("dpo", "deepspeed", 0, 1, marks=pytest.mark.long),
    ],
)
def test_killed_and_resumed_gives_the_same_bytes(
    base_model: Path, preferences: Path, tmp_path: Path, method: str, engine: str, stage: int, processes: int
) -> None:
    changes = {"method": method, "engine": engine, "zero_stage": stage, "epochs": 4}
    straight, cut = (arguments(base_model, preferences, tmp_path / name, **changes) for name in ("straight", "cut"))
    finished(launched(straight, processes))
    cut += ["--checkpoint-every", "2"]
    process, folder = launched(cut, processes), tmp_path / "cut/checkpoints"
    end = time.monotonic() + 900
    while not list(folder.glob(f"*/step-*/{checkpoint.FACTS}")):
        assert process.poll() is None and time.monotonic() < end, process.communicate()[1]
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "cut/made.manifest.json").exists()
    said = finished(launched(cut, processes))
    assert "resuming after step" in said and "held-out accuracy before" not in said
    for name in ("made.manifest.json", "made/losses.jsonl", "made/model/model.safetensors"):
        assert (tmp_path / "straight" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    assert not [path for path in folder.glob("[!.]*")]


def test_settings_are_refused_by_their_keys(
    base_model: Path, preferences: Path, questions: Path, tmp_path: Path
) -> None:
    said = finished(launched(arguments(base_model, preferences, tmp_path / "a", max_length=65)), 1)
    assert "align.train.max_length is 65; the model's context is 64" in said and "Traceback" not in said
    said = finished(launched(arguments(base_model, questions, tmp_path / "b")), 1)
    assert "must be one of 'align.pairs'" in said and "Traceback" not in said


def test_the_formulas_of_trl() -> None:
    """Of DPOTrainer and KTOTrainer themselves, on log-probabilities of a policy and a reference that differ."""
    from tests.unit.stages.align import by_trl

    for beta, smoothing in ((0.1, 0.0), (0.5, 0.0)):
        chosen, rejected, wanted = by_trl.dpo(beta)
        assert float(losses.dpo_loss(chosen, rejected, beta, smoothing).mean()) == pytest.approx(wanted, abs=1e-6)
    ratios, labels, apart, wanted = by_trl.kto(0.2, 1.5, 0.5)
    assert float(losses.kto_loss(ratios, labels, apart, 0.2, 1.5, 0.5).mean()) == pytest.approx(wanted, abs=1e-6)
