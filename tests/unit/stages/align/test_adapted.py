"""align.train of an adapter, and of logits in chunks: as plain loops over PEFT's and transformers' models; merged, resumed, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import checks, losses
from crawl2llm.stages.align.batches import Preferences
from crawl2llm.stages.align.settings import TrainSettings
from crawl2llm.training import adapters, initial
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.model_loading import load_model
from crawl2llm.training.pair_batches import tokenized_pairs
from tests.unit.stages.align import test_online, test_preferences
from tests.unit.stages.align.launching import RESULTS, arguments, launched, resumed_is_straight, rows
from tests.unit.stages.align.test_tracked import MODELS, config
from tests.unit.stages.finetune import tiny
from tests.unit.stages.finetune.words import MORE
from tests.unit.stages.pretrain.copies import finished

RATE = 0.02
CONFIG = {
    **test_preferences.CONFIG, **MORE["lora"], "adapter_targets": [], "method": "dpo", "engine": "torch", "zero_stage": 0,
}  # fmt: skip
ENGINE_SETTINGS = EngineSettings.of_tuning(TrainSettings(**CONFIG))
CASES = ["torch-0-3", "torch-3-8-17"]


def plain(base: Path, preferences: Path) -> list[float]:
    """A loop without any engine over PEFT's own model, whose reference is the model with the adapter off."""
    model, tokenizer = load_model(base.parent / "model")
    beginning = dict(
        adapters.weights_with_adapter(
            adapters.empty_model(model.config, ENGINE_SETTINGS, "here"), initial.random_weights(model.config, 0), 0
        )
    )
    adapted = PeftModel(model, adapters.lora_config(ENGINE_SETTINGS))
    own = [(name, value) for name, value in adapted.named_parameters() if value.requires_grad]
    with torch.no_grad():
        for name, value in own:
            value.copy_(beginning[name.removeprefix("base_model.model.")])
    batches = Preferences(preferences, tokenizer, TrainSettings(**CONFIG), 1, "dpo")
    moves = torch.optim.AdamW([value for _, value in own], lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)

    def logp(row: dict[str, Any], name: str) -> torch.Tensor:
        ((ids, scored, _),) = tokenized_pairs(
            [{"question": row["question"], "answer": row[name]}], batches.template, tokenizer, tiny.CONTEXT
        )
        logits = adapted(input_ids=torch.from_numpy(ids[None])).logits[0, -scored - 1 : -1]
        return logits.log_softmax(1).gather(1, torch.from_numpy(ids[-scored:])[:, None]).sum()

    made = []
    for step in range(1, batches.steps + 1):
        moves.param_groups[0]["lr"] = RATE * (1 - step / (batches.steps + 1))
        each = []
        for number in batches.step_indices(step):
            row = batches.rows[number]
            with torch.no_grad(), adapted.disable_adapter():
                before = logp(row, "chosen") - logp(row, "rejected")
            margin = logp(row, "chosen") - logp(row, "rejected") - before
            each.append(-torch.nn.functional.logsigmoid(test_preferences.BETA * margin))
        loss = torch.stack(each).mean()
        loss.backward()
        made.append(float(loss.detach()))
        torch.nn.utils.clip_grad_norm_([value for _, value in own], 1.0)
        moves.step()
        moves.zero_grad()
    return made


@pytest.mark.slow
def test_as_a_plain_loop_and_merged(base_model: Path, preferences: Path, tmp_path: Path) -> None:
    """With and without chunks of logits, sharded or not; the result is the base with the adapter's products added."""
    finished(launched(arguments(base_model, preferences, tmp_path, **CONFIG), 2, CASES=" ".join(CASES)))
    wanted = plain(base_model, preferences)
    for case in CASES:
        made = [row["loss"] for row in rows(tmp_path / case / "made/losses.jsonl")]
        # Sums in another order are amplified by what is learnt from them.
        assert made[:3] == pytest.approx(wanted[:3], abs=1e-5) and made == pytest.approx(wanted, rel=2e-3), case
        summary = Manifest.read(tmp_path / case / "made.manifest.json").summary
        assert 0 < summary["trained_parameters"] < 0.3 * summary["parameters"]
    out = tmp_path / CASES[0] / "made"
    base, _ = load_model(base_model.parent / "model")
    merged = PeftModel.from_pretrained(base, out / "adapter").merge_and_unload().state_dict()
    for name, value in load_file(out / "model/model.safetensors").items():
        assert torch.allclose(merged[name], value, atol=1e-6), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "case"), [("kto", "torch-0-3-5"), pytest.param("dpo", "deepspeed-1-3-40", marks=pytest.mark.long)]
)
def test_logits_in_chunks_give_the_same_losses(
    base_model: Path, preferences: Path, tmp_path: Path, method: str, case: str
) -> None:
    cases = [case.rpartition("-")[0], case]
    settings = {**test_preferences.CONFIG, "method": method}
    finished(launched(arguments(base_model, preferences, tmp_path, **settings), CASES=" ".join(cases)))
    whole, parts = ([row["loss"] for row in rows(tmp_path / one / "made/losses.jsonl")] for one in cases)
    assert parts[:3] == pytest.approx(whole[:3], abs=1e-5) and parts == pytest.approx(whole, rel=2e-3)
    assert parts[-1] != parts[0]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["lora", pytest.param("qlora", marks=pytest.mark.long)])
