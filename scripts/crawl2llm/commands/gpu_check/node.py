"""Starts the processes of gpu-check on one node of a SLURM job: srun runs it once on each.

srun … python -m crawl2llm.commands.gpu_check.node NODES PROCESSES ADDRESS PORT SCRATCH OPTION… (options of worker.py)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from crawl2llm.training.processes import environments, supervise

WORKER = [sys.executable, "-m", "crawl2llm.commands.gpu_check.worker"]


def nccl_variables(scratch: Path) -> dict[str, str]:
    """What has NCCL write which way it goes: for process 0."""
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(scratch / "nccl.log")}


def main(argv: list[str]) -> int:
    """Run them to their end; the exit status is that of the first that failed."""
    nodes, processes, address, port, scratch, *options = argv
    node = int(os.environ["SLURM_PROCID"])
    places = environments(node, int(nodes), int(processes), address, int(port))
    if node == 0:
        places[0] |= nccl_variables(Path(scratch))
    return supervise([([*WORKER, *options], os.environ | place) for place in places], listening=False, step="gpu-check")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
