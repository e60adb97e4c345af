"""What gpu-check says of several nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crawl2llm.commands.gpu_check import machine
from crawl2llm.commands.gpu_check.lines import OK, WRONG

GPU = ("NVIDIA H100 80GB HBM3", "GPU-1", 85 * 10**9)
NODE = machine.Facts("n1", [GPU, GPU], 0, "580.65.06", {"torch": "2.13.0"}, 10**11, {})


def test_nodes_that_differ_are_wrong_and_named() -> None:
    other = replace(NODE, node="n2")
    assert machine.same_line([NODE, other]).verdict == OK
    line = machine.same_line([NODE, other, replace(NODE, node="n3", driver="570.1", gpus=[GPU])])
    assert line.verdict == WRONG
    assert line.note == (
        "GPUs: 2 NVIDIA H100 80GB HBM3 on n1 n2, 1 NVIDIA H100 80GB HBM3 on n3; driver: 580.65.06 on n1 n2, 570.1 on n3"
    )


def test_a_gpu_whose_memory_has_errors_is_wrong(monkeypatch: Any) -> None:
    text = "GPU-1, 2\nGPU-2, [N/A]\n"
    monkeypatch.setattr(machine.devices, "run_nvidia_smi", lambda *options: text)
    assert machine.memory_errors() == {"GPU-1": 2}
    first, *_ = machine._gpu_lines(replace(NODE, uncorrected=machine.memory_errors()), " of n1")
    assert (first.what, first.verdict) == ("GPU 0 of n1", WRONG)
    assert first.note == "GPU-1, 2 uncorrected errors of its memory: have it looked at"


def test_a_small_file_has_no_limit(tmp_path: Path) -> None:
    place: Any = SimpleNamespace(tiny=True, folder=tmp_path, processes=1, gather=lambda seconds: [1000 * seconds])
    for line in machine.check_folder(place):
        assert (line.expected, line.verdict) == ("", OK), line.what
