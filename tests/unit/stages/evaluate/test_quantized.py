"""evaluate.model on a quantized model: measured like any other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import generation_speed
from crawl2llm.training import memory, model_loading, quantized_weights
from crawl2llm.training.estimate.parts import format_bytes
from tests.unit.stages.compress.conftest import quantized as quantize
from tests.unit.stages.evaluate.test_model import evaluate_base

pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (make install)")
pytestmark = pytest.mark.slow  # evaluates models


@pytest.fixture(scope="module")
def small(inputs: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, made = quantize(inputs["model"][0], tmp_path_factory.mktemp("quantized"))
    assert status == 0
    return made


def test_it_is_measured_like_any_other(few: dict[str, list[Path]], small: Path, tmp_path: Path) -> None:
    """At another batch size to the same bytes; speed and memory are beside, in a file that the manifest does not list."""
    made = {}
    for batch in ("16", "3"):
        status, made[batch] = evaluate_base(
            few | {"model": [small]}, tmp_path / batch, "--batch-size", batch, name="small", max_tokens=1000
        )
        assert status == 0
    one, other = (Manifest.read(path) for path in made.values())
    assert made["16"].read_bytes() == made["3"].read_bytes() and one.files == other.files
    found = json.loads((made["16"].parent / "small.evaluation.json").read_text())
    before, _ = model_loading.load_model(model_loading.verify_weights(few["model"][0])[1])
    assert found["step"] == "compress.quantize"
    assert found["parameters"] == sum(p.numel() for p in before.parameters())
    assert found["heldout_text"]["loss"] == pytest.approx(6.93, abs=0.3), (
        "a random model is next to uniform over its 1,024 entries"
    )
    assert found["items"]["word_order"]["items"] > 2 and found["questions"]["items"] == 10
    assert (made["16"].parent / "small.samples.jsonl").stat().st_size > 100
    told = generation_speed.read(made["16"])
    assert "small.speed.json" not in one.files
    assert told["tokens_per_second"] > 1 and told["machine"] and told["threads"] == 2
    assert 2e5 < told["weights_bytes"] < 4e5 < told["peak_memory_bytes"], (
        "140,000 parameters: of eight bits, and embeddings of 32"
    )


def test_memory_is_that_of_its_own_weights(small: Path) -> None:
    model, _ = model_loading.load_model(model_loading.verify_weights(small)[1])
    held = model.get_memory_footprint()
    assert held < 0.7 * 4 * quantized_weights.count_parameters(model)
    with pytest.raises(InputError, match=rf"weights {re.escape(format_bytes(held))}"):
        memory.check_loaded("evaluation", model, (1, 8), 1, ["lower it"])


def test_what_is_no_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "base.manifest.json"
    assert generation_speed.read(path) == {}
    for text in ("{", "[]"):
        generation_speed.path_of(path).write_text(text)
        assert generation_speed.read(path) == {}
    generation_speed.write(path, {"tokens_per_second": 3.0})
    assert generation_speed.read(path) == {"tokens_per_second": 3.0}
