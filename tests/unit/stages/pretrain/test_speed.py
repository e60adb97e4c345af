"""What makes a step fast on a GPU, tested on a CPU and the meta device: the same numbers, no mask, no large tensor, no waiting."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, engine, initial, layers
from crawl2llm.training.batch import IGNORE
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.estimate.shape import Shape, selective_activations
from crawl2llm.training.fused_cross_entropy import cross_entropy, linear_cross_entropy
from tests.unit.stages.pretrain.runs import finish, rows
from tests.unit.stages.pretrain.test_engines import side_by_side
from tests.unit.training.typed import engine_settings, train_settings

VOCABULARY, CONTEXT, MICRO = 1024, 48, 2
CPU = torch.device("cpu")


class Seen(TorchDispatchMode):
    """Counts operators, the elements of the largest result, and the bytes of results that are still alive, but for those `given` before."""

    def __init__(self, *given: torch.Tensor) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.largest, self.alive = 0, 0
        self.known = {one.untyped_storage()._cdata for one in given}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.calls[function.overloadpacket.__name__] += 1
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
                self._hold(one.untyped_storage())
        return found

    def _hold(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.alive += size
            weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("group") / "file"
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def shape(kind: str = "llama", **changes: Any) -> Any:
    usual = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True, "use_cache": False,
    }  # fmt: skip
    return AutoConfig.for_model(kind, **usual | changes)


def built(
    config: Any = None, recomputed: bool = False, selective: bool = False, accumulation: int = 2, **changes: Any
) -> Torch:
    config = config or shape()
    settings = engine_settings(**{"learning_rate": 0.01, "zero_stage": 0, "precision": "fp32", **changes})
    values = lambda: initial.random_weights(config, 1)  # noqa: E731
    job = engine.Job(
        config=config,
        settings=settings,
        device=CPU,
        micro_batch=MICRO,
        accumulation=accumulation,
        recomputed=recomputed,
        selective=selective,
        values=values,
    )
    return Torch(job)


def batch(accumulation: int = 2) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (accumulation, MICRO, CONTEXT + 1), generator=torch.Generator().manual_seed(0))


def trained(made: Torch, steps: int = 3) -> list[tuple[float, float | None]]:
    return [(float(update.loss), update.norm) for update in (made.step(batch(), 0.01) for _ in range(steps))]


# The loss by pieces of the tokens


@pytest.mark.parametrize("rows_at_once", [1, 7, 64, 100])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_the_loss_by_pieces_has_the_gradients_of_the_whole(rows_at_once: int, bias: bool, z_loss: float) -> None:
    torch.manual_seed(0)
    hidden, head = torch.randn(64, 16), nn.Linear(16, 50, bias=bias)
    targets = torch.randint(0, 50, (64,))

    def whole(own: torch.Tensor) -> torch.Tensor:
        return cross_entropy(head(own), targets, z_loss)

    def gradients(by_pieces: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        own = hidden.clone().requires_grad_()
        head.zero_grad()
        loss = linear_cross_entropy(own, head, targets, z_loss, rows_at_once) if by_pieces else whole(own)
        (loss * 3).backward()
        return loss.detach(), [p.grad.clone() for p in (own, *head.parameters()) if p.grad is not None]

    (loss, found), (wanted_loss, wanted) = gradients(True), gradients(False)
    torch.testing.assert_close(loss, wanted_loss, rtol=1e-6, atol=1e-6)
    assert len(found) == len(wanted) == 2 + bias
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_under_autocast_it_computes_in_bf16_and_adds_up_in_fp32() -> None:
    torch.manual_seed(0)
    hidden, head, targets = torch.randn(256, 32), nn.Linear(32, 200, bias=False), torch.randint(0, 200, (256,))
    exact = torch.autograd.grad(functional.cross_entropy(head(hidden), targets), head.weight)[0]
    with torch.autocast("cpu", torch.bfloat16):
        plain = torch.autograd.grad(cross_entropy(head(hidden).float(), targets), head.weight)[0]
        found = torch.autograd.grad(linear_cross_entropy(hidden, head, targets, 0.0, 16), head.weight)[0]
    assert found.dtype == torch.float32
    wrong, usual = (found - exact).norm() / exact.norm(), (plain - exact).norm() / exact.norm()
    assert 0 < wrong < 1.2 * usual < 0.05


def test_no_array_of_all_logits_is_made() -> None:
    """At 4,096 tokens and a vocabulary of 50,304, on the meta device: bytes that are held after the forward pass, and the largest array."""
    tokens, vocabulary, width, at_once = 4096, 50304, 768, 512

    def plain(hidden: torch.Tensor, head: nn.Linear, targets: torch.Tensor, *_: Any) -> torch.Tensor:
        return cross_entropy(head(hidden).float(), targets)

    def held(loss_of: Any) -> tuple[int, int]:
        with torch.device("meta"):
            head = nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16)
            hidden = torch.empty(tokens, width, dtype=torch.bfloat16, requires_grad=True)
            targets = torch.empty(tokens, dtype=torch.int64)
        with Seen(hidden, targets, *head.parameters()) as seen:
            loss = loss_of(hidden, head, targets, 0.0, at_once)
            alive = seen.alive
            loss.backward()
        return alive, seen.largest

    (before, large), (after, small) = held(plain), held(linear_cross_entropy)
    assert large == tokens * vocabulary and small == max(at_once * vocabulary, width * vocabulary)
    # Before: logits in fp32, whose memory the gradient takes. After: the gradients of hidden states and head, in bf16.
    assert before >= 4 * tokens * vocabulary and after <= 2 * width * (tokens + vocabulary) + 1024
    assert before > 9 * after


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2", "mixtral"])
def test_an_engine_by_pieces_learns_the_same(kind: str) -> None:
    names = {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": CONTEXT,
        "resid_pdrop": 0,
        "embd_pdrop": 0,
        "attn_pdrop": 0,
    }
    config = shape(kind, **({} if kind != "gpt2" else names))
    whole, pieces = trained(built(config)), trained(built(config, loss_chunk=20))
    for (loss, norm), (wanted, wanted_norm) in zip(pieces, whole, strict=True):
        assert loss == pytest.approx(wanted, abs=2e-6) and norm == pytest.approx(wanted_norm, rel=1e-4)


def test_by_pieces_of_the_targets_that_count() -> None:
    """The same losses and norms where some targets count, and of a micro-batch none; what does not count never reaches the head."""
    inputs, targets = batch(3)[:, :, :-1], batch(3)[:, :, 1:].clone()
    targets[0, :, :30], targets[1, 0], targets[2] = IGNORE, IGNORE, IGNORE
    some = list(zip(inputs, targets, strict=True))
    whole, pieces = built(accumulation=3), built(accumulation=3, loss_chunk=20)
    for _ in range(3):
        wanted = whole.step(some, 0.01)
        with Seen() as seen:
            found = pieces.step(some, 0.01)
        assert float(found.loss) == pytest.approx(float(wanted.loss), abs=1e-5) and found.applied
        assert found.norm == pytest.approx(wanted.norm, rel=1e-4)
        assert seen.largest == VOCABULARY * 32  # of weights; logits would be larger
    assert MICRO * CONTEXT * VOCABULARY > VOCABULARY * 32


def test_validation_still_sees_logits() -> None:
    plain, pieces = built(), built(loss_chunk=20)
    tokens = batch()[0]
    torch.testing.assert_close(
        pieces.evaluate(tokens[:, :-1], tokens[:, 1:]), plain.evaluate(tokens[:, :-1], tokens[:, 1:])
    )


def test_a_model_that_changes_its_logits_is_refused() -> None:
    config = shape("gemma2", head_dim=8, final_logit_softcapping=30.0)
    with pytest.raises(InputError, match="changes its logits after the head"):
        built(config, loss_chunk=20).step(batch(), 0.01)


# Layers compiled one by one


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that a backend of dynamo was given; it runs them as they are."""
    found: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(layers, "BACKEND", backend)
    return found


