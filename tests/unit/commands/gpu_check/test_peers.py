"""What is read of other trainers, and what they are told."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from crawl2llm.commands.gpu_check import command, peers
from crawl2llm.commands.gpu_check.lines import OK, SKIPPED
from crawl2llm.core.errors import InputError

NANO = """number of parameters: 0.13M
step 0: train loss 6.2570, val loss 6.2577
iter 0: loss 6.2540, time 500.00ms, mfu -100.00%
iter 1: loss 6.2516, time 250.00ms, mfu 0.00%
"""
TITAN = "\x1b[31mstep:  3  \x1b[32mloss: 7.1  grad_norm: 1.2  \x1b[38mmemory: 21.50GiB(27.1%)  \x1b[34mtps: 61,234  tflops: 1\n"


class Alone:
    """A place of one process on a CPU."""

    on_gpu, tiny, processes, device = False, True, 1, torch.device("cpu")

    def __init__(self, folder: Path, copies: dict[str, Path]) -> None:
        self.scratch, self.peers = folder, copies

    def gather(self, value: Any) -> list[Any]:
        return [value]


def test_their_rates_are_read_by_step() -> None:
    assert peers.read_nanogpt(NANO, 1000) == [2000.0, 4000.0]
    assert peers.read_torchtitan(TITAN, 1000) == [61_234.0]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Alone:
    monkeypatch.setattr(peers.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(peers, "measure_steps", lambda *_: {"tokens_per_second": 500.0})
    (tmp_path / "configurator.py").write_text("")
    return Alone(tmp_path, {"nanogpt": tmp_path})


@pytest.mark.parametrize(("last", "verdict"), [("", OK), ("raise SystemExit('no CUDA')", SKIPPED)])
def test_a_peer_is_measured_or_says_why_it_does_not_run(place: Any, tmp_path: Path, last: str, verdict: str) -> None:
    """Its train.py gets the sizes of the model, and finds random tokens."""
    line = "print(f'iter {n}: loss 6.1, time 128.00ms, mfu 0%')"
    (tmp_path / "train.py").write_text(
        "import sys, os, pickle\n"
        "assert '--n_embd=64' in sys.argv and '--compile=False' in sys.argv and os.path.getsize('data/check/train.bin') == 200_000\n"
        "assert pickle.load(open('data/check/meta.pkl', 'rb')) == {'vocab_size': 512} and os.path.exists('configurator.py')\n"
        f"for n in range({peers.WARMUP + 3}): {line}\n{last}\n"
    )
    nano, titan = peers.check(place)
    assert titan.verdict == SKIPPED and "--torchtitan" in titan.note
    assert nano.verdict == verdict
    if verdict == OK:
        assert nano.measured == "1,000 tokens/s, this engine 500 (0.50 times)"
    else:
        assert nano.note == "it does not run here: status 1: no CUDA"


def test_a_peer_that_hangs_is_ended(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SECONDS", 0.2)
    peer = replace(
        peers.PEERS["nanogpt"], prepare=lambda *_: ([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path)
    )
    assert peers.run_peer(place, peer, tmp_path, 128) == ([], "more than 0.2 s: ")


def test_a_folder_that_is_no_copy_is_an_error(tmp_path: Path) -> None:
    args = argparse.Namespace(nanogpt=tmp_path, torchtitan=None)
    with pytest.raises(InputError, match=r"--nanogpt .*: there is no .*train\.py"):
        command.peers_of(args)
    (tmp_path / "train.py").write_text("")
    assert command.peers_of(args) == {"nanogpt": str(tmp_path)}