def test_an_adapter_takes_rewards(base_model: Path, questions: Path, tmp_path: Path, adapter: str) -> None:
    """GRPO; the reference is the model without the adapter, and no other copy is kept. Its first step is that of the whole model."""
    from crawl2llm.stages.align import pairs

    out = tmp_path / "prompts/manifest.json"
    assert pairs.main(["--config", tiny.config("align.pairs"), "--pairs", str(questions), "--manifest", str(out)]) == 0
    (tmp_path / "vowels.py").write_text(test_online.REWARD)
    settings = {
        **test_online.CONFIG,
        "method": "grpo",
        "rewards": [{"function": f"{tmp_path}/vowels.py:share"}],
        "epochs": 1,
    }
    cases = ["torch-0-5", f"torch-0-5-{adapter}"]
    finished(launched(arguments(base_model, out, tmp_path, **settings), CASES=" ".join(cases)))
    whole, own = ([row for row in rows(tmp_path / case / "made/metrics.jsonl") if "kl" in row] for case in cases)
    for name in ("loss", "reward", "kl", "answer_tokens") if adapter == "lora" else ():
        assert own[0][name] == pytest.approx(whole[0][name], abs=1e-5), name
    assert own[0]["kl"] == pytest.approx(0, abs=1e-6) and own[1]["kl"] > 1e-6 and own[-1]["kl"] > 0.001
    base, _ = load_model(base_model.parent / "model")
    place = tmp_path / cases[1] / "made"
    merged = PeftModel.from_pretrained(base, place / "adapter").merge_and_unload().state_dict()
    for name, value in load_file(place / "model/model.safetensors").items() if adapter == "lora" else ():
        assert torch.allclose(merged[name], value, atol=1e-6), name


def test_off_is_the_model_without_the_adapter(base_model: Path) -> None:
    plain, _ = load_model(base_model.parent / "model")
    settings = EngineSettings.of_tuning(TrainSettings(**MORE["lora"], adapter_targets=[]))
    given = adapters.weights_with_adapter(
        adapters.empty_model(plain.config, settings, "here"), iter(plain.named_parameters()), 0
    )
    made = initial.fill_model(
        adapters.empty_model(plain.config, settings, "here"), torch.device("cpu"), chain_buffers(plain, given)
    )
    with torch.no_grad():
        for name, value in made.named_parameters():
            if name.endswith(adapters.UP):
                value.fill_(0.1)
        ids = torch.arange(20)[None]
        with adapters.without_adapter(made):
            assert torch.allclose(made(ids).logits, plain(ids).logits, atol=1e-6)
        assert not torch.allclose(made(ids).logits, plain(ids).logits, atol=1e-2)


def chain_buffers(model: Any, given: Any) -> Any:
    """Values of a model's parameters, and then its buffers."""
    yield from given
    yield from model.named_buffers()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_killed_and_resumed_gives_the_same_bytes(
    base_model: Path, preferences: Path, tmp_path: Path, method: str
) -> None:
    settings = {**CONFIG, "method": method, "epochs": 6, "loss_chunk": 17, "zero_stage": 2}
    resumed_is_straight(base_model, preferences, tmp_path, 2, **settings)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("stage", "processes"), [(0, 1), (2, 2)])
def test_rewards_killed_and_resumed_give_the_same_bytes(
    base_model: Path, prompts: Path, tmp_path: Path, stage: int, processes: int
) -> None:
    """GRPO of an adapter: its checkpoint has no reference, which is the model without it, and the answers are drawn again."""
    (tmp_path / "vowels.py").write_text(test_online.REWARD)
    rewards = [{"function": f"{tmp_path}/vowels.py:share"}]
    own = {**MORE["lora"], "engine": "torch", "zero_stage": stage, "method": "grpo", "rewards": rewards}
    files = ("made/adapter/adapter_model.safetensors", *RESULTS)
    resumed_is_straight(base_model, prompts, tmp_path, processes, files, **{**test_online.CONFIG, **own})


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (
            {"loss_chunk": 8, "method": "grpo", "rewards": [{"reward": "exact"}]},
            r"loss_chunk is 8, which methods dpo and kto take",
        ),
        ({"loss_chunk": 8, "zero_stage": 3}, r"models\.dpo\.loss_chunk is 8, and zero_stage 3 of engine deepspeed"),
    ],
)
def test_chunks_that_cannot_be_are_named(own: dict[str, Any], why: str) -> None:
    made = config({"align.pairs.files": [{"path": "rows.jsonl"}]}, {**MODELS, "dpo": {**MODELS["dpo"], **own}})
    with pytest.raises(InputError, match=why):
        checks.check_alignment(made)


def test_log_probabilities_in_their_place_stay() -> None:
    given = torch.rand(2, 3)
    assert losses.target_logprobs(given, torch.zeros(2, 3, dtype=torch.int64)) is given
