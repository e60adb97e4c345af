"""Layers that are compiled: graphs by type of model, with recomputation, under DDP and under FSDP. What a GPU would run, on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig

from crawl2llm.training import engine, initial, layers
from crawl2llm.training.engines.torch import Torch
from tests.unit.stages.pretrain.test_engines import side_by_side
from tests.unit.training.typed import engine_settings

SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
    "use_cache": False,
}  # fmt: skip
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
GLM4 = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 0,
    "head_dim": 8,
}
MIXTURES = ("mixtral", "olmoe", "glm4_moe")
MORE: dict[str, dict[str, Any]] = {"gpt2": GPT2, "qwen3": {"head_dim": 8}, "glm4_moe": GLM4}
# 1: a process alone. 8: a group that exchanges nothing, of which DDP and FSDP know no better.
ALONE, EIGHT = 1, 8


def test_recomputation_is_switched_on_without_a_warning_in_the_table() -> None:
    """Under each name that transformers has had for it."""
    model = initial.empty_model(AutoConfig.for_model("llama", **SHAPE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layers.recompute_activations(model, selective=True)
    assert all(block.gradient_checkpointing for block in initial.decoder_layers(model))
    given: list[Any] = []
    older: Any = SimpleNamespace(gradient_checkpointing_enable=given.append)
    layers.recompute_activations(older, selective=False)
    assert given == [{"use_reentrant": False}]


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Any:
    torch.distributed.init_process_group("fake", rank=0, world_size=request.param, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The graphs, forward and backward, that a compiler was given; they run as they are."""
    given: list[Any] = []

    def keep(graph: Any, _: Any) -> Any:
        from functorch.compile import make_boxed_func

        given.append(graph)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    monkeypatch.setattr(layers, "BACKEND", aot_autograd(fw_compiler=keep, bw_compiler=keep))
    with torch._dynamo.config.patch(optimize_ddp=True):  # torch's default, whatever a test before has left
        yield given


def trained(kind: str, recomputed: bool = False, selective: bool = False, **changes: Any) -> list[tuple[Any, ...]]:
    """(loss, norm of the gradient, losses of the routers, load of experts) of two steps with a validation between them."""
    config = AutoConfig.for_model(kind, **SHAPE | MORE.get(kind, {}))
    settings = engine_settings(**{"engine": "torch", "zero_stage": 0, "learning_rate": 0.01, **changes})
    made = Torch(
        engine.Job(
            config=config,
            settings=settings,
            device=torch.device("cpu"),
            micro_batch=2,
            accumulation=2,
            recomputed=recomputed,
            selective=selective,
            values=lambda: initial.random_weights(config, 1),
        )
    )
    tokens = torch.randint(1, 64, (2, 2, 33), generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(2):
        update = made.step(tokens, 0.01)
        of_routers = [0.0 if value is None else float(value) for value in (update.balance, update.router_z)]
        load = chain(*made.routers.take_load()) if made.routers else ()
        losses.append((float(update.loss), update.norm, *of_routers, *load))
        made.evaluate(tokens[0, :, :20], tokens[0, :, 1:21])
    return losses


@pytest.mark.parametrize("group", [ALONE], indirect=True)
@pytest.mark.parametrize(
    ("kind", "recomputation"),
    [
        *((kind, (False, False)) for kind in ("llama", "gpt2", "qwen3", *MIXTURES)),
        ("llama", (True, True)),
        ("mixtral", (True, False)),
        ("mixtral", (True, True)),
    ],
)
def test_all_layers_are_one_graph(group: None, graphs: list[Any], kind: str, recomputation: tuple[bool, bool]) -> None:
    """Forward and backward, and the same numbers: those of a mixture's routers too, which transformers records inside of a layer."""
    changes = {"router_z_loss": 0.01} if kind in MIXTURES else {}
    wanted = trained(kind, *recomputation, **changes)
    assert not graphs and wanted == [pytest.approx(step, rel=1e-5) for step in trained(kind, **changes)]
    assert trained(kind, *recomputation, compile_layers=True, **changes) == [
        pytest.approx(step, rel=1e-5) for step in wanted
    ]
    assert len(graphs) == 2


@pytest.mark.parametrize("group", [EIGHT], indirect=True)
@pytest.mark.parametrize(("kind", "zero"), [("llama", 3), ("mixtral", 1)])
def test_fsdp_cuts_no_layer(group: None, graphs: list[Any], kind: str, zero: int) -> None:
    trained(kind, zero_stage=zero, precision="bf16", compile_layers=True)
    assert len(graphs) == 2


@pytest.mark.parametrize("group", [ALONE], indirect=True)
def test_compiled_experts_are_no_loop(group: None, graphs: list[Any]) -> None:
    """Which waits for the number of each expert's tokens: transformers takes it for products that are not in bf16."""
    trained("mixtral", precision="bf16", compile_layers=True)
    targets = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert any("_grouped_mm" in name for name in targets) and not any("fallback" in name for name in targets)


@pytest.mark.long
def test_ddp_cuts_no_layer(tmp_path: Path) -> None:
    """Its optimiser would, at the borders of its buckets: a group that exchanges nothing has none that it waits for."""
    side_by_side("compiled_under_ddp", 2, str(tmp_path))
    assert json.loads((tmp_path / "graphs.json").read_text()) == {"llama": 2, "mixtral": 2}


def test_only_parallel_experts_need_a_newer_transformers() -> None:
    """Below 5.22 there is no apply_expert_parallelism."""
    program = (
        "from transformers import PreTrainedModel\n"
        "from transformers.distributed import expert_parallel\n"
        "del expert_parallel.apply_expert_parallelism\n"
        "import crawl2llm.training.engines.torch"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[4])
