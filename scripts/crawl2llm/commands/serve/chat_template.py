"""A model's chat template, which is a program in Jinja that somebody else may have written: it runs in a process of its own with limits.

The process stays for the next conversation, so that one costs a tenth of a millisecond and not a start. Every conversation has the
limits: a template may look at what it is given before it loops.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from crawl2llm.commands.serve import chat_tokens
from crawl2llm.core.errors import InputError
from crawl2llm.core.root import CODE

PROGRAM = "crawl2llm.commands.serve.template_worker"
TIME_ERROR = "it did not come to an end within a second of processor time"


class ChatTemplate:
    """`template` in Jinja; special: the special tokens by the names that templates know (`eos_token`). where: what it is of, for errors."""

    def __init__(self, template: str, special: Mapping[str, str], where: str) -> None:
        self.template, self.special, self.where = template, dict(special), where
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None

    def __call__(self, messages: chat_tokens.Messages) -> str:
        """A conversation as text, up to where its answer begins. Raises InputError for one that the template cannot lay out."""
        line = json.dumps({"template": self.template, "messages": messages, "special": self.special})
        with self.lock:
            answer = self._ask_worker(line)
        if "error" in answer:
            raise InputError(f"{self.where}: its chat template cannot lay out this conversation: {answer['error']}")
        return answer["text"]

    def _ask_worker(self, line: str) -> dict[str, str]:
        if self.process and self.process.poll() is not None:  # it died since
            self._close_pipes()
        process = self.process = self.process or self._start_worker()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            if reply := process.stdout.readline():
                return dict(json.loads(reply))
        except OSError:
            pass
        process.wait()
        self._close_pipes()
        ended = -process.returncode
        if ended == signal.SIGPROF:
            return {"error": TIME_ERROR}
        name = signal.Signals(ended).name if ended in set(signal.Signals) else f"status {process.returncode}"
        return {"error": f"its process ended with {name}"}

    def _close_pipes(self) -> None:
        """Close the pipes of a process that ended."""
        self.process = None
        self.end()

    def _start_worker(self) -> subprocess.Popen[str]:
        paths = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
        environment: dict[str, Any] = {
            **os.environ,
            "PYTHONPATH": paths,
            "OPENBLAS_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip
        self.end = weakref.finalize(self, _end_process, process)
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            process.kill()
            raise InputError(
                f"{self.where}: {PROGRAM}, which lays out conversations, does not start; try {sys.executable} -m {PROGRAM}"
            )
        return process


def _end_process(process: subprocess.Popen[str]) -> None:
    """End a process whose template nobody asks any more."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what it did not read is lost
            if pipe:
                pipe.close()
