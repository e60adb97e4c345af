"""Methods of compress.quantize that pack four bits, and the environment of those that calibrate. Asked by the plan, before a training.

`TYPES` are the types of transformers whose tiny models were quantized, and gave the same logits here as in the library's own loader
(tests/unit/stages/compress/test_four_bit.py).
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.chain.locked_packages import QUANTIZE_LOCK, parse_pins
from crawl2llm.chain.model_registry import QUANTIZE_STEP
from crawl2llm.core.errors import InputError
from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.core.root import ROOT
from crawl2llm.training.quantized_sizes import BLOCK, GROUPS, LLAMA_LIKE

PACKED = ("int4", *model_registry.CALIBRATED_METHODS)  # whose layers training/packed_weights.py reads
TYPES = LLAMA_LIKE
PYTHON = "bin/python"  # in the environment's folder
INSTALLED = ".installed"  # there too: the lock that it was made of


def python_path(folder: Path) -> Path:
    """The environment's Python."""
    return folder / PYTHON


def has_locked_packages(folder: Path) -> bool:
    """Whether the environment in a folder is of the lock's packages."""
    installed, locked = (path.read_text(encoding="utf-8") for path in (folder / INSTALLED, ROOT / QUANTIZE_LOCK))
    return parse_pins(installed) == parse_pins(locked)


ENVIRONMENT = ExternalTool(
    key="quantize",
    name="the quantizers' environment",
    cost="some minutes, 1.5 GB",
    files=(INSTALLED,),
    programs=(PYTHON,),
    has_version=has_locked_packages,
    requirement=f"other packages than {QUANTIZE_LOCK}",
)


def check_methods(config: dict[str, Any]) -> None:
    """Raise InputError, naming key, value and what is allowed, for a model that cannot be quantized so."""
    kind = config["pretrain"]["train"]["model"]["type"]
    for name in model_registry.models_from_base(config, QUANTIZE_STEP):
        check_type(
            model_registry.section(config, QUANTIZE_STEP, name)["method"],
            kind,
            f"models.{name}.method",
            "pretrain.train.model.type",
        )


def check_type(method: str, kind: str, key: str, where: str) -> None:
    """Raise InputError if a method does not take models of a type. key, where: what method and type are called."""
    if method in PACKED and kind not in TYPES:
        raise InputError(
            f"{key} is {method!r}, which takes models of {where} {', '.join(TYPES)}, and it is {kind!r}: take int8"
        )


def check_shapes(config: dict[str, Any]) -> None:
    """Raise InputError for a model of whose linear layers, as pretrain.train.model has them, a method could quantize none.

    Not of one that was pruned: it has other sizes.
    """
    shape = config["pretrain"]["train"]["model"]
    sizes = {key: shape[key] for key in ("hidden_size", "intermediate_size")}
    if shape["type"] not in TYPES or not all(isinstance(size, int) for size in sizes.values()):
        return
    quantizing_steps = [
        (QUANTIZE_STEP, "method", "group_size"),
        ("finetune.train", "quantize_aware", "quantize_aware_group_size"),
    ]
    for step, method, group in quantizing_steps:
        for name in model_registry.models_from_base(config, step):
            settings = model_registry.section(config, step, name)
            if "compress.prune" in (
                model_registry.making_task(config, parent)[0] for parent in model_registry.ancestors(config, name)
            ):
                continue
            sizes_text = " and ".join(f"pretrain.train.model.{key}, {size}" for key, size in sizes.items())
            key = model_registry.key_path(config, step, name, method)
            if settings[method] == "nf4" and all(size % BLOCK for size in sizes.values()):
                raise InputError(
                    f"{key} is 'nf4', which takes layers with inputs in a multiple of {BLOCK}; {sizes_text}, are none: take int8"
                )
            if settings[method] in PACKED and all(size % settings[group] for size in sizes.values()):
                fitting = [
                    str(group_size) for group_size in GROUPS if any(not size % group_size for size in sizes.values())
                ]
                raise InputError(
                    f"{model_registry.key_path(config, step, name, group)} is {settings[group]}, and {sizes_text}, are no multiples of it: "
                    f"take {' or '.join(fitting) or f'int8 in {key}'}"
                )


def check_tools(config: dict[str, Any], present: Container[str] = ()) -> None:
    """Raise InputError if a model needs an environment that is not there. present: models that are made already."""
    for name in model_registry.models_made_by(config, QUANTIZE_STEP):
        if name not in present and model_registry.is_calibrated(config, name) and (why := ENVIRONMENT.problem()):
            method = model_registry.section(config, QUANTIZE_STEP, name)["method"]
            raise InputError(f"models.{name} is made by method {method}, and {why}")
