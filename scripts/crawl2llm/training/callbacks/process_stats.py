"""Time, memory and GPU of each process, collected in the steps that are logged; process 0 warns of a slow one.

The time is that of reading tokens and of the forward pass of the blocks, for which the other processes wait. It says less if blocks
communicate (ZeRO 3 of DeepSpeed; tensor, sequence and expert parallelism), since a fast process then waits inside them, and in a
pipeline, whose stages may have unequal numbers of layers. On a GPU it is measured by CUDA events, which are read after the step, so no
step waits for it. Megatron-LM's straggler detector (megatron/core/utils.py, StragglerDetector) compares such times too.
"""

from __future__ import annotations

import resource
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from crawl2llm.core.console import log
from crawl2llm.training import nvml
from crawl2llm.training.callback import Callback
from crawl2llm.training.run_state import RunState

GIB = 2**30
PROCESS_FIELDS = (
    "data_loading_seconds", "compute_seconds", "memory_max_resident_gib", "memory_max_active_gib", "memory_max_reserved_gib",
    "memory_num_alloc_retries", "memory_num_ooms",
)  # fmt: skip
FIELDS = (*PROCESS_FIELDS, *nvml.FIELDS)
# Seconds of a step by which a process may be slower: of a GPU; of a CPU, whose cores others use too.
FEW, FEW_CPU = 0.001, 0.1
STREAK = (
    3  # logged steps in a row in which a process is the slow one before a warning: any process is slow now and then
)


