"""Trainings in copies of a process that has imported them: the imports of a process take four seconds, and a tiny training one.

The launcher is a copy, and so are the processes that it starts, each a process of its own with the folder, environment, signals and output
that it would have. Variables that are read when a program starts (PYTHONHASHSEED, GLIBC_TUNABLES) have no effect. `python -m tests.kills`,
the workflow's tests, and those of the launcher and of memory start programs as people do.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from crawl2llm.core.root import ROOT

LAUNCHER = "crawl2llm.training.launch"
POLL = 0.01  # seconds
_server: list[subprocess.Popen[str]] = []  # of this process
end_at_once = os._exit  # tests replace it in a training
_turn = threading.Lock()  # a line is answered before the next is written


def ask(**given: Any) -> Any:
    """The server's answer. It is started by the first who asks, and ends with this process."""
    with _turn:
        if not _server:
            left = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
            left |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            made = subprocess.Popen(
                [sys.executable, "-m", __name__], cwd=ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=left,
            )  # fmt: skip
            _server.append(made)
            atexit.register(made.kill)
        process = _server[0]
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the process that is copied has ended"
        return json.loads(answer)


class Launched:
    """What tests use of a subprocess.Popen of the launcher, in a process group of its own; its stderr is a file."""

    def __init__(self, options: list[str], cwd: Path, env: dict[str, str]) -> None:
        handle, name = tempfile.mkstemp(prefix="crawl2llm-said-")
        os.close(handle)
        self.said, self.returncode = Path(name), None
        weakref.finalize(self, self.said.unlink, missing_ok=True)
        self.pid: int = ask(options=options, cwd=str(cwd), env=env, said=name)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = ask(pid=self.pid)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(LAUNCHER, timeout, None, self.said.read_bytes())
            time.sleep(POLL)
        return status

    def communicate(self, timeout: float = float("inf")) -> tuple[None, str]:
        self.wait(timeout)
        return None, self.said.read_text(encoding="utf-8", errors="replace")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# In the server and its copies


def finished(process: Launched, status: int = 0) -> str:
    """What a program that ends with this status wrote to stderr."""
    try:
        _, said = process.communicate(timeout=900)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status, said
    return said


class Started:
    """What the launcher uses of a subprocess.Popen of `python -m MODULE OPTIONS`."""

    def __init__(
        self,
        command: list[str],
        env: dict[str, str],
        preexec_fn: Callable[[], None],
        stderr: int,
        pass_fds: Sequence[int],
    ) -> None:
        # A fork has all files of its parent, so also those of `pass_fds`.
        reading, writing = os.pipe()
        self.returncode: int | None = None
        if not (child := os.fork()):
            os.dup2(writing, 2)
            os.close(reading)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            preexec_fn()
            become(env, command[3:])
            run(command[2])
        os.close(writing)
        self.pid, self.stderr = child, open(reading, "rb")  # noqa: SIM115 - as a Popen has it
        self.turn = threading.Lock()  # one thread polls, and another waits

    def poll(self) -> int | None:
        with self.turn:
            if self.returncode is None:
                self.returncode = status_of(self.pid)
        return self.returncode

    def wait(self) -> int:
        while (status := self.poll()) is None:
            time.sleep(POLL)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def status_of(child: int) -> int | None:
    """The exit status of a child of this process; None where it has not ended."""
    ended, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(env: dict[str, str], options: list[str]) -> None:
    """Have the environment and the options of another program."""
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = options
    gc.callbacks.clear()  # those of pytest's plugins: a Ctrl-C that arrives within one would be lost


def run(module: str) -> NoReturn:
    """Run a module as `python -m` does, and end this process with its status."""
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0, closefd=False), write_through=True)
    sys.modules.pop(module, None)
    status: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    end_at_once(status if isinstance(status, int) else int(bool(status)))


def launch(options: list[str], cwd: str, env: dict[str, str], said: str) -> NoReturn:
    """Make this copy the launcher. It ends with the server."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    for target, opened in ((0, os.open(os.devnull, os.O_RDONLY)), (2, os.open(said, os.O_WRONLY | os.O_APPEND))):
        os.dup2(opened, target)
        os.close(opened)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become(env, options)
    os.chdir(cwd)
    sys.path[0] = cwd  # as `python -m` has it
    from crawl2llm.training import processes

    processes.subprocess = Processes  # type: ignore[assignment]
    run(LAUNCHER)


class Processes:
    """The names of the module subprocess that the launcher uses."""

    Popen, PIPE = Started, subprocess.PIPE


def serve(answers: IO[str]) -> None:
    """Copy this process for each request on stdin, and say how copies ended; until the end of stdin."""
    os.environ["DS_ACCELERATOR"] = "cpu"  # as group.join_group has it; transformers looks for one
    # What all copies have. By far the most is what writing a model takes, by any engine: transformers imports DeepSpeed then, and prepares
    # a table of names.
    import deepspeed  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    import crawl2llm.stages.finetune.train
    import crawl2llm.stages.pretrain.train
    import crawl2llm.training.engines.torch
    import crawl2llm.training.launch  # noqa: F401

    get_checkpoint_conversion_mapping("llama")
    assert threading.active_count() == 1, "a copy has none of the threads"
    gc.freeze()  # copies share its memory, also where they collect
    while line := sys.stdin.readline():
        given = json.loads(line)
        if "pid" in given:
            answer = status_of(given["pid"])
        elif not (answer := os.fork()):
            launch(**given)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.stdout)
