"""GPTQ and AWQ: what they leave, by llm-compressor in its own environment; what packed weights mean; what is refused without it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from crawl2llm.chain import config as configuration
from crawl2llm.chain import locked_packages, model_registry
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core import free_memory
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import calibration, four_bit, quantize_tools
from crawl2llm.training import (
    compressible_layers,
    init_checks,
    memory,
    model_loading,
    packed_weights,
    quantization_grids,
)
from crawl2llm.training.pretraining_settings import TrainSettings
from tests.unit.stages.compress.conftest import needs_quantizers, quantized, tiny

pytestmark = pytest.mark.slow  # loads models
METHODS = ("gptq", "awq", "int4")
KEYS: dict[str, Any] = {"group_size": 32, "calibration_tokens": 2048, "threads": 1}
# In the other environment: the logits of a folder's model, by the loader that others use.
ELSEWHERE = """
import sys, numpy, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, local_files_only=True).eval()
with torch.no_grad():
    numpy.save(sys.argv[3], model(torch.from_numpy(numpy.load(sys.argv[2]))).logits.float().numpy())
"""


@pytest.fixture(scope="module", params=METHODS)
def made(
    request: pytest.FixtureRequest, base: Path, tokens: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """(name of the method, manifest of a model of it)."""
    folder = tmp_path_factory.mktemp(request.param)
    status, out = quantized(base, folder, request.param, tokens, method=request.param, **KEYS)
    assert status == 0
    return request.param, out


@needs_quantizers
def test_the_library_itself_computes_the_same(made: tuple[str, Path], base: Path, tmp_path: Path) -> None:
    _, out = made
    folder = model_loading.verify_weights(out)[1]
    model, _ = model_loading.load_model(folder)
    ids = torch.arange(1, 49).unsqueeze(0)
    np.save(tmp_path / "ids.npy", ids.numpy())
    command = [str(quantize_tools.python_path(quantize_tools.ENVIRONMENT.folder())), "-I", "-c", ELSEWHERE, str(folder)]
    subprocess.run([*command, str(tmp_path / "ids.npy"), str(tmp_path / "logits.npy")], check=True)
    with torch.no_grad():
        found = model(ids).logits
    assert torch.allclose(found, torch.from_numpy(np.load(tmp_path / "logits.npy")), atol=1e-4)
    before = AutoModelForCausalLM.from_pretrained(base.parent / "model")
    with torch.no_grad():
        wanted = before(ids).logits
    assert 1e-3 * wanted.norm() < (found - wanted).norm() < 0.4 * wanted.norm()


@needs_quantizers
def test_the_summary_is_true(made: tuple[str, Path], base: Path, tokens: list[Path]) -> None:
    method, out = made
    found, folder = model_loading.verify_weights(out)
    before = AutoModelForCausalLM.from_pretrained(base.parent / "model").eval()
    summary = found.summary
    own = load_file(folder / "model.safetensors")
    assert summary["quantized_layers"] == sum(name.endswith("weight_packed") for name in own) == 14
    assert summary["parameters"] == before.num_parameters()
    assert summary["bytes"] == (folder / "model.safetensors").stat().st_size < 0.4 * summary["bytes_before"]
    assert {value.dtype for value in own.values() if value.is_floating_point()} == {torch.bfloat16}
    assert any(name.endswith("weight_zero_point") for name in own) == (method == "awq")
    if method == "awq":  # its weights are scaled, and their inputs the other way
        assert not {"weight_error", "worst_layer", "worst_error"} & {*summary}
    else:
        model, _ = model_loading.load_model(folder)
        found_errors = {}
        for name in (name for name, _ in before.named_modules() if f"{name}.weight_packed" in own):
            whole, other = (one.get_submodule(name).weight.data for one in (before, model))
            found_errors[name] = float((other - whole).norm() / whole.norm())
        worst = max(found_errors, key=lambda name: found_errors[name])
        assert summary["worst_layer"] == worst and summary["worst_error"] == pytest.approx(
            found_errors[worst], rel=1e-4
        )
        assert min(found_errors.values()) <= summary["weight_error"] <= summary["worst_error"]
    ids = calibration.calibration_windows(tokens, tiny.CONTEXT, 2048, 0)
    if method != "int4":
        assert summary["calibration_tokens"] == ids.size == 2048
        assert summary["calibration_loss_before"] == pytest.approx(four_bit.mean_loss(before, ids), abs=1e-5)
    told = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert told["quant_method"] == "compressed-tensors" and told["ignore"] == ["lm_head"]
    assert not [path for path in out.parent.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


@needs_quantizers
def test_the_nearest_that_it_is_compared_with_is_what_int4_stores(
    base: Path, tokens: list[Path], tmp_path: Path
) -> None:
    """On the grid of gptq: the model that method int4 makes, with its scales and embeddings in bf16."""
    status, out = quantized(base, tmp_path, "gptq", tokens, method="gptq", **KEYS)
    assert status == 0
    status, nearest = quantized(base, tmp_path, "int4", method="int4", group_size=32)
    assert status == 0
    model, _ = model_loading.load_model(model_loading.verify_weights(nearest)[1])
    found = four_bit.mean_loss(model.eval(), calibration.calibration_windows(tokens, tiny.CONTEXT, 2048, 0))
    assert Manifest.read(out).summary["calibration_loss_nearest"] == pytest.approx(found, abs=2e-6)


@needs_quantizers
def test_the_same_bytes_again_where_the_place_is_relative(
    made: tuple[str, Path], base: Path, tokens: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a run, whose results are below its folder."""
    method, out = made
    monkeypatch.chdir(tmp_path)
    status, again = quantized(base, Path("results"), method, tokens, method=method, **KEYS)
    assert status == 0 and again.read_bytes() == out.read_bytes()


