"""Muon: updates are orthogonal, and those of a plain loop; its state goes through a checkpoint."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, engine, model
from crawl2llm.training.muon import QUINTIC, STEPS, Muon, orthogonalize
from tests.unit.training.test_model import make_model
from tests.unit.training.typed import engine_settings, train_settings

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = engine_settings(optimizer="muon", muon_learning_rate=0.02, learning_rate=0.01)
MORE = [(2, "whole"), (3, "whole"), (2, "rows"), (3, "columns")]


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 8, 32), (2, 32, 8)])
def test_singular_values_are_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    found = torch.linalg.svdvals(orthogonalize(torch.randn(shape) * 1e-3))
    assert float(found.min()) > 0.5 and float(found.max()) < 1.3
    assert not orthogonalize(torch.zeros(shape)).any()


class Products(TorchDispatchMode):
    """The types of what is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ in ("mm", "bmm", "baddbmm", "addmm"):
            self.types |= {one.dtype for one in args if isinstance(one, torch.Tensor)}
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(3, 8, 32), (2, 32, 8)])
def test_in_bf16_every_product_is_and_the_update_is_nearly_the_same(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    with Products() as products:
        found = orthogonalize(matrices, torch.bfloat16)
    assert products.types == {torch.bfloat16} and found.dtype == torch.float32
    assert not orthogonalize(torch.zeros(shape), torch.bfloat16).any()
    exact = orthogonalize(matrices)
    assert float((found - exact).norm() / exact.norm()) < 0.05


def test_the_config_alone_says_in_which_precision() -> None:
    def moved(**changes: Any) -> tuple[set[torch.dtype], torch.Tensor]:
        built = make_model()
        settings = replace(SETTINGS, **changes)
        job = SimpleNamespace(settings=settings, empty_model=lambda: built)
        bare = SimpleNamespace(weights=lambda: dict(built.named_parameters()))
        optimizer = engine.Engine._build_optimizer(bare, job, fused=False)  # type: ignore[arg-type]
        torch.manual_seed(0)
        for parameter in built.parameters():
            parameter.grad = torch.randn_like(parameter)
        with Products() as products:
            optimizer.step()
        return products.types, next(p.detach() for n, p in built.named_parameters() if n.endswith("q_proj.weight"))

    (usual, exact), (low, found) = moved(), moved(muon_precision="bf16")
    assert usual == {torch.float32} and low == {torch.bfloat16}
    assert not torch.equal(exact, found) and torch.allclose(exact, found, atol=2e-3)


def test_groups() -> None:
    """Matrices inside the layers are turned; an untied head, embeddings and norms are AdamW's."""
    for tied in (True, False):
        built = make_model(tie_embeddings=tied)
        names = {id(parameter): name for name, parameter in built.named_parameters()}
        groups = model.parameter_groups(built, SETTINGS)
        turned = [group for group in groups if "momentum" in group]
        assert len(turned) == 1 and turned[0]["scale"] == 2.0 and turned[0]["weight_decay"] == 0.1
        found = {names[id(parameter)] for parameter in turned[0]["params"]}
        assert found == {name for name in names.values() if name.endswith("_proj.weight")}
        assert sum(len(group["params"]) for group in groups) == len(names)


def test_a_matrix_that_lies_the_other_way_round_moves_as_a_linear_layers_does() -> None:
    """GPT-2's layers hold [inputs, outputs]: the same gradient, transposed, is the same update, transposed."""
    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0)
    built = GPT2LMHeadModel(config)
    names = {id(parameter): name for name, parameter in built.named_parameters()}
    groups = model.parameter_groups(built, SETTINGS)
    torch.manual_seed(5)
    gradients = {name: torch.randn_like(parameter) for name, parameter in built.named_parameters()}
    before = {name: parameter.detach().clone() for name, parameter in built.named_parameters()}
    turned = [names[id(each)] for group in groups if "momentum" in group for each in group["params"]]
    assert sorted(name.split(".")[-2] for name in turned) == ["c_attn", "c_fc", "c_proj", "c_proj"]
    for name, parameter in built.named_parameters():
        parameter.grad = gradients[name]
    Muon(groups, lr=0.02).step()
    for name, parameter in built.named_parameters():
        if name in turned:
            expected = plain(before[name].T, [gradients[name].T], 0.02).T
            torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)


def plain(weight: torch.Tensor, gradients: list[torch.Tensor], rate: float) -> torch.Tensor:
    """Jordan et al.'s update, one matrix at a time."""
    mean = torch.zeros_like(weight)
    for gradient in gradients:
        mean = 0.95 * mean + 0.05 * gradient
        x = 0.05 * gradient + 0.95 * mean
        x = x / (x.norm() + 1e-7)
        if transposed := x.shape[0] > x.shape[1]:
            x = x.T
        a, b, c = QUINTIC
        for _ in range(STEPS):
            square = x @ x.T
            x = a * x + (b * square + c * square @ square) @ x
        x = x.T if transposed else x
        weight = weight * (1 - rate * 0.1) - rate * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5 * x
    return weight


