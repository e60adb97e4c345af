"""Routers in training: the loss of their logits and the biases against computations without the engine, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import AutoConfig

from crawl2llm.core import atomic_folder
from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint, export, initial, metrics, routers
from crawl2llm.training.batch import IGNORE
from crawl2llm.training.callbacks.expert_load import ExpertLoad
from crawl2llm.training.engines import torch_files
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.prediction import count
from crawl2llm.training.run_state import RunState
from tests.unit.training.test_mixture import SHAPE, configured, made
from tests.unit.training.typed import engine_settings

BALANCED = "glm4_moe"
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


# Types whose routers give no logit for each expert alone.
OTHERS: dict[str, dict[str, Any]] = {
    "doge": {"is_moe": True, "num_experts": 16, "num_experts_per_tok": 2},
    "longcat_flash": {
        "num_layers": 1, "n_routed_experts": 4, "zero_expert_num": 2, "moe_topk": 2, "expert_ffn_hidden_size": 16, "ffn_hidden_size": 32,
        "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "head_dim": 8,
    },
}  # fmt: skip


def configured_other(kind: str) -> Any:
    return AutoConfig.for_model(kind, **SHAPE | OTHERS[kind])


def tokens(seed: int, micro_batches: int = 2) -> torch.Tensor:
    return torch.randint(1, 64, (micro_batches, 2, 17), generator=torch.Generator().manual_seed(seed))


def plain(kind: str) -> Any:
    """The model without an engine, with the same initial weights."""
    config = configured(kind)
    return initial.fill_model(initial.empty_model(config, "cpu"), CPU, initial.random_weights(config, 1))


def gradients_of(engine: Torch, batch: Any) -> tuple[float, dict[str, torch.Tensor]]:
    """(mean square of the log-denominators, the gradient) of a step that makes no update."""
    kept: dict[str, torch.Tensor] = {}

    def keep(*_: Any) -> tuple[float, bool]:
        kept.update(
            {name: value.grad.clone() for name, value in engine.model.named_parameters() if value.grad is not None}
        )
        return 1.0, False

    engine._update = keep  # type: ignore[method-assign, assignment]
    return float(engine.step(batch, 0.0).router_z), kept  # type: ignore[arg-type]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["mixtral", "olmoe", BALANCED])
def test_the_loss_of_logits_is_that_of_the_paper(kind: str, padded: bool) -> None:
    """The mean over tokens and layers of the square of log Σ exp, of those tokens that are no padding; with its gradient."""
    config = configured(kind, **({"router_aux_loss_coef": 0.0} if kind != BALANCED else {}))
    inputs, targets = tokens(0, 1)[0, :, :-1], tokens(0, 1)[0, :, 1:].clone()
    batch: Any = tokens(0, 1)
    if padded:
        targets[0, 9:] = IGNORE
        batch = [(inputs, targets)]
    weight = 0.5
    value, found = gradients_of(made(config, router_z_loss=weight), batch)
    model = plain(kind)
    seen: list[torch.Tensor] = []
    for name, module in model.named_modules():
        if name.endswith(".gate"):
            module.register_forward_hook(lambda _, args, output: seen.append(output[0]))
    logits = model(inputs, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    rows = (targets != IGNORE).flatten()
    squares = [part[rows].exp().sum(-1).log() ** 2 for part in seen]
    expected = torch.stack([part.mean() for part in squares]).mean()
    (loss + weight * expected).backward()
    assert len(seen) == 2 and value == pytest.approx(float(expected.detach()), rel=1e-5)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_biases_move_by_the_sign_of_what_each_expert_lacks() -> None:
    """Of all micro-batches of a step together; a step that is left out moves none."""
    engine = made(configured(BALANCED), router_bias_rate=0.125)
    gates = [module for name, module in engine.model.named_modules() if name.endswith(".gate")]
    chosen: list[list[int]] = [[], []]
    for number, gate in enumerate(gates):
        gate.register_forward_hook(
            lambda _, args, output, place=number: chosen[place].extend(output[2].flatten().tolist())
        )
    expected = [[0.0] * 4 for _ in gates]
    for step in range(4):
        before = [gate.e_score_correction_bias.tolist() for gate in gates]
        chosen[:] = [[], []]
        applied = engine.step(tokens(step), 0.01, None if step != 2 else lambda loss, norm: False).applied
        after = [gate.e_score_correction_bias.tolist() for gate in gates]
        assert applied == (step != 2) and (step != 2 or before == after)
        for biases, choices in zip(expected, chosen, strict=True):
            assert len(choices) == 2 * 2 * 16 * 2
            for expert in range(4) if applied else ():
                lack = len(choices) / 4 - choices.count(expert)
                biases[expert] += 0.125 * ((lack > 0) - (lack < 0))
        assert after == expected
    assert any(map(any, expected))


@pytest.mark.parametrize("zero", [0, 3])
def test_a_checkpoint_has_the_biases(zero: int, tmp_path: Path) -> None:
    """What goes on from it is what would have gone on, to the byte."""
    changes = {"router_bias_rate": 0.01, "zero_stage": zero, "precision": "bf16"}
    engine, again = made(configured(BALANCED), **changes), made(configured(BALANCED), **changes)
    engine.step(tokens(0), 0.01)
    engine.save(tmp_path / "step")
    state = again._checkpoint_state()
    torch_files.read_state(state, state.keys(), tmp_path / "step", tmp_path)
    for each in (engine, again):
        each.step(tokens(1), 0.01)
    left, right = dict(engine.master_weights()), dict(again.master_weights())
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    biases = [value for name, value in left.items() if name.endswith(routers.BIAS)]
    assert len(biases) == 2 and any(value.any() for value in biases)


def test_choices_are_counted_once_and_padding_is_not() -> None:
    engine = made(configured("mixtral"))
    assert engine.routers is not None
    inputs, targets = tokens(0, 1)[0, :, :-1], tokens(0, 1)[0, :, 1:].clone()
    targets[0, 9:] = IGNORE
    engine.step([(inputs, targets)], 0.01)
    engine.evaluate(inputs, targets)
    assert [sum(row) for row in engine.routers.take_load()] == [(9 + 16) * 2] * 2
    assert engine.routers.take_load() == [[0] * 4] * 2 and engine.routers.load_measures([[0] * 4] * 2) == {}


def test_a_step_asks_for_no_value() -> None:
    """Fake tensors have none; and the experts' products are grouped, as of bf16 weights."""
    dist.destroy_process_group()
    try:
        settings = engine_settings(
            engine="torch",
            zero_stage=0,
            precision="bf16",
            learning_rate=0.01,
            warmup=0.0,
            router_z_loss=1e-3,
            router_bias_rate=1e-3,
        )
        names = Counter(each.name for each in count.count_step(configured(BALANCED), settings, 2, 32))
    finally:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert names["_grouped_mm"] == 2 * 2 * 3 and not any("fallback" in name for name in names)


