"""align.train by ppo, on a small random model: as a loop over transformers' own models, by any engine; killed and resumed; refused."""

from __future__ import annotations

import copy
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import checks, reward_inputs
from crawl2llm.stages.align.functions import load_function as function_of
from crawl2llm.stages.align.online import Prompts
from crawl2llm.stages.align.settings import TrainSettings
from crawl2llm.training import sampling
from crawl2llm.training.end_tokens import answer_text
from crawl2llm.training.model_loading import load_model
from tests.unit.stages.align.launching import arguments, launched, resumed_is_straight, rows
from tests.unit.stages.align.test_online import CONFIG, REWARD
from tests.unit.stages.align.test_tracked import MODELS, config
from tests.unit.stages.pretrain.copies import finished

OWN = {**CONFIG, "method": "ppo", "learning_rate": 4e-3, "kl_coefficient": 0.1, "missing_end_penalty": 0.1}
SHOWN = ("loss", "reward", "kl", "answer_tokens", "policy_loss", "value_loss", "explained_variance", "clipped")
CASES = ["torch-0", "torch-3", "deepspeed-1", "deepspeed-3"]


@pytest.fixture(scope="session")
def rewards(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    file = tmp_path_factory.mktemp("reward") / "vowels.py"
    file.write_text(REWARD)
    return [{"function": f"{file}:share"}]


def plain(base: Path, pairs: Path, given: dict[str, Any], steps: int) -> list[dict[str, float]]:
    """What the first steps show, by a loop over single answers, with two models and an AdamW of torch."""
    settings = TrainSettings(**given)
    given = settings.model_dump()
    model, tokenizer = load_model(base.parent / "model")
    end = tokenizer.eos_token_id
    batches, reward = Prompts(pairs, tokenizer, settings, 1), function_of(given["rewards"][0]["function"], "here")
    reference = copy.deepcopy(model)
    values = AutoModelForSequenceClassification.from_config(reward_inputs.reward_config(model.config, end, "here"))
    values.base_model.load_state_dict(model.base_model.state_dict())
    torch.nn.init.zeros_(values.score.weight)
    every = [*model.parameters(), *values.parameters()]
    moves = torch.optim.AdamW(every, lr=given["learning_rate"], betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)

    def by(policy: Any, ids: list[int], answer: int) -> torch.Tensor:
        logits = policy(torch.tensor([ids])).logits[0, -answer - 1 : -1].log_softmax(1)
        return logits[range(answer), ids[-answer:]]

    def expected(ids: list[int], answer: int) -> torch.Tensor:
        return values.score(values.base_model(torch.tensor([ids]))[0])[0, -answer - 1 : -1, 0]

    shown = []
    for step in range(1, steps + 1):
        held = []
        for place, number in enumerate(batches.step_indices(step)):
            row = batches.rows[number]
            prompt = batches.prompt_ids(row)
            for answer in range(given["generations"]):
                draws = sampling.uniform_draws(0, ("answer", step, place, answer), given["max_new_tokens"])
                following = partial(sampling.next_logits, model)
                (answer_drawn,) = sampling.draw_together(
                    following, [prompt], torch.from_numpy(draws)[None], sampling.Choice(end)
                )
                drawn = answer_drawn.ids
                said = reward(row["question"], answer_text(tokenizer, drawn, ()), row.get("answer"))
                score = said - given["missing_end_penalty"] * (drawn[-1] != end)
                ids, many = prompt + drawn, len(drawn)
                with torch.no_grad():
                    before, far, value = by(model, ids, many), by(reference, ids, many), expected(ids, many)
                paid = [-given["kl_coefficient"] * float(a - b) for a, b in zip(before, far, strict=True)]
                paid[-1] += score
                ahead, better = 0.0, [0.0] * many
                for at in range(many - 1, -1, -1):
                    following_value = float(value[at + 1]) if at + 1 < many else 0.0
                    ahead = paid[at] + following_value - float(value[at]) + 0.95 * ahead
                    better[at] = ahead
                returns = [a + float(v) for a, v in zip(better, value, strict=True)]
                held.append((ids, many, before, far, value, better, returns, said))
        flat = [a for one in held for a in one[5]]
        mean, spread = statistics.mean(flat), math.sqrt(statistics.variance(flat) + 1e-8)
        paid_in_all = [a for one in held for a in one[6]]
        left = [a - float(v) for one in held for a, v in zip(one[6], one[4], strict=True)]
        ratios = torch.cat([one[3] - one[2] for one in held])
        found = dict.fromkeys(SHOWN, 0.0) | {
            "reward": statistics.mean(one[7] for one in held),
            "kl": float((ratios.exp() - ratios - 1).mean()),
            "answer_tokens": len(flat) / len(held),
            "explained_variance": 1 - statistics.pvariance(left) / statistics.pvariance(paid_in_all),
        }
        for _ in range(given["passes"]):
            first = second = torch.zeros(())
            clipped = 0
            for ids, many, before, _, value, better, returns, _ in held:
                worth = (torch.tensor(better) - mean) / spread
                ratio = (by(model, ids, many) - before).exp()
                first = first - torch.minimum(worth * ratio, worth * ratio.clamp(0.8, 1.2)).sum()
                clipped += int(((ratio - 1).abs() > 0.2).sum())
                now, target = expected(ids, many), torch.tensor(returns)
                near = value + (now - value).clamp(-given["value_clip"], given["value_clip"])
                second = second + torch.maximum((now - target) ** 2, (near - target) ** 2).sum() / 2
            loss = (first + given["value_coefficient"] * second) / len(flat)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(every, 1.0)
            moves.step()
            moves.zero_grad()
            own = (
                float(loss.detach()),
                float(first.detach()) / len(flat),
                float(second.detach()) / len(flat),
                clipped / len(flat),
            )
            for name, part in zip(("loss", "policy_loss", "value_loss", "clipped"), own, strict=True):
                found[name] += part / given["passes"]
        shown.append(found)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_any_engine_does_what_a_plain_loop_does(
    base_model: Path,
    prompts: Path,
    rewards: list[dict[str, str]],
    tmp_path: Path,
    processes: int,
) -> None:
    """Three steps of four updates. With two processes micro-batches, sums and shards are others, and what is shown is the same."""
    given = {**OWN, "rewards": rewards, "epochs": 0.3, "generations": 4, "batch_size": 3, "heldout_prompts": 4}
    cases = CASES if processes == 2 else CASES[:1]
    finished(launched(arguments(base_model, prompts, tmp_path, **given), processes, CASES=" ".join(cases)))
    wanted = plain(base_model, prompts, given, 3)
    assert (
        max(step["clipped"] for step in wanted) > 0
        and wanted[2]["explained_variance"] != wanted[0]["explained_variance"]
    )
    for case in cases:
        made = [row for row in rows(tmp_path / case / "made/metrics.jsonl") if "loss" in row]
        assert len(made) == 3
        for step, (row, other) in enumerate(zip(made, wanted, strict=True)):
            for name in SHOWN:
                assert row[name] == pytest.approx(other[name], abs=1e-5 * 10**step), (case, step, name)
        out = tmp_path / case / "made"
        whole, _ = load_model(out / "model")
        summary = Manifest.read(out.with_suffix(".manifest.json")).summary
        assert summary["parameters"] == sum(value.numel() for value in whole.parameters())
        assert not [name for name, _ in whole.named_parameters() if "value" in name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "stage", "processes"),
    [
        pytest.param("torch", 0, 1, marks=pytest.mark.long),
        pytest.param("torch", 2, 2, marks=pytest.mark.long),
        pytest.param("deepspeed", 1, 2, marks=pytest.mark.long),
        pytest.param("deepspeed", 0, 1, marks=pytest.mark.long),
        pytest.param("deepspeed", 3, 2, marks=pytest.mark.long),
    ],
)
def test_killed_and_resumed_gives_the_same_bytes(
    base_model: Path,
    prompts: Path,
    rewards: list[dict[str, str]],
    tmp_path: Path,
    engine: str,
    stage: int,
    processes: int,
) -> None:
    """The model of values and its optimizer are in the checkpoint: without them the steps after it would be others."""
    given = {**OWN, "rewards": rewards, "engine": engine, "zero_stage": stage, "heldout_prompts": 4}
    given["epochs"] = 1 if processes == 1 else 2
    resumed_is_straight(base_model, prompts, tmp_path, processes, **given)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("case", ["torch-0", "torch-3", "deepspeed-2"])
