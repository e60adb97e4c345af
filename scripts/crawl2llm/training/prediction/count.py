"""Counts the operations of a training step of the engine torch with fake tensors: no memory, no GPU, and no weights.

What is built is the very engine on the very model, with fewer layers; what it calls is recorded (operations.py). It imports torch.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from crawl2llm.training import engine, fused_cross_entropy, initial
from crawl2llm.training.checks import FP8
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines import torch as torch_engine
from crawl2llm.training.prediction.operations import ATTENTION, ELEMENTWISE, LOSS, OPTIMIZER, PRODUCTS, Operation

# Operations that move nothing: views that say so by their schema aside.
FREE = frozenset(
    (
        "device", "detach", "_unsafe_view", "is_same_size", "empty", "empty_like", "empty_strided", "resize_", "lift_fresh", "sym_size",
        "new_empty", "new_empty_strided", "_has_compatible_shallow_copy_type", "set_",
    )
)  # fmt: skip
OVERWRITES = frozenset(
    ["copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_", "zeros_like", "ones_like", "full_like", "zeros"]
)
LOOKS_UP = frozenset(("embedding", "gather", "index_select"))  # what is read of the table is as much as what is written


class Recorder(TorchDispatchMode):
    """Records the operations of a step. vocabulary: entries, by which the loss is known."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.operations: list[Operation] = []
        self.held: list[Any] = []  # storages, so that no number is used twice
        self.passes = self.layer = 0
        self.backward = self.update = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name == "_local_scalar_dense":
            return 1.0  # of the norm: what a value decides is not counted
        out = function(*args, **(kwargs or {}))
        if name in FREE or function.is_view or function.namespace in ("c10d", "_c10d_functional", "prim"):
            return out
        inputs = _sizes((args, kwargs or {}))
        results = _sizes(out)
        for argument, value in zip(function._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                results |= _sizes(value)
                if name in OVERWRITES:
                    inputs = {key: size for key, size in inputs.items() if key not in _sizes(value)}
        if name in LOOKS_UP:
            inputs = results
        elif name == "scatter_add_":
            inputs = results = _sizes(args[2])
        self.held += [
            _local(leaf).untyped_storage() for leaf in tree_leaves((args, out)) if isinstance(leaf, torch.Tensor)
        ]
        flops = _flops(function, name, args, kwargs or {}, out)
        part = self._part_of(name, flops, (args, out))
        single = bool(flops) and any(
            leaf.dtype == torch.float32 for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)
        )
        self.operations.append(
            Operation(
                part,
                flops,
                inputs,
                results,
                self.layer,
                self.backward or "backward" in name,
                single,
                _strided_bytes(args, out),
                _head(name, args),
                name,
            )
        )
        return out

    def _part_of(self, name: str, flops: float, values: Any) -> str:
        """The part of the step that an operation on `values` belongs to."""
        if self.update:
            return OPTIMIZER
        if "attention" in name:
            return ATTENTION
        if flops:
            return PRODUCTS
        return LOSS if self._is_of_logits(values) else ELEMENTWISE

    def _is_of_logits(self, values: Any) -> bool:
        return any(
            isinstance(leaf, torch.Tensor) and leaf.ndim > 1 and leaf.shape[-1] == self.vocabulary
            for leaf in tree_leaves(values)
        )

    def enter_layers(self, layers: list[Any]) -> None:
        """Have the operations of each layer say in which pass of which layer they are."""
        for block in layers:
            block.forward = _Marked(self, block.forward)


class _Marked:
    """A layer's forward pass, which marks what is in it, and the backward pass of its results."""

    def __init__(self, recorder: Recorder, forward: Any) -> None:
        self.recorder, self.forward = recorder, forward

    def __call__(self, hidden: torch.Tensor, *args: Any, **more: Any) -> Any:
        recorder, before = self.recorder, self.recorder.layer
        recorder.passes += 1
        recorder.layer = mine = recorder.passes
        if hidden.requires_grad:
            hidden.register_hook(lambda _: self._leave(mine))
        out = self.forward(hidden, *args, **more)
        recorder.layer = before
        first = out[0] if isinstance(out, tuple) else out
        if first.requires_grad:
            first.register_hook(lambda _: self._enter(mine))
        return out

    def _enter(self, number: int) -> None:
        self.recorder.layer = number

    def _leave(self, number: int) -> None:
        if self.recorder.layer == number:
            self.recorder.layer = 0


def _local(tensor: Any) -> torch.Tensor:
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def _sizes(values: Any) -> dict[int, int]:
    """Bytes by storage of the tensors in `values`; what is expanded is read once."""
    sizes: dict[int, int] = {}
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            tensor, number = _local(leaf), 1
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
                number *= size if stride else 1
            key = tensor.untyped_storage()._cdata
            sizes[key] = max(sizes.get(key, 0), number * tensor.element_size())
    return sizes


