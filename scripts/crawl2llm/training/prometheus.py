"""Metrics of a training for Prometheus: a text file for node_exporter's textfile collector, and on demand a page on 127.0.0.1.

The format is the text exposition format 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats.
"""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from crawl2llm.core.console import log

FILE = "metrics.prom"
PREFIX = "crawl2llm_"
# What a measure is a part of, by the beginning of its key in a row, which ends with the part's name.
PARTS = {"bits_per_byte/": "source", "expert_load_max/": "layer"}
# Key of metrics.jsonl: what it is. docs/commands/watch.md has the names that torchtitan and OLMo-core give them.
METRICS = {
    "step": "Optimizer updates so far.",
    "tokens": "Tokens trained on so far.",
    "loss": "Mean cross-entropy of the step's global batch, nats a token.",
    "validation_loss": "Mean cross-entropy of the validation documents, nats a token.",
    "bits_per_byte": "Cross-entropy of the validation documents, bits a byte of text.",
    "router_loss": "Mean loss of the routers of a mixture of experts.",
    "router_z_loss": "Mean square of the log-denominator of the routers of a mixture of experts.",
    "expert_load_max": "Most tokens of an expert by the mean of its layer's experts, of any layer, since the row before.",
    "idle_experts": "Share of the experts that no token chose since the row before.",
    "learning_rate": "Learning rate of the step.",
    "grad_norm": "Norm of the whole gradient before clipping.",
    "skipped_steps": "Steps whose update was skipped: not finite, or a spike; without those that a roll back threw away.",
    "loss_scale": "What fp16's loss is multiplied by before the backward pass.",
    "overflow_steps": "Updates that were left out for an overflow of fp16's gradient.",
    "tokens_per_second": "Tokens a second of all processes.",
    "tokens_per_second_per_device": "Tokens a second of one process.",
    "tflops": "Operations that the model needs, 1e12 a second, of one process.",
    "mfu": "Share of the dense bf16 peak of the GPUs.",
    "seconds": "Seconds of training so far, over all attempts.",
    "step_seconds": "Seconds of a step, mean since the row before.",
    "data_loading_seconds": "Seconds for which the step waited for its tokens.",
    "compute_seconds": "Seconds of the forward pass of the blocks in one step.",
    "compute_seconds_median": "The same, median of the processes.",
    "slowest_rank": "Process that took longest to read its tokens and compute.",
    "slowest_share": "Share of the step that it took.",
    "memory_max_resident_gib": "Peak resident memory of a process, GiB.",
    "memory_max_active_gib": "Peak of GPU memory in use by tensors, GiB.",
    "memory_max_reserved_gib": "Peak of GPU memory held by torch, GiB.",
    "memory_num_alloc_retries": "Allocations that succeeded only after torch gave memory back.",
    "memory_num_ooms": "Allocations that failed for lack of GPU memory.",
    "gpu_utilization_percent": "Share of the time in which a kernel ran on the GPU.",
    "gpu_memory_used_gib": "Memory in use on the GPU by all programs, GiB.",
    "gpu_power_watts": "Power of the GPU.",
    "gpu_temperature_celsius": "Temperature of the GPU.",
    "gpu_clock_mhz": "Clock of the GPU's multiprocessors.",
    "gpu_ecc_errors": "Uncorrected memory errors since the driver was loaded.",
    "gpu_throttle_reasons": "Why the clock is held down, a bit mask of nvmlClocksEventReasons.",
}
Labelled = list[tuple[dict[str, str], dict[str, float]]]


def escape_label(text: str) -> str:
    """A label's value: backslash, quote and end of line escaped."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def exposition_text(run: str, values: dict[str, float], processes: Labelled) -> str:
    """The exposition of the newest values: of the run, and as `process_…` of each process. All are gauges, and have the label `run`."""
    lines: list[str] = []

    def add_metric(name: str, meaning: str, samples: Labelled) -> None:
        lines.extend((f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} gauge"))
        for labels, part in samples:
            listed = ",".join(f'{key}="{escape_label(value)}"' for key, value in {"run": run, **labels}.items())
            lines.append(f"{PREFIX}{name}{{{listed}}} {float(part[name.removeprefix('process_')])!r}")

    for key, meaning in METRICS.items():
        if key in values:
            add_metric(key, meaning, [({}, values)])
    for start, label in PARTS.items():
        if parts := {key.partition("/")[2]: value for key, value in values.items() if key.startswith(start)}:
            key = start[:-1]
            name = f"{key}_by_{label}"
            add_metric(
                name,
                f"{METRICS[key][:-1]}, by {label}.",
                [({label: part}, {name: value}) for part, value in parts.items()],
            )
    for key, meaning in METRICS.items():
        if by_process := [(labels, part) for labels, part in processes if key in part]:
            add_metric(f"process_{key}", f"{meaning[:-1]}, by process.", by_process)
    return "".join(f"{line}\n" for line in lines)


class Exporter:
    """Writes the newest values into `folder`/metrics.prom, and shows them on http://127.0.0.1:`port`/metrics where port is not 0."""

    def __init__(self, folder: Path, port: int) -> None:
        self.path, self.run = folder / FILE, folder.name
        self.values: dict[str, float] = {}
        self.processes: Labelled = []
        self.server: ThreadingHTTPServer | None = None
        if port:
            try:
                self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler_class())
            except OSError as error:
                log.warning(
                    "no metrics are shown on port %d (%s): set pretrain.train.prometheus_port to a free one",
                    port,
                    error.strerror,
                )
                return
            threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = (
                    exposition_text(exporter.run, exporter.values, exporter.processes).encode()
                    if self.path == "/metrics"
                    else b""
                )
                self.send_response(200 if body or self.path == "/metrics" else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing: the program's stderr is its log."""

        return Handler

    def publish_row(self, row: dict[str, float], processes: Labelled) -> None:
        """Take a row's values beside those before, and write the file: whole or not at all, since it is read at any time."""
        self.values = self.values | {
            key: value for key, value in row.items() if key in METRICS or key.startswith(tuple(PARTS))
        }
        self.processes = processes or self.processes
        new_file = self.path.with_name(f".{FILE}.new")  # no *.prom: the collector reads those
        with contextlib.suppress(OSError):
            new_file.write_text(exposition_text(self.run, self.values, self.processes), encoding="utf-8")
            new_file.replace(self.path)

    def close(self) -> None:
        """Show nothing more; the file stays."""
        if self.server:
            self.server.shutdown()
            self.server.server_close()
