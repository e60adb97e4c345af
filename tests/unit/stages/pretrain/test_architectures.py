"""Architectures beside the Llama's: built from keys that are auto, trained by both ways of counting, exported, loaded, run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from crawl2llm.core.errors import InputError
from crawl2llm.training import engine, initial, model, routers
from crawl2llm.training.auto import AUTO, resolve_shape
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.pretraining_settings import TrainModel
from tests.unit.training.typed import engine_settings

EXPERTS = {"num_experts_per_tok": 2}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {},
    "qwen3": {},
    "mixtral": {"num_local_experts": 4, **EXPERTS},
    "olmoe": {"num_experts": 4, **EXPERTS},
    "glm4_moe": {"n_routed_experts": 4, "moe_intermediate_size": 16, "first_k_dense_replace": 0, **EXPERTS},
    "mamba": {"state_size": 4},
    "mamba2": {"state_size": 4, "chunk_size": 8},
}
VOCABULARY, CONTEXT = 64, 16


def configured(kind: str, **changes: Any) -> Any:
    """The configuration of a small model whose heads and feed-forward width are auto."""
    keys = {"type": kind, "hidden_size": 32, "layers": 2, "context": CONTEXT, "overrides": KINDS[kind]} | changes
    wanted = TrainModel.model_validate(keys)
    made = resolve_shape(wanted, 100_000)
    return model.build_config(made, VOCABULARY, 0, {key for key, value in wanted if value == AUTO})


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("group") / "file"
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def trained(config: Any, steps: int = 8, **changes: Any) -> tuple[Torch, list[engine.Update]]:
    """An engine after some updates on the same batch."""
    train = engine_settings(**{"learning_rate": 0.01, "zero_stage": 0, "precision": "fp32", **changes})
    job = engine.Job(
        config=config,
        settings=train,
        device=torch.device("cpu"),
        micro_batch=2,
        accumulation=2,
        recomputed=False,
        values=lambda: initial.random_weights(config, 1),
    )
    made = Torch(job)
    tokens = torch.randint(0, VOCABULARY, (2, 2, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    return made, [made.step(tokens, 0.01) for _ in range(steps)]


@pytest.mark.parametrize("kind", KINDS)
def test_trains_exports_loads_and_generates(kind: str, tmp_path: Path) -> None:
    balanced = {"engine": "torch", "router_bias_rate": 0.01} if kind == "glm4_moe" else {}
    made, updates = trained(configured(kind), **balanced)
    losses = [float(update.loss) for update in updates]
    assert all(update.applied for update in updates) and losses[0] - losses[-1] > 0.3, losses
    mixture = kind in ("mixtral", "olmoe")
    assert bool(balanced) == any(bias.any() for bias in routers.selection_biases(made.model).values())
    assert all((update.balance is not None) == mixture for update in updates)
    folder = tmp_path / "model"
    model.export(dict(made.master_weights()), made.model.config, "fp32", [], folder)
    loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert loaded.config.use_cache and loaded.generation_config.use_cache
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "a file that others may not read"
    tokens = torch.arange(12)[None] % VOCABULARY
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits, made.model.eval()(tokens, use_cache=False).logits)
        assert loaded.generate(tokens, max_new_tokens=3, do_sample=False).shape == (1, 15)


def test_the_routers_loss_trains_the_routers_and_is_not_in_the_loss() -> None:
    found = []
    for weight in (0.0, 1.0):
        config = configured("olmoe", overrides=KINDS["olmoe"] | {"router_aux_loss_coef": weight})
        made, updates = trained(config, 1)
        routers = [value for name, value in made.model.named_parameters() if name.endswith("gate.weight")]
        found.append((float(updates[0].loss), float(updates[0].balance or 0), routers))  # type: ignore[arg-type]
    assert found[0][0] == found[1][0] and found[0][1] == found[1][1] == pytest.approx(
        2, abs=0.1
    )  # two experts of four a token
    assert len(found[0][2]) == 2 and not any(map(torch.equal, found[0][2], found[1][2]))


def test_of_a_mixture_the_experts_that_a_token_uses_are_multiplied() -> None:
    found = model.parameter_counts(initial.empty_model(configured("olmoe")))
    whole = model.parameter_counts(
        initial.empty_model(configured("olmoe", overrides=KINDS["olmoe"] | {"num_experts_per_tok": 4}))
    )
    assert found["total"] == whole["total"] and found["multiplied"] < whole["multiplied"]


def test_z_loss_keeps_the_softmax_s_denominator_down() -> None:
    tokens, found = torch.arange(CONTEXT)[None], []
    for weight in (0.0, 0.1):
        made, _ = trained(configured("llama"), z_loss=weight)
        with torch.no_grad():
            found.append(float(made.model(tokens).logits.logsumexp(-1).abs().mean()))
    assert found[1] < found[0] - 0.1, found  # ln 64 = 4.16 before


def test_a_mamba_takes_no_heads() -> None:
    """A key that is set is refused where the architecture has no such thing; the context never is."""
    with pytest.raises(InputError, match=r"model.heads: an architecture of type .mamba. has no.*set it to auto"):
        configured("mamba", heads=4)
    assert configured("mamba2", heads=8).num_heads == 8 and configured("mamba2", heads=8).head_dim == 8
