"""benchmarks.gpu_training on a CPU: every contender that is here trains, and what is said of it adds up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from benchmarks import contenders, gpu_training, kernels
from crawl2llm.core.root import ROOT

NEEDED = ("torch", "transformers", "deepspeed")


def named(distribution: str) -> str:
    """As packages' own names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def absent() -> list[str]:
    """The modules of all that is installed here, but for NEEDED, what they require, and this project."""
    kept, asked = {"crawl2llm"}, list(NEEDED)
    while asked:
        name = named(asked.pop())
        if name not in kept and (found := [one for one in metadata.distributions() if named(one.name) == name]):
            kept.add(name)
            wanted = map(Requirement, found[0].requires or [])
            asked += [one.name for one in wanted if not one.marker or one.marker.evaluate({"extra": ""})]
    return [
        module for module, owners in metadata.packages_distributions().items() if not kept & set(map(named, owners))
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """(the JSON, what it printed) of a run without a GPU where nothing is installed but NEEDED and what they require."""
    without = absent()
    assert {"xxhash", "jsonschema", "pyarrow", "accelerate"} <= set(without) and "yaml" not in without
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def without(name, path=None, target=None):\n"
        f"    return None if name.split('.')[0] in {without!r} else find(name, path, target)\n"
        "PathFinder.find_spec = staticmethod(without)\n"
    )
    options = ["--rounds", "1", "--warmup", "1", "--steps", "5", "--only", "torch", "deepspeed", "plain", "--profile"]
    if "CRAWL2LLM_NANOGPT" in os.environ:
        options += ["nanogpt", "--nanogpt", os.environ["CRAWL2LLM_NANOGPT"]]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_training", *options, "--out", str(folder / "found.json")],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "found.json").read_text()), done.stdout


@pytest.mark.long
def test_every_contender_trains_without_the_projects_other_libraries(found: tuple[dict[str, Any], str]) -> None:
    result, said = found
    assert said.startswith("No GPU is here") and result["machine"]["gpu"] is None
    contenders = result["contenders"]
    tokens = result["plan"]["micro_batch"] * result["plan"]["context"]
    for name in ("torch", "deepspeed", "plain"):
        one = contenders[name]
        assert one["tokens_per_second"] == pytest.approx(tokens / one["step_seconds"], rel=1e-3) and one["mfu"] is None
        assert 0 < one["peak_memory_gib"] < 4 and f"| {name} |" in said
        assert sum(row["share"] for row in one["kinds"]) == pytest.approx(1, abs=0.01)
        kinds = {row["kind"] for row in one["kinds"]}
        assert {"matrix products", "attention"} <= kinds
    assert contenders["torch"]["parameters"] == contenders["plain"]["parameters"]
    # The same weights, tokens and updates in both engines; the others begin with weights of their own.
    assert contenders["torch"]["loss"] == pytest.approx(contenders["deepspeed"]["loss"], abs=1e-4)
    assert contenders["plain"]["loss"] == pytest.approx(contenders["torch"]["loss"], abs=0.3)


def test_a_key_that_there_is_not() -> None:
    assert contenders.completed({"zero_stage": 3}).zero_stage == 3
    with pytest.raises(SystemExit, match=r"--set zero_stages: no key of pretrain\.train"):
        contenders.completed({"zero_stages": 3})


def test_one_that_fails_is_said_and_the_status_is_not_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "nanogpt", "--nanogpt", str(tmp_path), "--rounds", "1", "--out", str(tmp_path / "x.json")]
    assert gpu_training.main(options) == 1
    assert "has no model.py" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="not among torch, deepspeed, plain"):
        gpu_training.main(["--only", "torchtitan"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "matrix products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align8>", "matrix products"),
        ("pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "attention"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("triton_poi_fused_mul_silu_3", "elementwise"),
        ("void (anonymous namespace)::softmax_warp_forward<float>", "loss"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("aten::mm", "matrix products"),
        ("something_new", "other"),
    ],
)  # fmt: skip
def test_kinds_of_kernels(name: str, kind: str) -> None:
    assert kernels.kind(name) == kind


def test_the_log_of_torchtitan() -> None:
    """Lines as its MetricsProcessor writes them, with colours; the warm-up is left out."""
    line = "\x1b[31mstep: {0:2}  \x1b[33mgrad_norm: 1.0  \x1b[36mmemory: {1}GiB(9.9%)  \x1b[34mtps: {2:,}  \x1b[36mtflops: 9"
    steps = [(1, 1.0, 10), (2, 7.5, 8000), (3, 8.25, 12000), (4, 8.0, 10000)]
    log = "\n".join(line.format(*step) for step in steps)
    options = ["--size", "tiny", "--context", "100", "--micro-batch", "2", "--warmup", "1", "--steps", "3"]
    plan = gpu_training.planned(gpu_training.parsed(options), "tiny", 1, gpu=True)
    found = gpu_training.titan_said(log, plan)
    assert found["seconds"] == 200 / 10000 and found["memory_bytes"] == 8.25 * 2**30
    assert gpu_training.titan_said("Traceback\nno such module", plan) == {"error": "Traceback\nno such module"}