def test_rewards_rise_and_values_learn_to_expect_them(
    base_model: Path,
    prompts: Path,
    rewards: list[dict[str, str]],
    tmp_path: Path,
    case: str,
) -> None:
    given = {**OWN, "rewards": rewards, "kl_coefficient": 0.01, "value_coefficient": 0.5}
    finished(launched(arguments(base_model, prompts, tmp_path, **given), CASES=case))
    summary = Manifest.read(tmp_path / case / "made.manifest.json").summary
    assert summary["heldout_reward_after"] > summary["heldout_reward_before"] + 0.1
    made = [row for row in rows(tmp_path / case / "made/metrics.jsonl") if "loss" in row]
    assert statistics.mean(row["value_loss"] for row in made[-5:]) < 0.5 * made[0]["value_loss"]
    assert made[0]["kl"] == pytest.approx(0, abs=1e-6) and made[-1]["kl"] > 0.01


@pytest.mark.parametrize(
    ("own", "more", "why"),
    [
        ({"method": "ppo"}, {}, r"align\.train\.rewards is \[\]; method 'ppo' needs one or more"),
        (
            {"method": "ppo", "rewards": [{"reward": "exact"}], "adapter": "lora", "engine": "torch"},
            {},
            r"models\.dpo\.adapter is 'lora', and method ppo trains a model of values, whole",
        ),
        (
            {"method": "grpo", "rewards": [{"reward": "exact"}], "gamma": 0.9},
            {},
            r"models\.dpo\.gamma is 0\.9, which method ppo takes",
        ),
        ({"value_clip": 0.5}, {}, r"models\.dpo\.value_clip is 0\.5, which method ppo takes; method is 'dpo'"),
        (
            {"method": "ppo", "rewards": [{"reward": "exact"}], "loss_chunk": 8},
            {},
            r"models\.dpo\.loss_chunk is 8, which methods dpo and kto take",
        ),
        (
            {"method": "ppo", "rewards": [{"reward": "exact"}]},
            {"pretrain.train.model.type": "mixtral"},
            r"models\.dpo\.method is 'ppo', which takes no pretrain\.train\.model\.type 'mixtral'",
        ),
    ],
)
def test_what_cannot_be_is_named(own: dict[str, Any], more: dict[str, Any], why: str) -> None:
    made = config({"align.pairs.files": [{"path": "rows.jsonl"}], **more}, {**MODELS, "dpo": {**MODELS["dpo"], **own}})
    with pytest.raises(InputError, match=why):
        checks.check_alignment(made)


def test_one_answer_to_a_prompt_is_enough() -> None:
    own = {"method": "ppo", "rewards": [{"reward": "exact"}], "generations": 1, "gamma": 0.9, "passes": 1}
    checks.check_alignment(config(None, {**MODELS, "dpo": {**MODELS["dpo"], **own}}))
