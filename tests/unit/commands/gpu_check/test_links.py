"""What links are compared with, and how NCCL's way is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.commands.gpu_check import links
from crawl2llm.commands.gpu_check.lines import OK, SLOW
from crawl2llm.training.gpus import KINDS

LOG = """node1:1:1 [0] NCCL INFO NET/{net} : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
"""


class TwoNodes:
    """A place among two nodes of two GPUs."""

    on_gpu, tiny, processes, processes_here, nodes, sheet = True, False, 4, 2, 2, KINDS["h100"]

    def __init__(self, scratch: Path = Path()) -> None:
        self.scratch, self.name = scratch, ""

    def gather(self, _: Any) -> list[Any]:
        return [f"GPU-{number}" for number in range(4)]


def test_a_slow_link_is_named_by_the_gpus_at_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {(0, 1): 350e9, (1, 2): 45e9, (2, 3): 350e9, (3, 0): 20e9}
    monkeypatch.setattr(links, "_pair_rate", lambda place, *pair: rates[pair])
    within, between = links._neighbour_lines(TwoNodes(), 50e9)  # type: ignore[arg-type]
    assert within.verdict == OK and within.measured == "350.0 GB/s (most 350.0)"
    assert between.verdict == SLOW and between.note == "GPU-3 → GPU-0 reaches 20.0"


def test_links_within_a_node_are_not_judged_without_nvlink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_pair_rate", lambda place, *pair: 20e9 if pair == (0, 1) else 40e9)
    place: Any = TwoNodes()
    place.sheet = KINDS["l40s"]
    within, between = links._neighbour_lines(place, None)
    assert (within.verdict, between.verdict) == (OK, OK) and within.note == "GPU-0 → GPU-1 reaches 20.0"


def test_a_rate_is_that_of_nccl_tests() -> None:
    assert links.bus_rate(1 << 30, 8, 1.0) == 2 * 7 / 8 * (1 << 30)


@pytest.mark.parametrize(("net", "rate", "verdict"), [("IB", 50e9, OK), ("Socket", 50e9, SLOW), ("Socket", 0.0, OK)])
def test_sockets_beside_infiniband_are_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, net: str, rate: float, verdict: str
) -> None:
    (tmp_path / links.NCCL_LOG).write_text(LOG.format(net=net))
    monkeypatch.setattr(links, "infiniband_rate", lambda: rate)
    line = links._way_line(TwoNodes(tmp_path))  # type: ignore[arg-type]
    assert line.verdict == verdict
    assert line.measured == f"NET/{net} : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>; via P2P/CUMEM"


def test_the_network_s_rate_is_the_kernel_s(tmp_path: Path) -> None:
    for number, (state, rate) in enumerate(
        [("4: ACTIVE", "400 Gb/sec (4X NDR)"), ("4: ACTIVE", "400 Gb/sec"), ("1: DOWN", "10 Gb/sec")]
    ):
        port = tmp_path / f"mlx5_{number}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "rate").write_text(f"{rate}\n")
    assert links.infiniband_rate(tmp_path) == 2 * 50e9
    assert links.infiniband_rate(tmp_path / "none") == 0.0
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0/speed").write_text("25000\n")
    assert links.interface_rate("eth0", tmp_path) == 25e9 / 8
    assert links.interface_rate("lo", tmp_path) == 0.0


def test_gloo_s_interface_is_the_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert links.gloo_interface() == ("lo", "127.0.0.1")