def test_types_that_give_logits_alone_are_counted_too() -> None:
    """llama4_text: the experts are those of the largest logits."""
    engine = made(configured("llama4_text"))
    engine.step(tokens(0), 0.01)
    assert engine.routers and [sum(row) for row in engine.routers.take_load()] == [2 * 2 * 16] * 2


def test_a_router_that_is_recorded_twice_is_counted_once() -> None:
    """jetmoe: a router of attention's experts and one of the layer's, in each of two layers."""
    engine = made(configured("jetmoe"))
    engine.step(tokens(0), 0.01)
    assert engine.routers and [sum(row) for row in engine.routers.take_load()] == [2 * 2 * 16 * 2] * 4


def test_a_key_that_needs_logits_is_refused_if_no_router_gave_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key the model trains."""
    monkeypatch.setattr(routers, "OTHER_OUTPUT_TYPES", ())
    made(configured_other("doge")).step(tokens(0), 0.01)
    with pytest.raises(
        InputError, match="no router of this model of type 'doge' gave a logit for each of its 16 experts"
    ):
        made(configured_other("doge"), router_z_loss=0.1).step(tokens(0), 0.01)


@pytest.mark.parametrize("zero", [0, 3])
def test_a_checkpoint_from_before_biases_were_saved_has_zeros(zero: int, tmp_path: Path) -> None:
    """And one that lacks more is refused for what else it lacks."""
    engine = made(configured(BALANCED), zero_stage=zero)
    state = engine._checkpoint_state()
    old = {key: value for key, value in state.items() if not key.endswith(routers.BIAS)}
    torch_files.write_state(old, tmp_path / "step")
    for bias in routers.selection_biases(engine.model).values():
        bias.fill_(1.0)
    torch_files.read_state(state, state.keys(), tmp_path / "step", tmp_path)
    assert not any(bias.any() for bias in routers.selection_biases(engine.model).values())
    with pytest.raises(InputError, match=r"another optimizer or model \(other is not in both"):
        torch_files.read_state(state, [*state, "other"], tmp_path / "step", tmp_path)


def test_the_export_of_such_a_checkpoint_has_zeros(tmp_path: Path) -> None:
    engine = made(configured(BALANCED))
    step = tmp_path / "step-000001"
    torch_files.write_state(
        {key: value for key, value in engine._checkpoint_state().items() if not key.endswith(routers.BIAS)}, step
    )
    engine.model.config.save_pretrained(step / "model")
    facts = checkpoint.Checkpoint(path=step, step=1, processes=1, zero_stage=0, settings="", code={}, engine="torch")
    atomic_folder.seal_folder(
        step,
        checkpoint.FACTS,
        {key: value for key, value in asdict(facts).items() if key != "path"},
        atomic_folder.sync_folder(step),
    )
    export.export_checkpoint(step, tmp_path / "exported", "fp32")
    found = load_file(tmp_path / "exported/model.safetensors")
    biases = [value for name, value in found.items() if name.endswith(routers.BIAS)]
    assert len(biases) == 2 and not any(value.any() for value in biases)
    assert torch.equal(found["lm_head.weight"], dict(engine.master_weights())["lm_head.weight"])


def test_rows_have_the_load_since_the_row_before(tmp_path: Path) -> None:
    engine = made(configured("mixtral"))
    assert engine.routers is not None
    with metrics.Recorder(tmp_path, 0, 0, tensorboard=False, wandb="disabled", project="", config={}) as recorder:
        callback, state = ExpertLoad(engine.routers, recorder, 2, 5, lambda step: step == 3), RunState()
        callback.before_training(state)
        for state.step in range(1, 6):
            engine.routers.since += torch.tensor([[state.step, 0, 0, 1], [1, 1, 1, 1]])
            callback.after_step(state)
            if state.step == 2:  # 3 + 2 tokens, of which the first expert has 3
                assert state.experts == {
                    "expert_load_max": 2.4, "idle_experts": 0.25, "expert_load_max/0": 2.4, "expert_load_max/1": 1.0,
                }  # fmt: skip
        assert state.experts["expert_load_max/0"] == round(5 * 4 / 6, 4)
    (row,) = metrics.read(tmp_path / metrics.METRICS)
    assert row == {"step": 3, "expert_load": [[6, 0, 0, 3], [3, 3, 3, 3]]}


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (BALANCED, ("deepspeed", 0.0, 0.0), "pretrain.train.engine is deepspeed"),
        ("mixtral", ("torch", 0.0, 0.1), "router_bias_rate is 0.1, and the routers of type 'mixtral' have no e_score"),
        (
            "llama",
            ("torch", 0.1, 0.0),
            "router_z_loss is 0.1, and transformers records no router's logits by expert in type 'llama'",
        ),
        (
            "doge",
            ("torch", 0.1, 0.0),
            "router_z_loss is 0.1, and transformers records no router's logits by expert in type 'doge'",
        ),
        (
            "longcat_flash",
            ("torch", 0.1, 0.0),
            "router_z_loss is 0.1, and the routers of type 'longcat_flash' choose among 6, of which 4",
        ),
        (
            "longcat_flash",
            ("torch", 0.0, 0.1),
            "router_bias_rate is 0.1, and the routers of type 'longcat_flash' choose among 6",
        ),
        ("llama", ("deepspeed", 0.0, 0.0), ""),
        ("mixtral", ("deepspeed", 0.1, 0.0), ""),
        (BALANCED, ("torch", 0.1, 0.1), ""),
    ],
)
def test_what_a_model_cannot_do_is_refused(kind: str, values: Any, words: str) -> None:
    model = initial.empty_model(configured_other(kind) if kind in OTHERS else configured(kind))
    if not words:
        return routers.check_routers(model, *values)
    with pytest.raises(InputError, match=words):
        routers.check_routers(model, *values)
