"""What is seen of a training while it runs: metrics for Prometheus, memory, and the process that the others wait for."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from crawl2llm.core.root import ROOT
from crawl2llm.training import nvml, prometheus
from crawl2llm.training.callbacks import process_stats
from crawl2llm.training.processes import free_port
from tests.unit.stages.pretrain.runs import finish, rows

LINE = re.compile(r'crawl2llm_(\w+)\{run="(\w+)"(?:,rank="(\d)",node="([^"]+)")?\} ([0-9.e+-]+)')


def read(text: str) -> dict[tuple[str, str], float]:
    """{(name, rank or ""): value} of an exposition; fails at a line that is none, or a metric that is not introduced."""
    found, known = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            known.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = LINE.fullmatch(line)
            assert match and f"crawl2llm_{match[1]}" in known, line
            found[match[1], match[3] or ""] = float(match[5])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [{"engine": "torch", "zero_stage": 3}, pytest.param({"zero_stage": 1}, marks=pytest.mark.long)]
)
def test_a_slow_process_is_named_and_shown(start: Any, tmp_path: Path, case: dict[str, Any]) -> None:
    port = free_port()
    options = [f"--prometheus-port={port}", "--log-every=2", "--straggler-threshold=1.1"]
    errors = finish(start(tmp_path, 2, {"steps": 8, **case}, *options, program="tests.unit.stages.pretrain.slow"))
    warned = re.findall(r"step (\d): rank (\d) on (\S+) is slow: ([0-9.]+) s", errors)
    # At the third logged step in a row; the load of the machine may interrupt the row.
    assert len(warned) == 1 and warned[0][:3] in [(step, "1", socket.gethostname()) for step in "68"]

    measured = [row for row in rows(tmp_path / "out/metrics.jsonl") if "slowest_rank" in row]
    assert [row["step"] for row in measured] == [2, 4, 6, 8]  # and nothing is exchanged in other steps
    for row in measured:
        assert row["slowest_rank"] == 1
        assert row["compute_seconds"] > 0.12  # two micro-batches a step
        assert row["compute_seconds_median"] < row["compute_seconds"] - 0.03  # the mean of two
        assert row["data_loading_seconds"] > 0 and 0.1 < row["memory_max_resident_gib"] < 8
        assert row["tokens_per_second"] == pytest.approx(2 * row["tokens_per_second_per_device"], rel=1e-3)
        assert row["slowest_share"] > 0 and not any(key.startswith("gpu_") for key in row)

    (file,) = tmp_path.glob("checkpoints/*/metrics.prom")
    shown = read(file.read_text())
    last = rows(tmp_path / "out/metrics.jsonl")
    assert shown["step", ""] == 8 and shown["loss", ""] == next(row["loss"] for row in reversed(last) if "loss" in row)
    assert shown["bits_per_byte", ""] == last[-1]["bits_per_byte"] and shown["skipped_steps", ""] == 0
    slow, fast = (shown["process_compute_seconds", rank] for rank in "10")
    assert slow == pytest.approx(measured[-1]["compute_seconds"], abs=1e-5) and slow > fast + 0.1
    assert read((tmp_path / "page").read_text()) == shown


def test_a_metric_that_is_shown_is_documented() -> None:
    page = (ROOT / "docs/commands/watch.md").read_text()
    table = re.findall(r"^\| `(\w+)`", page[page.index("## Metrics of a training") :], re.MULTILINE)
    assert set(table) == set(prometheus.METRICS) >= set(process_stats.FIELDS)


def test_the_text_is_escaped() -> None:
    assert (
        prometheus.exposition_text('a"b\\c', {"step": 1}, []).splitlines()[-1] == r'crawl2llm_step{run="a\"b\\c"} 1.0'
    )


def test_a_port_in_use_ends_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        exporter = prometheus.Exporter(tmp_path, taken.getsockname()[1])
        exporter.publish_row({"step": 3}, [])
        exporter.close()
    assert exporter.server is None and "crawl2llm_step" in (tmp_path / "metrics.prom").read_text()


def test_without_a_gpu_or_its_library_there_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml.gpu_reader(torch.device("cpu"))() == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    said: list[str] = []
    monkeypatch.setattr(nvml.log, "info", lambda text, *args: said.append(text % args))
    assert nvml.gpu_reader(torch.device("cuda"))() == {}
    assert len(said) == 1 and "nvidia-ml-py" in said[0]


def test_the_library_has_what_is_asked_of_it() -> None:
    """By name, where it is installed: a call that is not there is found before a GPU is."""
    library = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    asked: set[str] = set()

    class Named:
        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            assert hasattr(library, name), name
            return lambda *_: 0

    for field in nvml.FIELDS:
        with contextlib.suppress(AttributeError, TypeError):  # of the 0 that stands for a structure
            nvml.read_field(Named(), None, field)
    assert len(asked) > 10
    for bit, name in {
        0x04: "SwPowerCap",
        0x08: "HwSlowdown",
        0x20: "SwThermalSlowdown",
        0x40: "HwThermalSlowdown",
    }.items():
        assert getattr(library, f"nvmlClocksEventReason{name}") == bit and nvml.throttle_reasons(bit)
