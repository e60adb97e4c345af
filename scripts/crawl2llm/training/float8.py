"""`precision: fp8`: the products of the decoder layers in eight bits, by torchao's float8 training; all else is as with bf16.

A product divides each of its tensors by its largest value, rounds it to eight bits (e4m3, gradients e5m2: Micikevicius et al. 2022,
https://arxiv.org/abs/2209.05433) and adds up in fp32; so do both products of its backward pass. A tensor has one scale. With a scale for
each row (torchao's `rowwise`) an H100 was slower, and `rowwise_with_gw_hp` of torchao 0.18.0 cannot be emulated on a CPU.

torchao has a folder of its own beside .venv: in .venv it would be imported, and print what it cannot load, in every program that uses
transformers.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import socket
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.training import gpus
from crawl2llm.training.checks import FP8, SECTION

if TYPE_CHECKING:
    import torch
    from torch import nn

VERSION = "0.18.0"  # of torchao; in envs/lock-fp8.txt
# Of a GPU that multiplies eight bits: Ada Lovelace (L40S); Hopper is 9.0 (torch, aten/src/ATen/native/cuda/Blas.cpp).
LEAST_CAPABILITY = (8, 9)
DIVISOR = 16  # of the sizes of such a product (the same file)
KEY = f"{SECTION}.precision is {FP8}"
REMEDY = f"set {SECTION}.precision to bf16"

TORCHAO = ExternalTool(
    key="fp8",
    name="torchao",
    cost="seconds, 26 MB",
    files=("torchao/__init__.py",),
    version=VERSION,
    has_version=lambda folder: (folder / f"torchao-{VERSION}.dist-info").is_dir(),
)


def has_torchao() -> bool:
    """Whether torchao of VERSION is in its folder, or installed beside torch; another version may round otherwise."""
    return not TORCHAO.problem() or any(
        each.version == VERSION for each in importlib.metadata.distributions(name="torchao")
    )


def check_torchao() -> None:
    """Raise InputError if torchao is not there: before a run."""
    if not has_torchao():
        raise InputError(f"{KEY}, and {TORCHAO.problem()}; or {REMEDY}")


def check_device(device: torch.device) -> None:
    """Raise InputError if this process has no torchao, or a device without products of eight bits."""
    import torch

    if device.type == "cpu":
        check_capability()
    else:
        check_capability(torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    check_torchao()  # after the device: without products of eight bits it would be installed for nothing


def check_precision(precision: str, name: str) -> None:
    """InputError for a precision of pretrain.train that a GPU of this name is known not to have. name: "" if none is known."""
    kind = gpus.find(name) if precision == FP8 else None
    if kind and not gpus.KINDS[kind.name].fp8:
        fitting = ", ".join(gpu for gpu, sheet in gpus.KINDS.items() if sheet.fp8)
        raise InputError(
            f"{KEY}, and {gpus.with_article(kind.name)} has no products of eight bits ({fitting} have): {REMEDY}"
        )


def check_capability(name: str = "", capability: tuple[int, int] | None = None) -> None:
    """Raise InputError if a device of this machine has no products of eight bits. capability: CUDA's, None for a CPU."""
    if capability is None or capability < LEAST_CAPABILITY:
        device_text = (
            "a CPU" if capability is None else f"{name}, of compute capability {capability[0]}.{capability[1]}"
        )
        raise InputError(
            f"{KEY}, and {socket.gethostname()} trains on {device_text}: products of eight bits need a GPU of capability "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]} or more (L40S, H100 and newer); {REMEDY}"
        )


def convert_layers(blocks: Iterable[nn.Module], tokens: int, emulate: bool) -> int:
    """Have the linear layers of decoder layers multiply in eight bits, in place; how many do. Parameters stay as they are.

    A GPU wants sizes that 16 divides; other layers stay in bf16. So do the head, whose errors go straight into the loss, and embeddings;
    and experts and routers of a mixture, which are no linear layers in transformers. tokens: of a micro-batch, over which the gradients of
    weights are added up: padded if 16 does not divide them. emulate: in fp32, of numbers that are rounded alike: for tests on a CPU.
    """
    from torch.nn import Linear

    check_torchao()
    float8 = _import_torchao()
    config = float8.Float8LinearConfig(pad_inner_dim=bool(tokens % DIVISOR), emulate=emulate)
    converted = linear = 0

    def fits(module: nn.Module, _: str) -> bool:
        nonlocal converted, linear
        if not isinstance(module, Linear):
            return False
        has_sizes = not module.in_features % DIVISOR and not module.out_features % DIVISOR
        converted, linear = converted + has_sizes, linear + 1
        return has_sizes

    for block in blocks:
        float8.convert_to_float8_training(block, module_filter_fn=fits, config=config)
    if not converted:
        raise InputError(
            f"{KEY}, and no layer of the model has two sizes that {DIVISOR} divides: change them, or {REMEDY}"
        )
    log.info("%d of %d linear layers multiply in eight bits", converted, linear)
    return converted


def _import_torchao() -> Any:
    """torchao.float8. What it says of libraries that it cannot load, and that this needs none of, is left out."""
    folder = None if TORCHAO.problem() else str(TORCHAO.folder())
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    if folder:
        sys.path.insert(0, folder)  # before another version
    try:
        return importlib.import_module("torchao.float8")
    finally:
        logging.disable(before)
        if folder:  # it has a package `test`
            sys.path.remove(folder)
