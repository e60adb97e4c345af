"""align.reward on real text and a small random model: as a plain loop over transformers' own class by any engine, as TRL, resumed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import losses, reward_inputs
from crawl2llm.stages.align.batches import Preferences
from crawl2llm.stages.align.settings import RewardSettings
from crawl2llm.training import initial
from crawl2llm.training.model_loading import load_model, load_tokenizer
from tests.unit.stages.align.launching import RESULTS, arguments, launched, resumed_is_straight, rows
from tests.unit.stages.align.rows import made_from
from tests.unit.stages.finetune import tiny
from tests.unit.stages.pretrain.copies import finished

RATE, CENTER = 3e-3, 0.05
CONFIG = {
    "step": "align.reward",
    "max_length": tiny.CONTEXT,
    "epochs": 2,
    "batch_size": 8,
    "micro_batch": 3,
    "learning_rate": RATE,
    "schedule": "linear",
    "warmup": 0,
    "threads": 1,
    "center_rewards": CENTER,
}
SETTINGS = RewardSettings(**{key: value for key, value in CONFIG.items() if key != "step"})
CASES = ["torch-0", "torch-3-8", "deepspeed-1", "deepspeed-3"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, base_model: Path, preferences: Path) -> Path:
    """The folder of what each case left, a folder of its name; by two processes."""
    out = tmp_path_factory.mktemp("rewards")
    finished(launched(arguments(base_model, preferences, out, **CONFIG), 2, CASES=" ".join(CASES)))
    return out


def score(model: Any, tokenizer: Any, template: Any, question: str, answer: str) -> torch.Tensor:
    """The score of one answer by transformers alone, cut as the step cuts it."""
    text = template.prompt(question) + template.completion(answer) + tokenizer.eos_token
    ids = tokenizer(text)["input_ids"][: tiny.CONTEXT]
    return model(input_ids=torch.tensor([ids])).logits[0, 0].double()


def plain(base: Path, preferences: Path) -> list[float]:
    """A loop without any engine: pair after pair, transformers' own class, torch's AdamW. The loss of each step."""
    folder = base.parent / "model"
    tokenizer = load_tokenizer(folder)
    config = AutoConfig.from_pretrained(folder, num_labels=1, pad_token_id=tokenizer.eos_token_id)
    model = AutoModelForSequenceClassification.from_pretrained(folder, config=config, dtype=torch.float32)
    own = reward_inputs.reward_config(AutoConfig.from_pretrained(folder), tokenizer.eos_token_id, "here")
    with torch.no_grad():
        model.score.weight.copy_(dict(initial.random_weights(own, 0))["score.weight"])
    batches = Preferences(preferences, tokenizer, SETTINGS, 1, "dpo")
    moves = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    made = []
    for step in range(1, batches.steps + 1):
        moves.param_groups[0]["lr"] = RATE * (1 - step / (batches.steps + 1))
        each = []
        for number in batches.step_indices(step):
            row = batches.rows[number]
            good, bad = (
                score(model, tokenizer, batches.template, row["question"], row[name]) for name in ("chosen", "rejected")
            )
            each.append(-torch.nn.functional.logsigmoid(good - bad) + CENTER * (good + bad) ** 2)
        loss = torch.stack(each).mean()
        loss.backward()
        made.append(float(loss.detach()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        moves.step()
        moves.zero_grad()
    return made


@pytest.mark.slow
def test_as_a_plain_loop(found: Path, base_model: Path, preferences: Path) -> None:
    """Any engine, micro-batch and number of processes."""
    wanted = plain(base_model, preferences)
    for case in CASES:
        made = [row["loss"] for row in rows(found / case / "made/losses.jsonl")]
        assert made == pytest.approx(wanted, abs=1e-5), case


@pytest.mark.slow
def test_what_it_leaves_is_a_model_of_transformers_with_the_same_scores(found: Path, preferences: Path) -> None:
    out = found / CASES[0] / "made"
    summary = Manifest.read(out.with_suffix(".manifest.json")).summary
    model = AutoModelForSequenceClassification.from_pretrained(out / "model", num_labels=1)
    assert sum(p.numel() for p in model.parameters()) == summary["parameters"]
    batches = Preferences(preferences, load_tokenizer(out / "model"), SETTINGS, 1, "dpo")
    held = batches.fit_rows(
        [row for row in rows(preferences.parent / "preference.heldout.jsonl") if "chosen" in row]
    ).rows
    with torch.no_grad():
        each = [
            [
                score(model, batches.tokenizer, batches.template, row["question"], row[name])
                for name in ("chosen", "rejected")
            ]
            for row in held
        ]
    good, bad = torch.tensor(each).T
    assert len(held) == summary["heldout_pairs"] > 3
    assert summary["heldout_margin_after"] == pytest.approx(float((good - bad).mean()), abs=1e-5)
    assert summary["heldout_accuracy_after"] == pytest.approx(float((good > bad).double().mean()))
    loss = losses.bradley_terry_loss(good, bad, CENTER).mean()
    assert summary["heldout_preference_loss_after"] == pytest.approx(float(loss), abs=1e-5)
    longer = [len(row["chosen"]) == len(row["rejected"]) for row in held]
    assert all(longer) and summary["longer_accuracy"] == summary["longer_preferred"] == 0.5  # the same words
    assert 0 < summary["heldout_accuracy_stderr"] < 0.5 or summary["heldout_accuracy_after"] in (0, 1)
    # Padding on either side, and an end token, change nothing.
    ids = batches.tokenizer(batches.template.prompt(held[0]["question"]) + " so", return_tensors="pt")["input_ids"]
    end = torch.full((1, 3), batches.tokenizer.eos_token_id)
    with torch.no_grad():
        assert float(model(ids).logits) == pytest.approx(float(model(torch.cat([ids, end], 1)).logits), abs=1e-6)


@pytest.mark.slow
def test_it_learns_and_shows_how(found: Path) -> None:
    shown = [row for row in rows(found / CASES[0] / "made/metrics.jsonl") if "reward_margin" in row]
    assert shown[-1]["reward_margin"] > shown[0]["reward_margin"] + 0.1 and shown[-1]["accuracy"] > 0.6
    assert shown[-1]["reward_margin"] == pytest.approx(shown[-1]["reward_chosen"] - shown[-1]["reward_rejected"])
    assert shown[-1]["chosen_tokens"] > 3


@pytest.mark.slow
def test_it_is_refused_where_a_language_model_is_asked_for(found: Path, preferences: Path, tmp_path: Path) -> None:
    made = found / CASES[0] / "made.manifest.json"
    with pytest.raises(InputError, match="a reward model, which scores answers"):
        load_model(made.parent / "made/model")
    said = finished(launched(arguments(made, preferences, tmp_path, method="dpo", max_length=tiny.CONTEXT)), 1)
    assert "is a reward model, which scores answers: no model is made from one" in said and "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "stage", "processes"),
    [("torch", 2, 2), pytest.param("deepspeed", 1, 2, marks=pytest.mark.long)],
)
def test_killed_and_resumed_gives_the_same_bytes(
    base_model: Path, preferences: Path, tmp_path: Path, engine: str, stage: int, processes: int
) -> None:
    changes = {**CONFIG, "engine": engine, "zero_stage": stage, "epochs": 4}
    kept = tuple(name for name in RESULTS if "prompts" not in name)
    resumed_is_straight(base_model, preferences, tmp_path, processes, kept, **changes)


@pytest.mark.slow
def test_rows_that_are_no_preferences(base_model: Path, questions: Path, tmp_path: Path) -> None:
    made = made_from(
        [{"prompt": "Why?", "answer": "So."}] * 2, tmp_path / "rows", questions, layout="prompts", heldout=0
    )
    said = finished(launched(arguments(base_model, made, tmp_path / "out", **CONFIG)), 1)
    assert "align.reward takes rows of layout preference; align.pairs has prompts" in said and "Traceback" not in said


@pytest.mark.parametrize("center", [None, 0.01])
def test_the_formula_of_trl(center: float | None) -> None:
    """Of RewardTrainer itself, on scores."""
    from trl.trainer.reward_trainer import RewardTrainer

    scores = torch.randn(8, 1, generator=torch.Generator().manual_seed(0))
    gathers = SimpleNamespace(gather_for_metrics=lambda value: value, gather=lambda value: value)
    of = SimpleNamespace(
        model=SimpleNamespace(training=True), accelerator=gathers, _total_train_tokens=0, _tp_size=1,
        _metrics={"train": defaultdict(list)}, args=SimpleNamespace(center_rewards_coefficient=center),
    )  # fmt: skip
    given = {"attention_mask": torch.ones(8, 3)}
    wanted = RewardTrainer.compute_loss(of, lambda **_: SimpleNamespace(logits=scores), given)
    chosen, rejected = scores[:, 0].chunk(2)
    assert float(losses.bradley_terry_loss(chosen, rejected, center or 0.0).mean()) == pytest.approx(
        float(wanted), abs=1e-6
    )


@pytest.mark.parametrize("kind", ["mamba2", "mixtral"])
def test_architectures_without_a_score_are_named(kind: str) -> None:
    with pytest.raises(InputError, match=rf"models\.rm\.from: align\.reward takes no model of type '{kind}'"):
        reward_inputs.reward_config(AutoConfig.for_model(kind), 0, "models.rm.from")
