"""Where a model is placed, and what is said if that is not the GPU that is there."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from crawl2llm.core import devices
from crawl2llm.training import quantized_weights


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    quantized_weights.inference_device.cache_clear()
    yield
    quantized_weights.inference_device.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_a_model_on_the_cpu_of_a_machine_with_gpus_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert quantized_weights.inference_device() == "cpu" and not caplog.messages, "no GPU here"
        quantized_weights.inference_device.cache_clear()
        monkeypatch.setattr(devices, "visible_gpus", lambda: ["0", "1"])
        monkeypatch.setattr(devices, "why_gpus_unseen", lambda cuda: f"the driver is too old for CUDA {cuda}")
        model = torch.nn.Linear(2, 2)
        assert next(quantized_weights.place_model(model).parameters()).device.type == "cpu" and not model.training
        quantized_weights.place_model(model)
    (line,) = caplog.messages  # once, however many models
    assert f"sees none of the 2 GPUs here: the driver is too old for CUDA {devices.cuda_of_torch()}" in line