class ProcessStats(Callback):
    """Measures this process, and brings the measures of all together, in the steps that are logged.

    blocks: gives the decoder layers, as the engine runs them. every: steps between those that are logged. last: the run's last step,
    which is measured too. threshold: a warning names a process that takes more than this many times the median. may_end: whether the run
    may end with a step, which is then measured too.
    """

    def __init__(
        self,
        blocks: Callable[[], Iterable[nn.Module]],
        device: torch.device,
        every: int,
        last: int,
        threshold: float,
        may_end: Callable[[RunState], bool] = lambda _: False,
    ) -> None:
        self.blocks, self.device, self.every, self.last, self.threshold = blocks, device, every, last, threshold
        self.may_end = may_end
        self.hooks: list[Any] = []

    def before_training(self, state: RunState) -> None:
        self.rank, self.measuring, self.reading_seconds = dist.get_rank(), False, 0.0
        self.gpu = nvml.gpu_reader(self.device)
        self.nodes: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(self.nodes, socket.gethostname())
        self.open_starts: list[Any] = []
        self.spans: list[tuple[Any, Any]] = []
        self.slow = (0, 0)  # the last slow process, and in how many logged steps in a row
        self.hooks = []
        for block in self.blocks():  # inside of what an engine does around a block, such as gathering its weights
            self.hooks.append(block.register_forward_pre_hook(self._enter_block))
            self.hooks.append(block.register_forward_hook(self._leave_block, prepend=True))

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def before_step(self, state: RunState) -> None:
        self.begun = time.perf_counter()

    def before_update(self, state: RunState) -> None:
        """The blocks' time is measured from here on, if the step is logged."""
        self.reading_seconds = time.perf_counter() - self.begun
        self.measuring = self.may_end(state) or state.step % self.every == 0 or state.step == self.last

    def after_step(self, state: RunState) -> None:
        state.measures = self.gather_measures()

    def _record_time(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _enter_block(self, *_: Any) -> None:
        if self.measuring:
            self.open_starts.append(self._record_time())

    def _leave_block(self, *_: Any) -> None:
        if self.measuring and self.open_starts:
            self.spans.append((self.open_starts.pop(), self._record_time()))

    def _own_measures(self) -> dict[str, float]:
        cuda = self.device.type == "cuda"
        spent = [a.elapsed_time(b) / 1000 if cuda else b - a for a, b in self.spans]  # ms
        measures = {"data_loading_seconds": self.reading_seconds, "compute_seconds": sum(spent)}
        # kB on Linux
        measures["memory_max_resident_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
        if cuda:  # names as in torchtitan, components/metrics.py
            memory = torch.cuda.memory_stats()
            measures["memory_max_active_gib"] = memory["active_bytes.all.peak"] / GIB
            measures["memory_max_reserved_gib"] = memory["reserved_bytes.all.peak"] / GIB
            measures["memory_num_alloc_retries"] = memory["num_alloc_retries"]
            measures["memory_num_ooms"] = memory["num_ooms"]
        return measures | self.gpu()

    def gather_measures(self) -> list[dict[str, float]]:
        """The FIELDS that each process has, by rank; [] after a step that is not measured. A collective call."""
        if not self.measuring:
            return []
        measures = self._own_measures()
        self.measuring = False
        self.open_starts.clear()
        self.spans.clear()
        values = torch.tensor(
            [measures.get(name, float("nan")) for name in FIELDS], dtype=torch.float64, device=self.device
        )
        gathered = values.new_empty(dist.get_world_size() * len(FIELDS))
        dist.all_gather_into_tensor(gathered, values)
        rows = gathered.reshape(-1, len(FIELDS)).tolist()
        return [{n: value for n, value in zip(FIELDS, row, strict=True) if value == value} for row in rows]

    def metrics_row(self, step: int, everyone: list[dict[str, float]], seconds: float) -> dict[str, float]:
        """What metrics.jsonl says of all processes, whose steps took `seconds` each; a straggler is warned about once.

        Each measure is the largest of all processes, except a GPU's use and clock (the smallest) and the reasons for a low clock (all
        of them). `slowest_share` is the share of the step in which the slowest process reads its tokens and computes.
        """
        entry: dict[str, float] = {}
        for name in FIELDS:
            if values := [measures[name] for measures in everyone if name in measures]:
                least = name in ("gpu_utilization_percent", "gpu_clock_mhz")
                entry[name] = round(min(values) if least else max(values), 6)
        if bits := [
            int(measures["gpu_throttle_reasons"]) for measures in everyone if "gpu_throttle_reasons" in measures
        ]:
            entry["gpu_throttle_reasons"] = reduce(or_, bits)  # a bit for each reason, of any GPU
        took = [measures["data_loading_seconds"] + measures["compute_seconds"] for measures in everyone]
        slowest = max(range(len(took)), key=took.__getitem__)
        usual = statistics.median_low(took)  # of two, the faster
        entry |= {
            "compute_seconds_median": round(statistics.median(measures["compute_seconds"] for measures in everyone), 6),
            "slowest_rank": slowest,
            "slowest_share": round(took[slowest] / seconds, 4) if seconds else 0.0,
        }
        few = FEW if self.device.type == "cuda" else FEW_CPU
        late = took[slowest] > self.threshold * usual and took[slowest] - usual > few
        in_a_row = self.slow[1] if self.slow[0] == slowest else 0
        self.slow = (slowest, in_a_row + 1 if late else 0)
        if self.slow[1] == STREAK:
            log.warning(
                "step %s: rank %d on %s is slow: %.3f s to read its tokens and compute, %.1f times the (lower) median of all processes "
                "(%.3f s), %.0f %% of the step",
                f"{step:,}", slowest, self.nodes[slowest], took[slowest], took[slowest] / max(usual, 1e-9), usual,
                100 * entry["slowest_share"],
            )  # fmt: skip
        for rank, measures in enumerate(everyone):
            if reasons := nvml.throttle_reasons(measures.get("gpu_throttle_reasons", 0)):
                log.warning(
                    "step %s: the clock of the GPU of rank %d on %s is held down: %s",
                    f"{step:,}",
                    rank,
                    self.nodes[rank],
                    ", ".join(reasons),
                )
        return entry

    def labelled_measures(self, everyone: list[dict[str, float]]) -> list[tuple[dict[str, str], dict[str, float]]]:
        """The same for Prometheus: labels and values of each process."""
        return [({"rank": str(rank), "node": self.nodes[rank]}, measures) for rank, measures in enumerate(everyone)]


def per_device(rate: float, flops: int, processes: int, tokens: int) -> dict[str, float]:
    """Speed of one process: tokens a second, 10¹² operations a second, seconds a step (of `tokens`). rate: tokens a second of all."""
    return {
        "tokens_per_second_per_device": round(rate / processes, 1),
        "tflops": round(rate * flops / processes / 1e12, 4),
        "step_seconds": round(tokens / rate, 6),
    }
