"""Memory that runs out is said in one line, with what to change, in the first steps of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.stages.pretrain.conftest import Start
from tests.unit.stages.pretrain.runs import finish

# As crawl2llm.stages.pretrain.train, in an address space that leaves a few megabytes for what training itself takes.
PROGRAM = """
import resource, sys
from crawl2llm.training import run; from crawl2llm.stages.pretrain import train
whole = run.Run.rehearse_validation
def bounded(self):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + {room}, resource.RLIM_INFINITY))
    whole(self)
run.Run.rehearse_validation = bounded
if __name__ == "__main__":
    sys.exit(train.main())
"""
WIDE = {"model": {"hidden_size": 64, "intermediate_size": 4096, "layers": 4, "heads": 4, "kv_heads": 4, "context": 32}}


@pytest.mark.slow  # starts a training
@pytest.mark.parametrize(
    ("room", "where"), [(1 << 20, "a validation, tried before the first step"), (300 << 20, r"step [12]")]
)
def test_it_says_where_and_what_to_change(start: Start, tmp_path: Path, room: int, where: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "bounded.py").write_text(PROGRAM.format(room=room))
    changes = {**WIDE, "global_batch_tokens": 32 * 64, "steps": 4}
    process = start(folder, 1, changes, "--micro-batch=64", program="bounded")
    said = finish(process, 1)
    assert re.search(
        f"error: memory ran out in {where} \\(.*DefaultCPUAllocator.*set pretrain.train.micro_batch to 32 ", said
    ), said
    assert "Traceback" not in said
