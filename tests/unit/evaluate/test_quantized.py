"""evaluate.model on a quantized model: measured like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.models import load, quantized
from scripts.training import memory
from scripts.workflow.errors import InputError
from tests.unit.compress.conftest import quantized as quantize
from tests.unit.evaluate.test_model import evaluated

pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (make install)")
pytestmark = pytest.mark.slow  # evaluates models


@pytest.fixture(scope="module")
def small(inputs: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, made = quantize(inputs["model"][0], tmp_path_factory.mktemp("quantized"))
    assert status == 0
    return made


def test_it_is_measured_like_any_other(inputs: dict[str, list[Path]], small: Path, tmp_path: Path) -> None:
    """And at another batch size to the same bytes."""
    found = {}
    for name, model, options in (
        ("base", inputs["model"][0], ()),
        ("small", small, ()),
        ("again", small, ("--batch-size", "3")),
    ):
        status, made = evaluated(
            inputs | {"model": [model]}, tmp_path / name, *options, name=name.replace("again", "small")
        )
        assert status == 0
        found[name] = json.loads(next(made.parent.glob("*.evaluation.json")).read_text())
    assert found["small"] == found["again"]
    assert found["small"]["step"] == "compress.quantize"
    assert found["small"]["parameters"] == found["base"]["parameters"]
    losses = [found[name]["heldout_text"]["loss"] for name in ("base", "small")]
    assert losses[0] == pytest.approx(losses[1], abs=0.02) and losses[0] != losses[1]
    assert found["small"]["items"].keys() == found["base"]["items"].keys()


def test_memory_is_that_of_its_own_weights(small: Path) -> None:
    model, _ = load.load(load.weights(small)[1])
    with pytest.raises(InputError, match="evaluation needs about"):
        memory.check_loaded("evaluation", model, (1, 8), 1, ["lower it"])
    with pytest.raises(InputError, match=r"weights 0\.0 GB"):
        memory.check_loaded("evaluation", model, (1, 8), 1, ["lower it"])
    assert model.get_memory_footprint() < 4 * quantized.parameters(model)
