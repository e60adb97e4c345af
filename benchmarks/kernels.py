"""Where the time of a training step goes, by kind of kernel, from torch.profiler."""

from __future__ import annotations

import re
from typing import Any

# Kind: part of a kernel's name on a GPU, or of an operator's on a CPU; the first that is found counts. Names are those that cuBLAS,
# cuDNN, NCCL, Triton and ATen give their kernels.
KINDS = {
    "communication": r"nccl|gloo|c10d|all_?reduce|all_?gather|reduce_scatter",
    "attention": r"flash|fmha|sdpa|scaled_dot_product|attention|mem_eff",
    "matrix products": r"gemm|cutlass|nvjet|xmma|cublas|aten::(add)?mm$|aten::(add)?bmm|aten::matmul|mkldnn|sgemm|_mm_",
    "optimizer": r"multi_tensor|adam|foreach|aten::sqrt|aten::addcdiv",
    "loss": r"softmax|nll|cross_entropy|logsumexp",
    "embedding": r"embedding|index_select|indexing_backward",
    "norms": r"rms|layer_norm|native_norm|aten::pow|aten::rsqrt",
    "copies": r"memcpy|memset|copy|cat_?array|aten::cat|aten::zero_|fill",
    "reductions": r"reduce|triton_(red|per)|aten::sum|aten::mean",
    "elementwise": r"elementwise|vectorized|triton_poi|aten::(mul|add|silu|neg|div|exp|sub)",
}  # fmt: skip
OTHER = "other"


def kind(name: str) -> str:
    """The kind of a kernel or operator by its name."""
    return next((found for found, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE)), OTHER)


def profiler(cuda: bool) -> Any:
    """A profiler of the GPU's kernels, or of the CPU's operators."""
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])], acc_events=True)


def kinds(profile: Any, steps: int, cuda: bool) -> list[dict[str, Any]]:
    """Milliseconds and calls of a step by kind, the largest first, with its share and the longest names; of a GPU by its kernels alone."""
    found: dict[str, dict[str, Any]] = {}
    for one in profile.key_averages():
        on_device = str(one.device_type).endswith("CUDA")
        if on_device != cuda or (not cuda and not one.key.startswith(("aten::", "gloo", "mkldnn"))):
            continue  # on a GPU the CPU's operators count the same time again
        if one.is_user_annotation:
            continue  # what the time of kernels is written on: an optimizer's step, a compiled region, a gathering of FSDP's
        spent = (one.self_device_time_total if cuda else one.self_cpu_time_total) / 1000 / steps
        entry = found.setdefault(kind(one.key), {"milliseconds": 0.0, "calls": 0.0, "names": []})
        entry["milliseconds"] += spent
        entry["calls"] += one.count / steps
        entry["names"].append((spent, one.key))
    total = sum(entry["milliseconds"] for entry in found.values()) or 1.0
    rows = [
        {
            "kind": name,
            "milliseconds": round(entry["milliseconds"], 4),
            "share": round(entry["milliseconds"] / total, 4),
            "calls": round(entry["calls"], 1),
            "longest": [key[:100] for _, key in sorted(entry["names"], reverse=True)[:3]],
        }
        for name, entry in found.items()
    ]
    return sorted(rows, key=lambda row: -row["milliseconds"])