@needs_quantizers
def test_gptq_reconstructs_better_than_rounding(base: Path, tokens: list[Path], tmp_path: Path) -> None:
    """Of each linear layer: the squared error of its outputs on the inputs of the calibration, fp32 scales as round-to-nearest has."""
    status, out = quantized(base, tmp_path, "gptq", tokens, method="gptq", rest="same", **KEYS)
    assert status == 0
    model = AutoModelForCausalLM.from_pretrained(base.parent / "model").eval()
    after, _ = model_loading.load_model(model_loading.verify_weights(out)[1])
    ids = torch.from_numpy(calibration.calibration_windows(tokens, tiny.CONTEXT, 2048, 0))
    wrong: dict[str, tuple[float, float]] = {}

    def watch(name: str) -> Any:
        def seen(part: Any, given: Any, wanted: torch.Tensor) -> None:
            rounded = quantization_grids.round_int4(part.weight.data, 32)
            errors = [
                float((torch.nn.functional.linear(given[0], weight) - wanted).square().sum())
                for weight in (after.get_submodule(name).weight.data, rounded)
            ]
            wrong[name] = (errors[0], errors[1])

        return seen

    for name, part in model.named_modules():
        if isinstance(part, torch.nn.Linear) and name != "lm_head":
            part.register_forward_hook(watch(name))
    with torch.no_grad():
        model(ids)
    assert len(wrong) == 14
    for name, (found, nearest) in wrong.items():
        assert found < nearest, name
    assert sum(found for found, _ in wrong.values()) < 0.8 * sum(nearest for _, nearest in wrong.values())


@needs_quantizers
@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "mistral"])
@pytest.mark.parametrize("method", METHODS[:2])
def test_other_types_of_models(
    heldout: tuple[Path, Path], random_model: Any, tmp_path: Path, kind: str, method: str
) -> None:
    folder = random_model(kind)
    manifest = tmp_path / "manifest.json"
    Manifest("pretrain.train", "0" * 16).write(manifest, list(folder.iterdir()))
    status, out = quantized(manifest, tmp_path / "out", method, [heldout[1]], method=method, **KEYS)
    assert status == 0
    summary = Manifest.read(out).summary
    assert summary["quantized_layers"] == 14
    assert summary["calibration_loss"] == pytest.approx(summary["calibration_loss_before"], rel=0.2)


@needs_quantizers
def test_layers_that_stay_as_they_are(base: Path, tokens: list[Path], tmp_path: Path) -> None:
    """By `keep`, and by rows that are no whole groups: the model's are 64 and, of down_proj, 128."""
    keys = {**KEYS, "group_size": 128, "method": "gptq", "keep": ["layers.0"]}
    status, out = quantized(base, tmp_path, "wide", tokens, **keys)
    assert status == 0
    summary = Manifest.read(out).summary
    assert (summary["quantized_layers"], summary["unquantized_layers"]) == (1, 13)
    assert summary["notes"][0].startswith("13 linear layers are not quantized: model.layers.0.mlp.down_proj")
    model_loading.load_model(model_loading.verify_weights(out)[1])


