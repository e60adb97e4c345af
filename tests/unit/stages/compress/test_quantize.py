"""compress.quantize as a program: what it writes, that plain transformers reads it, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from crawl2llm.commands.serve.generate import GenerationRequest, Model, model_manifests
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import compressible_layers, init_checks, model_loading
from crawl2llm.training import quantized_weights as told
from crawl2llm.training.pretraining_settings import TrainSettings
from tests.unit.stages.compress.conftest import quantized, tiny

bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (make install)")
pytestmark = pytest.mark.slow  # loads models

METHODS: dict[str, dict[str, Any]] = {
    "int8": {},
    "nf4": {"method": "nf4"},
    "double": {"method": "nf4", "double_quantization": True},
}


@pytest.fixture(scope="module", params=METHODS)
def made(request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """(name of the method, manifest of a model of it)."""
    status, out = quantized(base, tmp_path_factory.mktemp(request.param), request.param, **METHODS[request.param])
    assert status == 0
    return request.param, out


def matrix(model: Any) -> torch.Tensor:
    """A weight of the first layer, as its quantized layer multiplies with it."""
    return compressible_layers.dequantized_weights(model.model.layers[0].mlp.down_proj)


def rounded(weight: torch.Tensor, method: str) -> torch.Tensor:
    """What a weight is after int8 or nf4, by the papers and not by the library."""
    if method == "int8":  # a row's largest value is 127; bitsandbytes takes the weights as fp16
        weight = weight.half().float()
        scale = weight.abs().amax(1, keepdim=True) / 127
        return torch.round(weight / scale) * scale
    from torch.distributions import Normal

    # arXiv:2305.14314, section 3 and appendix E: 8 values of one side, 9 of the other, evenly spaced quantiles of N(0, 1), over the largest
    normal, most = Normal(0.0, 1.0), 0.9677083
    above = normal.icdf(torch.linspace(most, 0.5, 9)[:-1])
    below = -normal.icdf(torch.linspace(most, 0.5, 8)[:-1])
    values = torch.cat([below, torch.zeros(1), above]).sort().values
    values /= values.max()
    blocks = weight.reshape(-1, compressible_layers.BLOCK)
    scale = blocks.abs().amax(1, keepdim=True)
    nearest = (blocks / scale).unsqueeze(-1).sub(values).abs().argmin(-1)
    return (values[nearest] * scale).reshape(weight.shape)


def test_plain_transformers_loads_what_the_papers_say(made: tuple[str, Path], base: Path) -> None:
    method, out = made
    model = AutoModelForCausalLM.from_pretrained(out.parent / f"{method}/model")
    before = AutoModelForCausalLM.from_pretrained(base.parent / "model")
    weight = before.model.layers[0].mlp.down_proj.weight.data
    expected = rounded(weight, method.replace("double", "nf4"))
    assert model.model.layers[0].mlp.down_proj.weight.dtype == (torch.int8 if method == "int8" else torch.uint8)
    near = {"int8": 1e-5, "nf4": 1e-5, "double": 2e-2}[method]  # of double quantization the scales are rounded too
    other = (matrix(model) - expected).abs() > near * weight.abs().max()
    assert other.float().mean() < 0.001, "a weight half way between two values goes to either"
    assert (expected - weight).norm() > 1e-3 * weight.norm(), "rounding shows"
    assert model.lm_head.weight.dtype == model.model.norm.weight.dtype == torch.bfloat16
    assert not [path for path in out.parent.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


def test_the_summary_is_true(made: tuple[str, Path], base: Path) -> None:
    method, out = made
    found, folder = model_loading.verify_weights(out)
    model, _ = model_loading.load_model(folder)
    before = AutoModelForCausalLM.from_pretrained(base.parent / "model")
    taken = [name for name, part in model.named_modules() if type(part).__module__.startswith("bitsandbytes")]
    assert len(taken) == found.summary["quantized_layers"] == 14
    wrong = [
        (before.get_submodule(name).weight.data - compressible_layers.dequantized_weights(model.get_submodule(name)))
        .double()
        .square()
        .sum()
        for name in taken
    ]
    squares = [before.get_submodule(name).weight.data.double().square().sum() for name in taken]
    assert found.summary["weight_error"] == pytest.approx(float(sum(wrong) / sum(squares)) ** 0.5, rel=1e-3)
    assert 0 < found.summary["weight_error"] < (0.02 if method == "int8" else 0.15)
    assert found.summary["parameters"] == sum(p.numel() for p in before.parameters()) == told.count_parameters(model)
    assert found.summary["quantized_parameters"] == sum(before.get_submodule(name).weight.numel() for name in taken)
    assert found.summary["bytes"] == (folder / "model.safetensors").stat().st_size < 0.5 * found.summary["bytes_before"]


def test_the_same_bytes_again(made: tuple[str, Path], base: Path, tmp_path: Path) -> None:
    method, out = made
    status, again = quantized(base, tmp_path, method, **METHODS[method])
    assert status == 0 and again.read_bytes() == out.read_bytes()


def test_it_predicts_nearly_the_same_and_answers(made: tuple[str, Path], base: Path) -> None:
    """One use after another: bitsandbytes lays nf4 out for the processor at the first."""
    method, out = made
    model, tokenizer = model_loading.load_model(model_loading.verify_weights(out)[1])
    before = AutoModelForCausalLM.from_pretrained(base.parent / "model")
    ids = torch.tensor([tokenizer("Return the number of items in the list")["input_ids"]])
    with torch.no_grad():
        found, again, wanted = told.place_model(model)(ids).logits, model(ids).logits, before(ids).logits
    assert torch.equal(found, again)
    assert (found - wanted).norm() < (0.05 if method == "int8" else 0.3) * wanted.norm()


def test_serve_finds_it_and_lets_it_answer(made: tuple[str, Path], base: Path, tmp_path: Path) -> None:
    method, out = made
    results = tmp_path / "results"
    (results / "pretrain").mkdir(parents=True)
    (results / "pretrain/train").symlink_to(base.parent)
    (results / "compress").mkdir()
    (results / "compress/quantize").symlink_to(out.parent)
    found = model_manifests(results)
    assert list(found) == ["base", method]
    model, said = Model(found[method]), []
    import threading

    ended = model.generate_answer(GenerationRequest(model.text_ids("The"), 5, 0.0), said.append, threading.Event())
    assert ended.tokens == 5 or ended.reason == "stop"


def test_a_threshold_keeps_large_activations_as_they_are(base: Path, tmp_path: Path) -> None:
    """config.json says it, so that whoever loads the model computes the same."""
    for name, threshold in (("none", 0), ("low", 0.001)):
        assert quantized(base, tmp_path, name, outlier_threshold=threshold)[0] == 0
        written = json.loads((tmp_path / f"{name}/model/config.json").read_text())
        assert written["quantization_config"]["llm_int8_threshold"] == threshold
    ids, logits = torch.arange(1, 33).unsqueeze(0), {}
    for name in ("none", "low"):
        with torch.no_grad():
            logits[name] = model_loading.load_model(tmp_path / f"{name}/model")[0](ids).logits
    weights, _ = model_loading.load_model(base.parent / "model")
    with torch.no_grad():
        for part, name in ((part, name) for name, part in weights.named_modules() if isinstance(part, torch.nn.Linear)):
            if name != "lm_head":
                part.weight.data = rounded(part.weight.data, "int8")
        wanted = weights(ids).logits
    # With no activation rounded only the weights' rounding is left, and that of the rest to bf16.
    assert (logits["low"] - wanted).norm() < 0.5 * (logits["none"] - wanted).norm()


def test_layers_that_are_kept(base: Path, tmp_path: Path) -> None:
    status, out = quantized(base, tmp_path, keep=["layers.1.mlp", "q_proj$"], rest="same")
    assert status == 0
    model = AutoModelForCausalLM.from_pretrained(out.parent / "small/model")
    kinds = {name: part.weight.dtype for name, part in model.named_modules() if hasattr(part, "weight")}
    assert kinds["model.layers.0.mlp.down_proj"] == torch.int8
    assert kinds["model.layers.1.mlp.down_proj"] == kinds["model.layers.0.self_attn.q_proj"] == torch.float32
    summary = Manifest.read(out).summary
    assert (summary["quantized_layers"], summary["unquantized_layers"]) == (9, 5)
    assert summary["notes"] == [
        "5 linear layers are not quantized: model.layers.0.self_attn.q_proj, model.layers.1.mlp.down_proj, "
        "model.layers.1.mlp.gate_proj, …."
    ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"keep": ["attention"]}, "compress.quantize.keep has 'attention', which no linear layer is called by; they are called"),
        ({"keep": ["("]}, "compress.quantize.keep has '(', which is not a regular expression"),
        ({"keep": ["."]}, "compress.quantize.keep matches every linear layer: nothing is left to quantize"),
    ],
)  # fmt: skip
def test_wrong_keys_are_named(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], said: str
) -> None:
    assert quantized(base, tmp_path, **keys)[0] == 1
    assert said in capsys.readouterr().err


def test_a_shape_that_nf4_does_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tiny.write_model(tmp_path / "odd", tiny.pages(), hidden=48)
    assert quantized(odd, tmp_path, method="nf4")[0] == 1
    said = capsys.readouterr().err
    assert "multiple of 64" in said and "q_proj: 48 and 48" in said and "take int8" in said
    assert quantized(odd, tmp_path)[0] == 0


def test_what_is_quantized_is_neither_quantized_again_nor_trained(
    made: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method, out = made
    assert quantized(out, tmp_path, "again")[0] == 1
    assert "is quantized already" in capsys.readouterr().err
    train = TrainSettings(start_from=str(out.parent / method / "model"))
    with pytest.raises(InputError, match="its weights are quantized and cannot be trained"):
        init_checks.check_start_from(train, 2048)


def test_a_file_that_says_nothing_is_of_no_quantized_model(tmp_path: Path) -> None:
    assert not told.is_quantized(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not told.is_quantized(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    assert not told.is_quantized(tmp_path)