def test_as_a_plain_loop_and_through_a_checkpoint() -> None:
    torch.manual_seed(1)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in ((8, 16), (16, 8), (8, 16), (5,))]
    before = [parameter.detach().clone() for parameter in parameters]
    gradients = [[torch.randn_like(parameter) for parameter in parameters] for _ in range(4)]

    def groups(own: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": own[:3], "weight_decay": 0.1, "momentum": 0.95}, {"params": own[3:], "weight_decay": 0.0}]

    optimizer = Muon(groups(parameters), lr=0.02)
    for step, found in enumerate(gradients):
        if step == 2:  # as from a checkpoint, with other objects
            state, parameters = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(parameters)
            optimizer = Muon(groups(parameters), lr=0.02)
            optimizer.load_state_dict(state)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient
        optimizer.step()
    for number in range(3):
        expected = plain(before[number], [found[number] for found in gradients], 0.02)
        torch.testing.assert_close(parameters[number].detach(), expected, rtol=1e-4, atol=1e-5)
    adam = nn.Parameter(before[3].clone())
    alone = torch.optim.AdamW([adam], lr=0.02, weight_decay=0.0)
    for found in gradients:
        adam.grad = found[3]
        alone.step()
    assert parameters[3].equal(adam)


PROCESS = """
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from crawl2llm.training import muon
rank, ranks, store, out, cut = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
if ranks > 1:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
muon.AT_ONCE = 128  # one matrix of 8 x 16 at a time in each process
torch.manual_seed(3)
torch.set_num_threads(1)
def placed(whole):
    if ranks == 1 or cut == "whole":
        return whole
    mesh = init_device_mesh("cpu", (ranks,))
    return distribute_tensor(whole, mesh, [Shard({"rows": 0, "columns": 1}[cut])], src_data_rank=None)
shapes = ((8, 16), (16, 8), (8, 16), (4, 4), (16, 8), (16, 8), (16, 8))
weights = [torch.nn.Parameter(placed(torch.randn(shape))) for shape in shapes]
optimizer = muon.Muon([{"params": weights, "weight_decay": 0.1, "momentum": 0.95}], lr=0.02)
for _ in range(3):
    for number, (weight, shape) in enumerate(zip(weights, shapes)):
        weight.grad = placed(torch.randn(shape)) if number != 2 else None
    optimizer.step()
found = [getattr(weight, "full_tensor", lambda: weight)().detach() for weight in weights]
torch.save(found, f"{out}/{ranks}-{rank}.pt")
"""


@pytest.mark.parametrize(
    ("ranks", "cut"), [(3, "rows"), *(pytest.param(*case, marks=pytest.mark.long) for case in MORE)]
)
def test_processes_share_the_work_and_move_alike(tmp_path: Path, ranks: int, cut: str) -> None:
    """Fewer matrices than processes of a shape, one without a gradient, and processes without a row or a column, among them."""

    def run(ranks: int) -> list[list[torch.Tensor]]:
        command = [sys.executable, "-c", PROCESS]
        more = [str(tmp_path / "store"), str(tmp_path), cut]
        started = [subprocess.Popen([*command, str(rank), str(ranks), *more], cwd=ROOT) for rank in range(ranks)]
        try:
            assert [process.wait(timeout=900) for process in started] == [0] * ranks
        finally:
            for process in started:
                process.kill()
        return [torch.load(tmp_path / f"{ranks}-{rank}.pt", weights_only=True) for rank in range(ranks)]

    (alone,) = run(1)
    first, *others = run(ranks)
    for weight, expected in zip(first, alone, strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-6)
    for weights in others:
        assert all(map(torch.equal, weights, first)), "to the bit"


def test_no_gradient_no_move() -> None:
    weight = nn.Parameter(torch.ones(4, 4))
    optimizer = Muon([{"params": [weight], "weight_decay": 0.1, "momentum": 0.95}], lr=0.02)
    optimizer.step()
    assert weight.equal(torch.ones(4, 4)) and not optimizer.state


def test_not_with_zero_of_deepspeed() -> None:
    checks.check_optimizer(train_settings(optimizer="adamw", zero_stage=3))
    checks.check_optimizer(train_settings(optimizer="muon", zero_stage=3, engine="torch"))
    with pytest.raises(
        InputError, match=r"engine deepspeed, and .*zero_stage 1: .* set pretrain\.train\.engine to torch"
    ):
        checks.check_optimizer(train_settings(optimizer="muon", zero_stage=1))