@needs_quantizers
def test_what_was_packed_is_not_trained(
    made: tuple[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, out = made
    assert quantized(out, tmp_path, "again")[0] == 1
    assert "is quantized already" in capsys.readouterr().err
    train = TrainSettings(start_from=str(model_loading.verify_weights(out)[1]))
    with pytest.raises(InputError, match="its weights are quantized and cannot be trained"):
        init_checks.check_start_from(train, 1024)


def test_int4_needs_nothing_else(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights are those of the grid, and the summary has their error; the same bytes again."""
    monkeypatch.setenv(quantize_tools.ENVIRONMENT.variable, str(tmp_path))
    keys = {"method": "int4", "group_size": 32, "rest": "same"}
    (status, out), (_, again) = (quantized(base, tmp_path / name, "small", **keys) for name in "ab")
    assert status == 0 and out.read_bytes() == again.read_bytes()
    model, _ = model_loading.load_model(model_loading.verify_weights(out)[1])
    before = AutoModelForCausalLM.from_pretrained(base.parent / "model")
    squares = wrong = 0.0
    for name, part in before.named_modules():
        if isinstance(part, torch.nn.Linear) and name != "lm_head":
            own = model.get_submodule(name).weight.data
            assert torch.equal(own, quantization_grids.round_int4(part.weight.data, 32)), name
            squares = squares + float(part.weight.data.square().sum())
            wrong = wrong + float((own - part.weight.data).square().sum())
    summary = Manifest.read(out).summary
    assert 0 < summary["weight_error"] == pytest.approx((wrong / squares) ** 0.5, rel=1e-3)
    assert summary["method"] == "int4" and "calibration_tokens" not in summary


@pytest.mark.parametrize("method", METHODS)
def test_a_type_that_packed_weights_are_not_tried_with_is_refused(
    random_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    """GPT-2's matrices lie as inputs × outputs."""
    entry = {"from": "base", "step": "compress.quantize", "method": method}
    config = configuration.validate({"models": {"small": entry}})
    quantize_tools.check_methods(config)
    config["pretrain"]["train"]["model"]["type"] = "gpt2"
    with pytest.raises(
        InputError,
        match=rf"models.small.method is '{method}', which takes models of pretrain.train.model.type .* and it is 'gpt2': take int8",
    ):
        quantize_tools.check_methods(config)
    manifest = tmp_path / "manifest.json"
    Manifest("pretrain.train", "0" * 16).write(manifest, list(random_model("gpt2").iterdir()))
    assert quantized(manifest, tmp_path / "out", method=method, **KEYS)[0] == 1
    assert f"compress.quantize.method is '{method}', which takes models of config.json's" in capsys.readouterr().err


def test_the_memory_of_both_models_is_asked_for(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """int4 expands what it made into fp32 to measure it."""
    held = compressible_layers.weight_bytes(base.parent / "model")
    monkeypatch.setattr(free_memory, "available_bytes", lambda: int((memory.PROGRAM + 2 * held) / memory.TOLERANCE))
    assert quantized(base, tmp_path, "small", method="int4", group_size=32)[0] == 1
    assert "compress.quantize needs about" in capsys.readouterr().err
    assert quantized(base, tmp_path, "small")[0] == 0


def test_int4_takes_the_one_thread_that_the_rule_reserves(base: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert quantized(base, tmp_path, "small", method="int4", group_size=32, threads=2)[0] == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def words(numbers: np.ndarray) -> torch.Tensor:
    """Numbers from -8 to 7, [rows, columns], packed along the columns by the definition: bit 4·i of a word has number i."""
    rows, columns = numbers.shape
    found = np.zeros((rows, -(-columns // 8)), np.uint32)
    for column in range(columns):
        found[:, column // 8] |= (numbers[:, column] + 8).astype(np.uint32) << (4 * (column % 8))
    return torch.from_numpy(found.view(np.int32).copy())


def test_what_packed_weights_mean() -> None:
    random = np.random.default_rng(0)
    numbers, zeros = random.integers(-8, 8, (12, 64)), random.integers(-8, 8, (12, 2))
    scale = torch.from_numpy(random.random((12, 2), np.float32))
    parts = {"weight_packed": words(numbers), "weight_scale": scale, "weight_shape": torch.tensor([12, 64])}
    grouped = torch.from_numpy(numbers).float().unflatten(1, (2, 32))
    assert torch.equal(packed_weights.dequantize_layer(parts), (grouped * scale.unsqueeze(-1)).flatten(1))
    assert torch.equal(packed_weights.pack_numbers(torch.from_numpy(numbers)), words(numbers))
    parts["weight_zero_point"] = words(zeros.T).T
    wanted = (grouped - torch.from_numpy(zeros).unsqueeze(-1)) * scale.unsqueeze(-1)
    assert torch.equal(packed_weights.dequantize_layer(parts), wanted.flatten(1))
    with pytest.raises(ValueError, match="a layer of 12 × 64 has scales"):
        packed_weights.dequantize_layer({**parts, "weight_scale": scale[:8]})


def test_damaged_packed_weights_are_named(base: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(base.parent / "model", tmp_path / "model")
    told = json.loads((folder / "config.json").read_text())
    told["quantization_config"] = {"quant_method": packed_weights.METHOD, "format": packed_weights.FORMAT}
    (folder / "config.json").write_text(json.dumps(told))
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    scale = torch.ones(64, 4)
    tensors.pop(f"{name}.weight")
    tensors[f"{name}.weight_packed"] = torch.zeros(64, 16, dtype=torch.int32)
    tensors |= {f"{name}.weight_scale": scale, f"{name}.weight_shape": torch.tensor([64, 128])}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    model, _ = model_loading.load_model(folder)
    assert torch.equal(model.get_submodule(name).weight, torch.full((64, 128), -8.0))
    save_file({**tensors, f"{name}.weight_scale": scale[:, :3].clone()}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=f"{name} is not packed as pack-quantized says"):
        model_loading.load_model(folder)
    tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"its weights and config.json differ in model.norm.weight"):
        model_loading.load_model(folder)


def environment(folder: Path, lock: str = "") -> Path:
    """An environment of this Python, which has no llm-compressor, that says it is of a lock."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / quantize_tools.INSTALLED).write_text(lock or (ROOT / quantize_tools.QUANTIZE_LOCK).read_text())
    return folder


def test_an_environment_that_is_not_there_is_told_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"from": "base", "step": "compress.quantize"}
    config = configuration.validate({"models": {"small": {**entry, "method": "awq"}, "int8": entry}})
    for found, said in (
        (tmp_path / "none", r"models.small is made by method awq, and the quantizers' environment is not in .*make quantize-tools"),
        (environment(tmp_path / "old", "llmcompressor==0.1\n"), "is of other packages than envs/lock-quantize.txt"),
    ):  # fmt: skip
        monkeypatch.setenv(quantize_tools.ENVIRONMENT.variable, str(found))
        with pytest.raises(InputError, match=said):
            quantize_tools.check_tools(config)
        quantize_tools.check_tools(config, {"small"})  # made already
    quantize_tools.check_tools(configuration.validate({"models": {"int8": entry}}))
    monkeypatch.setenv(quantize_tools.ENVIRONMENT.variable, str(environment(tmp_path / "new")))
    quantize_tools.check_tools(config)


def test_a_library_that_fails_is_told_with_its_last_words(
    base: Path, tokens: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(quantize_tools.ENVIRONMENT.variable, str(environment(tmp_path / "bare")))
    assert quantized(base, tmp_path / "out", "small", tokens, method="gptq", **KEYS)[0] == 1
    said = capsys.readouterr().err
    assert "gptq by llm-compressor in" in said and "No module named" in said
    assert not list((tmp_path / "out").rglob("*.safetensors")) and not list((tmp_path / "out").glob(".*"))
    assert (
        quantized(
            base,
            tmp_path / "out",
            "small",
            tokens,
            **{**KEYS, "method": "gptq", "group_size": 128, "keep": ["down_proj"]},
        )[0]
        == 1
    )
    assert (
        "compress.quantize.group_size is 128, and no layer of this model has inputs in a multiple of it"
        in capsys.readouterr().err
    )


def test_the_packages_are_part_of_its_fingerprint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"from": "base", "step": "compress.quantize"}
    config = configuration.validate({"models": {"small": {**entry, "method": "gptq"}, "int8": entry}})

    def marks() -> list[str]:
        return [fingerprint(model_registry.QUANTIZE_STEP, config, task=name) for name in ("small", "int8")]

    before = marks()
    monkeypatch.setattr(locked_packages, "parse_pins", lambda text: ["llmcompressor==99"])
    after = marks()
    assert before[0] != after[0] and before[1] == after[1]
    upstream = [json.loads(one)["upstream"] for one in before]
    assert any("tokenize.encode" in name for name in upstream[0]) and not any(
        "tokenize" in name for name in upstream[1]
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"method": "nf4"}, r"models\.x\.method is 'nf4', which takes layers with inputs in a multiple of 64; .* 96 .*: take int8"),
        ({"method": "gptq", "group_size": 64}, r"models\.x\.group_size is 64, and .*hidden_size, 96 .*: take 32"),
        ({"method": "int4"}, r"compress\.quantize\.group_size is 128, and .*: take 32"),
        ({"step": "finetune.train", "quantize_aware": "int4"}, r"finetune\.train\.quantize_aware_group_size is 128, and .*: take 32"),
    ],
)  # fmt: skip
def test_what_fits_no_layer_is_refused_before_anything_is_trained(entry: dict[str, Any], why: str) -> None:
    shape = {"hidden_size": 96, "intermediate_size": 288, "heads": 4, "kv_heads": 4}
    config = configuration.validate(
        {
            "pretrain": {"train": {"model": shape}},
            "models": {"x": {"from": "base", "step": "compress.quantize", **entry}},
        }
    )
    with pytest.raises(InputError, match=why):
        quantize_tools.check_shapes(config)
    config["models"]["x"]["from"] = "small"  # of other sizes
    config["models"]["small"] = {"from": "base", "step": "compress.prune", "neurons": 0.5}
    quantize_tools.check_shapes(config)
