"""Kernels of a step by kind: what the profiler names beside them counts for nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch.autograd import DeviceType

from benchmarks import kernels


def event(key: str, microseconds: int, annotation: bool = False) -> Any:
    return SimpleNamespace(
        key=key,
        device_type=DeviceType.CUDA,
        self_device_time_total=microseconds,
        count=1,
        is_user_annotation=annotation,
    )


def test_annotations_are_no_kernels() -> None:
    """Of a GPU's events those of an optimizer's step, of a compiled region and of FSDP's gathering span kernels that are there too."""
    profile = SimpleNamespace(
        key_averages=lambda: [
            event("nvjet_tst_128x256", 600),
            event("void multi_tensor_apply_kernel", 100),
            event("Optimizer.step#AdamW.step", 100, True),
            event("Torch-Compiled Region: 0/0", 500, True),
            event("FSDP::all_gather (model.layers.0)", 40, True),
            event("ncclDevKernel_AllGather", 40),
        ]
    )
    found = {row["kind"]: row["milliseconds"] for row in kernels.kinds(profile, 1, True)}
    assert found == {"matrix products": 0.6, "optimizer": 0.1, "communication": 0.04}


def test_events_of_the_profiler_say_whether_they_are_annotations() -> None:
    import torch

    with kernels.profiler(False) as profile, torch.profiler.record_function("a step"):
        torch.ones(8, 8) @ torch.ones(8, 8)
    events = {one.key: one.is_user_annotation for one in profile.key_averages()}
    assert events["a step"] is True and events["aten::mm"] is False
    assert kernels.kinds(profile, 1, False)
