"""Runs a program of these tests as one process group: copies of a process that has imported it, since imports take most of the time.

    python -m tests.unit.stages.pretrain.copied_group PROGRAM PROCESSES OPTION…

Ends with 1 if a process does; the others are killed then.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback

from crawl2llm.training.processes import environments, free_port


def main() -> int:
    program, processes, *options = sys.argv[1:]
    sys.argv = [program, *options]
    module = importlib.import_module(f"tests.unit.stages.pretrain.{program}")
    copies = set()
    for place in environments(0, 1, int(processes), "127.0.0.1", free_port()):
        if process := os.fork():
            copies.add(process)
            continue
        try:
            os.environ.update(place)
            module.main()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    while copies:
        process, status = os.wait()
        copies.discard(process)
        if status:
            for other in copies:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
