"""How fast the engine and the model of a config train with one setting, on random tokens. It imports torch."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.commands.gpu_check.models import build_engine
from crawl2llm.commands.tune.search import Setting, Trial
from crawl2llm.training import engine, group, model, resource_plan
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.measures import mfu, peak_of
from crawl2llm.training.memory_guard import CPU_ALLOCATOR
from crawl2llm.training.parameters import model_of_summary
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.processes import environments, free_port

RATE = 1e-4
DOCUMENT = 1000  # tokens, about as many as a page of the web has
WARMUP, LEAST_STEPS, MOST_STEPS, SECONDS = 2, 2, 6, 5.0  # steps by the clock, until they took so many seconds


@contextlib.contextmanager
def process_group(train: TrainSettings) -> Iterator[torch.device]:
    """The device, in a group of this process alone; the group that is there, if there is one."""
    is_new = not dist.is_initialized()
    if is_new:
        os.environ |= environments(0, 1, 1, "127.0.0.1", free_port())[0]
    device = group.choose_device_alone(train.device, 1, "pretrain.train")
    if is_new:
        group.join_group(device, train.threads)
    try:
        yield device
    finally:
        if is_new:
            dist.destroy_process_group()


class Measurer:
    """Measures settings. summary: of pretrain.plan; accumulation: micro-batches of a step as the config says, for its own micro_batch."""

    def __init__(self, summary: dict[str, Any], train: TrainSettings, device: torch.device) -> None:
        self.summary, self.train, self.device = summary, train, device
        shape = model_of_summary(summary["shape"])
        self.config = model.build_config(shape, summary["shape"]["vocabulary"], 0, model.SHAPE)
        self.context: int = summary["shape"]["context"]

    def accumulation(self, setting: Setting) -> int:
        """Micro-batches of a step of each process."""
        changed = self.train.model_copy(update={"micro_batch": setting.micro_batch})
        return resource_plan.count_micro_batches(self.summary, changed)

    def measure(self, setting: Setting) -> Trial:
        """One setting, with what a step of several micro-batches takes by those of one and of two."""
        try:
            seconds, peak = self._seconds_of_step(setting)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and CPU_ALLOCATOR not in str(error):
                raise
            return Trial(setting, note="memory runs out")
        finally:
            torch._dynamo.reset()  # compiled code holds the model
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        rate = self.accumulation(setting) * setting.micro_batch * self.context / seconds
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else ""
        used = mfu(rate, self.summary["flops"]["per_token"], peak_of(name, self.train.precision), 1)
        return Trial(setting, rate, used, peak)

    def _seconds_of_step(self, setting: Setting) -> tuple[float, int | None]:
        """(seconds of a step, peak memory on a GPU)."""
        changed = self.train.model_copy(update={**vars(setting), "learning_rate": RATE})
        accumulation = self.accumulation(setting)
        trainer = build_engine(
            self.config,
            EngineSettings.of_pretraining(changed),
            self.device,
            setting.micro_batch,
            accumulation=min(2, accumulation),
            recomputed=setting.activation_checkpointing,
            selective=setting.selective_checkpointing,
        )
        shape = (min(2, accumulation), setting.micro_batch, self.context + 1)
        tokens = torch.randint(1, self.config.vocab_size, shape)
        tokens[:, :, ::DOCUMENT] = 0  # the end of a text
        trainer.expect_documents(tokens)
        tokens = tokens.to(self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        times = [_median_seconds(trainer, tokens[:number]) for number in range(1, len(tokens) + 1)]
        peak = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
        further = times[-1] - times[0] if len(times) > 1 else 0.0
        return times[0] + (accumulation - 1) * max(0.0, further), peak


def _median_seconds(trainer: engine.Engine, tokens: torch.Tensor) -> float:
    """The median seconds of a step, read to its end."""
    for _ in range(WARMUP):
        trainer.step(tokens, RATE)
    times: list[float] = []
    while len(times) < LEAST_STEPS or (len(times) < MOST_STEPS and sum(times) < SECONDS):
        start = time.perf_counter()
        float(trainer.step(tokens, RATE).loss)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
