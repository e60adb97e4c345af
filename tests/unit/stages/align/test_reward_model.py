"""A reward model as a judge: of answers that a model gives while it trains, and of those that preferences are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align.pairs import read_rows
from crawl2llm.stages.align.reward_model import RewardModel
from crawl2llm.training.template import read_pairs
from tests.unit.stages.align import test_online, test_reward
from tests.unit.stages.align.launching import RESULTS, arguments, launched, resumed_is_straight, rows
from tests.unit.stages.finetune import tiny
from tests.unit.stages.pretrain.copies import finished

pytestmark = pytest.mark.slow  # starts trainings

ONLINE = {
    **test_online.CONFIG,
    "method": "grpo",
    "rewards": [{"reward": "model", "name": "made"}],
    "kl_coefficient": 0.01,
}


@pytest.fixture(scope="module")
def rewarding(tmp_path_factory: pytest.TempPathFactory, base_model: Path, preferences: Path) -> Path:
    """The manifest of a reward model, `made`."""
    out = tmp_path_factory.mktemp("judge")
    config = {**test_reward.CONFIG, "engine": "torch", "zero_stage": 0}
    finished(launched(arguments(base_model, preferences, out, **config)))
    return out / "made.manifest.json"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory, questions: Path) -> Path:
    from crawl2llm.stages.align import pairs

    out = tmp_path_factory.mktemp("prompts") / "manifest.json"
    assert pairs.main(["--config", tiny.config("align.pairs"), "--pairs", str(questions), "--manifest", str(out)]) == 0
    return out


def test_scores_are_those_of_transformers(rewarding: Path, questions: Path, base_model: Path) -> None:
    pairs, template = read_pairs(questions, "train")
    scorer = RewardModel(rewarding, True, base_model.parent / "model", template, "key")
    asked = [(row["question"], answer, None) for row in pairs[:20] for answer in (row["answer"], "", "no " * 99)]
    found = scorer.scores(asked)
    model = AutoModelForSequenceClassification.from_pretrained(rewarding.parent / "made/model", num_labels=1)
    for (question, answer, _), score in zip(asked, found, strict=True):
        ids = scorer.tokenizer(template.prompt(question) + template.completion(answer))["input_ids"][: tiny.CONTEXT]
        with torch.no_grad():
            assert score == pytest.approx(float(model(torch.tensor([ids])).logits), abs=1e-5)
    assert not any(parameter.requires_grad for parameter in scorer.model.parameters()) and not scorer.model.training
    assert scorer.scores(asked[:7]) == pytest.approx(found[:7], abs=1e-5)


def test_what_cannot_judge_is_named(rewarding: Path, questions: Path, base_model: Path, tmp_path: Path) -> None:
    _, template = read_pairs(questions, "train")
    with pytest.raises(InputError, match=r"here: .* of 'pretrain\.train'; it must be one of 'align\.reward'"):
        RewardModel(base_model, True, base_model.parent / "model", template, "here")
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    with pytest.raises(InputError, match="its tokenizer has another vocabulary than this run's"):
        RewardModel(rewarding, True, tmp_path, template, "here")
    other = type(template).parse(template.text.replace("{answer}", "- {answer}"))
    with pytest.raises(InputError, match=r"questions of another finetune\.pairs\.template"):
        RewardModel(rewarding, True, base_model.parent / "model", other, "here")


def test_a_model_learns_what_the_reward_model_likes(
    rewarding: Path, base_model: Path, prompts: Path, tmp_path: Path
) -> None:
    """Two processes, each with the judge; the manifest says that it was read."""
    slowly = {"learning_rate": 0.003, "epochs": 10, "batch_size": 8, "generations": 8, "micro_batch": 8}
    made = arguments(base_model, prompts, tmp_path, **{**ONLINE, **slowly}, engine="torch", zero_stage=0)
    finished(launched([*made, "--rewards", str(rewarding)], 2))
    manifest = Manifest.read(tmp_path / "made.manifest.json")
    assert manifest.summary["heldout_reward_after"] > manifest.summary["heldout_reward_before"] + 0.03
    assert "align.reward made" in manifest.inputs
    shown = rows(tmp_path / "made/prompts.jsonl")
    assert all(isinstance(row["reward_after"], float) for row in shown)
    said = finished(launched(arguments(base_model, prompts, tmp_path / "without", **ONLINE)), 1)
    assert "align.train.rewards[0].name is 'made'; reward models that --rewards names: none" in said


@pytest.mark.long
@pytest.mark.parametrize("method", [ONLINE["method"], "ppo"])
def test_killed_and_resumed_gives_the_same_bytes(
    rewarding: Path, base_model: Path, prompts: Path, tmp_path: Path, method: str
) -> None:
    own = {**ONLINE, "method": method, "engine": "deepspeed", "zero_stage": 1}
    resumed_is_straight(base_model, prompts, tmp_path, 2, RESULTS, ("--rewards", str(rewarding)), **own)


def test_it_judges_answers_that_preferences_are_made_of(
    rewarding: Path, base_model: Path, questions: Path, tmp_path: Path
) -> None:
    """By the manifest of another run, which is no input of this one."""
    from crawl2llm.stages.align import pairs

    changes = {"from": "base", "rewards": [{"reward": "model", "manifest": str(rewarding)}], "answers": 4}
    config = tiny.config("align.pairs", **changes, max_new_tokens=8, threads=1)
    out = tmp_path / "manifest.json"
    options = ["--config", config, "--pairs", str(questions), "--model", str(base_model), "--manifest", str(out)]
    assert pairs.main(options) == 0
    found, template = read_rows(out, "train")
    scorer = RewardModel(rewarding, False, base_model.parent / "model", template, "key")
    scores = [scorer.scores([(row["question"], row[name], None) for row in found]) for name in ("chosen", "rejected")]
    assert len(found) > 10 and all(good > bad for good, bad in zip(*scores, strict=True))
    assert "align.reward made" not in Manifest.read(out).inputs


def test_the_same_answer_twice_is_no_preference(
    rewarding: Path, base_model: Path, questions: Path, tmp_path: Path
) -> None:
    """More answers than are judged together, nearly all alike: equal texts are worth the same, whatever they are judged beside."""
    from crawl2llm.stages.align import pairs

    changes = {"from": "base", "rewards": [{"reward": "model", "manifest": str(rewarding)}], "answers": 33}
    config = tiny.config(
        "align.pairs", **changes, temperature=0.001, max_new_tokens=6, threads=1, max_train=20, max_heldout=5
    )
    out = tmp_path / "manifest.json"
    options = ["--config", config, "--pairs", str(questions), "--model", str(base_model), "--manifest", str(out)]
    assert pairs.main(options) == 0
    found = [row for name in ("train", "heldout") for row in read_rows(out, name)[0]]
    assert not [row for row in found if row["chosen"] == row["rejected"]]
    assert Manifest.read(out).counts["dropped"]["tied"]