def attentions(graph: Any) -> list[Any]:
    return [node for node in graph.graph.nodes if node.target is functional.scaled_dot_product_attention]


@pytest.mark.parametrize("recomputed", [False, True])
def test_compiled_layers_keep_flash_attention(graphs: list[Any], recomputed: bool) -> None:
    """Without a mask, causal, with fewer key than query heads: what the flash kernel needs. All layers share one graph."""
    eager = trained(built(recomputed=recomputed))
    assert not graphs
    found = trained(built(compile_layers=True, recomputed=recomputed))
    assert found == eager
    inside = [part for graph in graphs for part in graph.modules() if isinstance(part, torch.fx.GraphModule)]
    calls = [node for graph in inside for node in attentions(graph)]
    assert len(calls) == 1
    assert calls[0].kwargs.get("attn_mask") is None and len(calls[0].args) < 4
    assert calls[0].kwargs["is_causal"] is True and calls[0].kwargs["enable_gqa"] is True


def test_validation_compiles_nothing(graphs: list[Any]) -> None:
    made = built(compile_layers=True)
    trained(made, 1)
    before = len(graphs)
    for length in range(20, 40):
        tokens = batch()[0][:, :length]
        assert made.evaluate(tokens[:, :-1], tokens[:, 1:]).isfinite().all()
    trained(made, 1)
    assert len(graphs) == before


