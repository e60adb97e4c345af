"""The device of each process of a training: what `auto` does on several nodes, with real processes that meet over TCP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crawl2llm.core import devices
from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.training import group
from crawl2llm.training.processes import environments, free_port

# A process of one of several nodes: its name, and how many GPUs torch is made to see there.
NODE = """
import os, socket, sys
import torch
host, gpus = sys.argv[1], int(sys.argv[2])
socket.gethostname = lambda: host
torch.cuda.device_count = lambda: gpus
torch.cuda.set_device = lambda device: None
from crawl2llm.training import group
from crawl2llm.core.errors import InputError
try:
    device = group.choose_device("auto", 1)
except InputError as error:
    print(error)
    raise SystemExit(1)
if device.type == "cpu":
    group.join_group(device, 1)
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    print(device, int(total))
    torch.distributed.destroy_process_group()
else:
    print(device)
"""


def on_nodes(**gpus: int) -> list[tuple[int, str]]:
    """(status, output) of a process on each node with so many GPUs."""
    place = {"WORLD_SIZE": str(len(gpus)), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(free_port()), "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, "-c", NODE, host, str(number)],
            env={**os.environ, **place, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True,
        )
        for rank, (host, number) in enumerate(gpus.items())
    ]  # fmt: skip
    return [(process.wait(timeout=900), process.stdout.read().strip()) for process in started if process.stdout]


def test_nodes_that_are_alike_train_together() -> None:
    assert on_nodes(a=0, b=0) == [(0, "cpu 2")] * 2


def test_a_node_without_gpus_among_others_is_an_error_on_all_that_names_it() -> None:
    found = on_nodes(a=1, b=0)
    assert [status for status, _ in found] == [1, 1]
    for _, said in found:
        assert "pretrain.train.device is 'auto', and the nodes differ: torch sees no GPU on b, and GPUs on a" in said


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")


def test_a_cpu_in_place_of_gpus_is_not_silent(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has a GPU, and torch is a build that does not see it."""
    said: list[str] = []
    monkeypatch.setattr(group.log, "warning", lambda text, *args: said.append(text % args))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(devices, "driver_version", lambda *_: "535.104.05")
    monkeypatch.setattr(devices, "visible_gpus", lambda *_: ["GPU-1"])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert group.choose_device("auto", 1, "finetune.train").type == "cpu"
    assert len(said) == 1 and "finetune.train.device is 'auto'" in said[0] and "535.104.05 is too old" in said[0]
    with pytest.raises(InputError, match=r"device is 'cuda', but torch .*535\.104\.05 is too old"):
        group.choose_device("cuda", 1)
    monkeypatch.setattr(devices, "visible_gpus", lambda *_: [])  # as under CUDA_VISIBLE_DEVICES=""
    assert group.choose_device("auto", 1).type == "cpu" and len(said) == 1


def test_more_processes_than_gpus(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv(devices.VISIBLE_VARIABLE, "MIG-1,MIG-2")
    with pytest.raises(InputError, match=r"processes is 2, more than the 1 CUDA devices of this node .*MIG-1,MIG-2"):
        group.choose_device("auto", 2)


LISTENING = """if True:
    import os
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from crawl2llm.training import group

    group.join_group(torch.device("cpu"), 1)
    own = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:  # LISTEN
                print(table, words[1].split(":")[0], flush=True)
    dist.barrier()
    group.leave_and_exit(0)
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no /proc/net/tcp, which says who listens where")
def test_processes_of_one_machine_listen_on_loopback_alone() -> None:
    together = [
        subprocess.Popen(
            [sys.executable, "-c", LISTENING],
            env={**os.environ, "PYTHONPATH": str(ROOT), **places},
            stdout=subprocess.PIPE,
            text=True,
        )
        for places in environments(0, 1, 2, "127.0.0.1", free_port())
    ]
    said = [process.communicate(timeout=900)[0].splitlines() for process in together]
    assert said[0] and {line for lines in said for line in lines} == {"tcp 0100007F"}
