"""How fast the model of 1B parameters writes: what align, evaluate.generate and serve draw answers with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.lines import Line
from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.training import initial, sampling, slots

PROMPT = 32


def check(place: Place) -> Iterator[Line]:
    """Tokens a second in bf16, of one answer and of 32 at once."""
    size, vocabulary, most = ("tiny", 512, 4) if place.tiny else ("1B", 32_768, 64)
    config = models.llama_config(size, vocabulary, 2048)
    with torch.no_grad():
        model: Any = initial.fill_model(
            initial.empty_model(config), place.device, models.draw_weights(config, place.device)
        )
    model = model.to(torch.bfloat16).eval()
    for answers in (1, 4) if place.tiny else (1, 32):
        prompts = torch.randint(1, vocabulary, (answers, PROMPT)).tolist()
        draws, seconds = torch.rand(answers, most, dtype=torch.float64), 0.0
        drawer = slots.drawer_for(model, sampling.Choice(end=-1), answers)
        for _ in range(2):  # the first time to warm up, and to capture
            place.wait()
            start = time.perf_counter()
            written = drawer.draw(prompts, draws)
            place.wait()
            seconds = time.perf_counter() - start
        rate = sum(len(answer.ids) for answer in written) / seconds
        what = "1 answer" if answers == 1 else f"{answers} answers at once"
        yield Line("sampling", what, f"{rate:,.0f} tokens/s", values={"tokens_per_second": rate})
    del model, drawer
    models.release(place)