@pytest.mark.long
def test_compiled_by_inductor_it_learns_the_same() -> None:
    torch._dynamo.reset()
    eager, found = trained(built()), trained(built(compile_layers=True, loss_chunk=20))
    for (loss, norm), (wanted, wanted_norm) in zip(found, eager, strict=True):
        assert loss == pytest.approx(wanted, abs=1e-5) and norm == pytest.approx(wanted_norm, rel=1e-3)


@pytest.mark.parametrize("key", ["compile_layers", "selective_checkpointing"])
def test_layers_that_gather_weights_are_left_as_they_are(key: str) -> None:
    settings = train_settings(**{"zero_stage": 3, "activation_checkpointing": True, key: True})
    with pytest.raises(InputError, match=rf"{key} is true with .*engine deepspeed and .*zero_stage 3"):
        checks.check_layer_settings(settings)
    checks.check_layer_settings(settings.model_copy(update={"engine": "torch"}))
    checks.check_layer_settings(settings.model_copy(update={"zero_stage": 2}))


# Activations


def test_selective_checkpointing_computes_no_matrix_product_twice() -> None:
    def step(**options: bool) -> tuple[Counter[str], tuple[float, float | None]]:
        made = built(accumulation=1, **options)
        with Seen() as seen:
            update = made.step(batch(1), 0.01)
        return seen.calls, (float(update.loss), update.norm)

    none, plain = step()
    full, whole = step(recomputed=True)
    some, selective = step(recomputed=True, selective=True)
    assert plain == whole == selective  # to the bit
    heavy = "mm", "_scaled_dot_product_flash_attention_for_cpu"
    # Three layers of seven matrices and one attention; the last product of a layer is in no gradient, and torch stops before it.
    assert [full[name] - none[name] for name in heavy] == [18, 3]
    assert [some[name] - none[name] for name in heavy] == [0, 0]
    assert some["silu"] - none["silu"] == full["silu"] - none["silu"] == 3