def _flops(function: Any, name: str, args: Any, kwargs: Any, out: Any) -> float:
    """Floating-point operations of a product or of attention; 0 of all else. Causal attention does half of the pairs."""
    if "attention" in name and "scaled_dot" in name:
        backward = "backward" in name
        query, key = args[1:3] if backward else args[:2]
        named = dict(zip((each.name for each in function._schema.arguments), args, strict=False)) | kwargs
        pairs = query.shape[2] * key.shape[2] / (2 if named.get("is_causal") else 1)
        return 4 * query.shape[0] * query.shape[1] * pairs * query.shape[3] * (2.5 if backward else 1)
    if name == "_grouped_mm":  # each row, or in a gradient of weights each column, belongs to one expert
        experts = out.shape[0] if out.ndim == 3 else 1
        return 2.0 * out.numel() / experts * args[0].shape[-1]
    if function.overloadpacket in flop_registry:
        return float(flop_registry[function.overloadpacket](*args, **kwargs, out_val=out))
    return 0.0


def _strided_bytes(args: Any, out: Any) -> int:
    """Bytes of a number of a result for which torch's kernel cannot take its tensors as rows of numbers: one is of another shape or order.

    0 for all others, and for sums.
    """
    if not isinstance(out, torch.Tensor):
        return 0
    tensors = [_local(leaf) for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    result = _local(out)
    if any(each.numel() > result.numel() for each in tensors):
        return 0
    rows = all(each.shape == result.shape and each.stride() == result.stride() for each in tensors)
    return 0 if rows else result.element_size()


def _head(name: str, args: Any) -> int:
    return int(args[1].shape[-1]) if "attention" in name else 0


class FakeTorch(torch_engine.Torch):
    """The engine torch for tensors without values."""

    def _sharding_mesh(self, job: engine.Job) -> DeviceMesh:
        with unset_fake_temporarily():  # a mesh compares its processes' numbers
            return super()._sharding_mesh(job)


class _Counted(FakeTorch):
    """Says when its backward pass and its update begin."""

    recorder: Recorder | None = None

    def _begin_micro_batch(self, last: bool) -> None:
        super()._begin_micro_batch(last)
        if self.recorder:
            self.recorder.backward = False

    def _backward(self, loss: torch.Tensor, last: bool) -> None:
        if self.recorder:
            self.recorder.backward = True
        super()._backward(loss, last)

    def _update(self, fits: Any) -> tuple[float | None, bool]:
        if self.recorder:
            self.recorder.layer, self.recorder.update = 0, True
        return super()._update(fits)


@contextlib.contextmanager
def fake_group(processes: int = 1) -> Iterator[None]:
    """This process as the first of a group whose calls do nothing; in the group that there is, if it has as many."""
    if dist.is_initialized() and dist.get_world_size() == processes:
        yield
        return
    dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def pieces_of_a_gpu(size: int = fused_cross_entropy.GPU_BYTES) -> Iterator[None]:
    """Logits of a CPU, which are counted here in the place of a GPU's, are taken apart as a GPU's are. size: bytes at once."""
    of_cpu = fused_cross_entropy.CACHE
    fused_cross_entropy.CACHE = size
    try:
        yield
    finally:
        fused_cross_entropy.CACHE = of_cpu


def count_step(
    config: Any,
    settings: EngineSettings,
    micro_batch: int,
    context: int,
    recomputed: bool = False,
    selective: bool = False,
) -> list[Operation]:
    """The operations of a step of one micro-batch, on one process of the engine torch, whose layers are not compiled.

    config: of transformers. Of fp8 those of bf16.

    Raises what the engine or torch's fake tensors raise: not every architecture can be run without values.
    """
    precision = "bf16" if settings.precision == FP8 else settings.precision
    job = engine.Job(
        config=config, settings=replace(settings, engine="torch", compile_layers=False, precision=precision), device=torch.device("cpu"),
        micro_batch=micro_batch, accumulation=1, recomputed=recomputed, selective=selective, values=lambda: iter(()),
        fill=lambda made, *_: made, build_model=lambda: initial.empty_model(config, "cpu"),
    )  # fmt: skip
    recorder = Recorder(config.vocab_size)
    with (
        warnings.catch_warnings(),
        fake_group(),
        pieces_of_a_gpu(),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        # The loss in pieces compares addresses, which are as good as any here.
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        built = _Counted(job)
        recorder.enter_layers(built.decoder_layers())
        tokens = torch.zeros(1, micro_batch, context + 1, dtype=torch.int64)
        built.recorder = recorder
        with recorder:
            built.step(tokens, settings.learning_rate)
    return recorder.operations
