"""Snakemake in copies of a process that has imported it: the imports take two thirds of a short run.

A copy is a process of its own, with the command line, folder, environment and output that it is given, and ends as a program does.
Variables that Python reads when it starts (PYTHONHASHSEED, PYTHONDONTWRITEBYTECODE) have no effect: all copies have one hash seed.
Tests of signals, terminals and the start itself use `python -m snakemake`, as people do.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_server: list[subprocess.Popen[str]] = []  # of this process
_turn = threading.Lock()  # a line is answered before the next is written
SECONDS = 900.0  # that a run may take


def server() -> subprocess.Popen[str]:
    """The process that is copied; it is started by the first who asks, and ends with this one."""
    if not _server:
        left = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        made = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=left
        )
        _server.append(made)
        atexit.register(made.kill)
    return _server[0]


def snakemake(
    *options: str, cwd: Path, env: dict[str, str], merge: bool = True, seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """`python -m snakemake OPTIONS`, run to its end; `merge`: what it says on stderr is in stdout, in order.

    Raises TimeoutExpired, with what was said, where a run takes longer than `seconds`, which end it.
    """
    with tempfile.TemporaryDirectory(prefix="crawl2llm-said-") as name, _turn:
        process = server()
        assert process.stdin and process.stdout
        files = [Path(name, "stdout"), Path(name, "stdout" if merge else "stderr")]
        given = {"options": options, "cwd": str(cwd), "env": env, "files": list(map(str, files)), "seconds": seconds}
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the process that is copied has ended"
        said = [path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in files]
    if int(answer) == -signal.SIGALRM:
        raise subprocess.TimeoutExpired(list(options), seconds, said[0], "" if merge else said[1])
    return subprocess.CompletedProcess(list(options), int(answer), said[0], "" if merge else said[1])


def become(given: dict[str, Any]) -> None:
    """Make this copy what was asked for. On Linux it ends with the process that it is a copy of."""
    signal.setitimer(signal.ITIMER_REAL, given["seconds"])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    for target, path in ((0, os.devnull), *enumerate(given["files"], 1)):
        opened = os.open(path, os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, target)
        os.close(opened)
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["cwd"])
    own = [path for path in given["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [given["cwd"], *own, *(path for path in sys.path[1:] if path not in own)]
    sys.argv[:] = ["snakemake", *given["options"]]


def serve() -> bool:
    """Copy this process for each line of stdin; True in a copy, and False at the end of stdin."""
    import snakemake.cli  # noqa: F401 - what all copies have

    gc.freeze()  # copies share its memory, also where they collect
    while line := sys.stdin.readline():
        if not (child := os.fork()):
            become(json.loads(line))
            return True
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return False


if __name__ == "__main__" and serve():
    from snakemake.cli import main

    main()