def test_selective_checkpointing_keeps_less_than_all_and_more_than_none() -> None:
    """Bytes held after the forward pass."""

    def held(recomputed: bool, selective: bool) -> int:
        config = shape(num_hidden_layers=6, hidden_size=256, intermediate_size=768)
        model = built(config, recomputed, selective).model
        tokens = torch.zeros(4, CONTEXT, dtype=torch.int64)
        with Seen(tokens, *model.parameters()) as seen:
            found = model(input_ids=tokens, use_cache=False)
            return seen.alive - 4 * found.logits.numel()

    plain, some, none = held(False, False), held(True, True), held(True, False)
    assert none < 0.2 * plain and 1.5 * none < some < 0.6 * plain
    # What the memory of a process is estimated by: of the layers, beside what is around them.
    layers = Shape(
        parameters=0, layers=6, hidden=256, intermediate=768, vocabulary=VOCABULARY, context=CONTEXT, width=256, kv=128
    )
    estimate = selective_activations(layers, 4 * CONTEXT, 4)
    assert some - none == pytest.approx(6 * estimate - 6 * 4 * 4 * CONTEXT * 256, rel=0.05)


# The host


@pytest.mark.parametrize("options", [{}, {"loss_chunk": 16}, {"precision": "bf16"}])
def test_a_step_waits_once_for_the_device_and_makes_no_large_tensor(options: dict[str, Any]) -> None:
    """For the norm, whether the update is applied; any number of micro-batches wait for nothing."""
    for accumulation in (1, 4):
        made = built(accumulation=accumulation, **options)
        made.step(batch(accumulation), 0.01)
        with Seen() as seen:
            made.step(batch(accumulation), 0.01)
        assert seen.calls["_local_scalar_dense"] <= 1
        largest = 16 * VOCABULARY if "loss_chunk" in options else MICRO * CONTEXT * VOCABULARY
        assert seen.largest <= max(largest, VOCABULARY * 32)


# With several processes


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            {"engine": "torch", "zero_stage": 3, "precision": "bf16", "compile_layers": True}, marks=pytest.mark.long
        ),
        pytest.param({"zero_stage": 1, "compile_layers": True}, marks=pytest.mark.long),
        pytest.param({"engine": "torch", "zero_stage": 0, "precision": "bf16"}, marks=pytest.mark.long),
        pytest.param({"zero_stage": 3, "precision": "bf16"}, marks=pytest.mark.long),
    ],
)
def test_two_processes_learn_the_same(start: Any, tmp_path: Path, case: dict[str, Any]) -> None:
    plain = {key: value for key, value in case.items() if key != "compile_layers"}
    selective = str("engine" in case or case["zero_stage"] < 3).lower()
    options = ["--activation-checkpointing=true", f"--selective-checkpointing={selective}"]
    whole = start(tmp_path / "whole", 2, {**plain, "steps": 8})
    finish(whole)
    finish(start(tmp_path / "parts", 2, {**case, "steps": 8, "loss_chunk": 24}, *options))
    losses = [
        [row["loss"] for row in rows(tmp_path / name / "out/losses.jsonl") if "loss" in row]
        for name in ("parts", "whole")
    ]
    assert len(losses[0]) == 8
    assert losses[0] == pytest.approx(losses[1], abs=5e-3 if case.get("precision") else 2e-5)


@pytest.mark.slow
@pytest.mark.long
def test_gradients_are_added_up_in_fp32_where_that_is_asked_for(tmp_path: Path) -> None:
    """In bf16 under DeepSpeed, by what its collective calls carry; under stages 1 and 2 while the backward pass goes on."""
    side_by_side("reduced", 2, str(tmp_path))
    found = json.loads((tmp_path / "reduced.json").read_text())
    for stage in range(3):
        usual, exact = found[f"{stage}-auto"], found[f"{stage}-fp32"]
        assert "torch.bfloat16" in usual["seen"] and "torch.bfloat16" not in exact["seen"]
        assert exact["seen"]["torch.float32"] >= usual["seen"]["torch.bfloat16"]
        assert exact["losses"][-1][0] == pytest.approx(usual["losses"][-1][0], abs=2e-3)
    # Without rounding on the way all stages come to the same losses, which they do not by default.
    losses = {case: [loss for loss, _ in one["losses"]] for case, one in found.items()}
    assert losses["1-fp32"] == losses["2-fp32"] == losses["3-fp32"]
    assert losses["1-auto"] != losses["2-auto"] != losses["2-fp32"]
