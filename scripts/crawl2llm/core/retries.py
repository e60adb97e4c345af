"""SLURM's commands, asked until there is an answer: a busy controller's silence is not one.

A controller under load refuses connections, lets calls time out or hang, and is away for minutes in an upgrade. Such a call
is asked again, with growing pauses, for 10 minutes. What SLURM itself says no to (`Invalid partition …`) is an answer.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from crawl2llm.core.console import print_line

# environment variable: seconds for which one question is asked (default 600)
LIMIT_VARIABLE = "CRAWL2LLM_SLURM_PATIENCE"
CALL, LONGEST_CALL = 30.0, 120.0  # seconds after which a call is cut off: the first, and at most (it doubles)
SHORTEST_CALL = 2.0  # the same of a question that is asked for less time than that
PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before the question is asked again: the first time, and at most (it doubles)
REPORT_AFTER = 15.0  # seconds of silence after which it is said

# From SLURM's own table of errors (src/common/slurm_errno.c), and those of sockets and munge. What matches neither is silence:
# to ask once more costs minutes, to take a failed question for an answer costs a run.
SILENCE = re.compile(
    r"unable to contact|unable to connect|connect failure|connection (refused|reset|timed out)|communication|timed out"
    r"|time-?out|zero bytes|standby|temporarily|authenticat|munge|credential|name resolution|not connected|no route"
    r"|unexpected message|shutting down|unspecified error|i/o error|try again|rate limit|protocol version|broken pipe",
    re.IGNORECASE,
)
ANSWER = re.compile(
    r"job submission failed|invalid|unrecogni[sz]ed|usage:|not found|does ?n[o']t exist|no such|denied|not permitted|disabled"
    r"|not running a supported|already|is pending|not pending|not supported|ambiguous|may not|required|violates",
    re.IGNORECASE,
)


# Words of a client that has found no configuration: there is no cluster to answer.
NO_CLUSTER = re.compile(r"fetch_config|resolve_ctls|could not establish a configuration source", re.IGNORECASE)


class SlurmError(RuntimeError):
    """A SLURM command failed; the message has its words."""


class SilentSlurmError(SlurmError):
    """SLURM did not answer a question for as long as it may take."""


class NoAnswerError(Exception):
    """One call failed or was cut off without an answer. Whether it reached the controller is not known."""


class RunStopped(BaseException):
    """The answer is not needed any more, for the run ends. No `except Exception` catches it as a failure of a job."""


class SilenceClock:
    """How long SLURM has been silent, over all questions of this process; it is reported once, and so is its end."""

    def __init__(self) -> None:
        self.lock, self.is_reported = threading.Lock(), False
        self.since: float | None = None
        self.report: Callable[[str], object] = lambda line: print_line(f"warning: {line}", file=sys.stderr, flush=True)

    def note_no_answer(self, why: str, limit: float) -> None:
        """A call got no answer."""
        with self.lock:
            now = time.monotonic()
            self.since = self.since or now
            if not self.is_reported and now - self.since >= REPORT_AFTER:
                self.is_reported = True
                self.report(f"SLURM does not answer ({why}); it is asked again for up to {limit:.0f} s")

    def note_answer(self) -> None:
        """A call was answered."""
        with self.lock:
            if self.is_reported and self.since:
                self.report(f"SLURM answers again, after {time.monotonic() - self.since:.0f} s")
            self.since, self.is_reported = None, False


silence = SilenceClock()


def is_answer(error: str, command: str = "") -> bool:
    """Whether a command's error is SLURM's answer, and not its silence.

    Words of the command's own do not count: a partition may be called `standby`, an account `communication`.
    """
    for word in {word for word in re.split(r"[\s=,:'\"]+", command) if SILENCE.search(word)}:
        error = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", "", error)
    return not SILENCE.search(error) and bool(ANSWER.search(error))


def ask_once(*command: str, timeout: float = CALL, shell: bool = False, script: str | None = None) -> str:
    """What a SLURM command prints, asked one time; `shell`: the command is one line for the shell, `script`: its input.

    It runs in a session of its own, so that Ctrl-C does not cut a submission in two. Raises SlurmError if the answer is
    an error or there is no such command, NoAnswerError if there is no answer.
    """
    name = Path(command[0].split()[0]).name
    try:
        process = subprocess.Popen(
            command[0] if shell else command,
            shell=shell,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise SlurmError(f"{name} is not installed here; run this on a login node") from None
    try:
        out, error = process.communicate(script, timeout)
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{name}: no answer within {timeout:g} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()
    if process.returncode == 0:
        return out
    words = " ".join(error.split()) or f"status {process.returncode}"
    if NO_CLUSTER.search(words):
        raise SlurmError(
            f"{name}: SLURM is not set up here: there is no slurm.conf, and no controller is known by DNS; run this on a login node of "
            "the cluster"
        )
    if process.returncode > 0 and is_answer(words, " ".join(command)):
        raise SlurmError(f"{' '.join(command) if not shell else name}: {words}")
    raise NoAnswerError(words if words.startswith(name) else f"{name}: {words}")


def seconds_to_ask(default: float = 600.0) -> float:
    """Seconds for which one question is asked: what the environment says, else `default`."""
    return float(os.environ.get(LIMIT_VARIABLE, default))


def retry_until_answered(
    attempt: Callable[[float], str], limit: float | None = None, stop: threading.Event | None = None
) -> str:
    """Call `attempt(seconds that a call may take)` until it returns, with pauses that grow and that chance varies.

    Raises SilentSlurmError if it raised NoAnswerError for `limit` seconds, RunStopped once `stop` is set.
    """
    limit = seconds_to_ask() if limit is None else limit
    stop = stop or threading.Event()
    begin, pause = time.monotonic(), PAUSE
    call = min(CALL, max(limit, SHORTEST_CALL))
    while not stop.is_set():
        try:
            answer = attempt(call)
        except NoAnswerError as error:
            silence.note_no_answer(str(error), limit)
            wait = pause * random.uniform(0.5, 1.5)  # noqa: S311
            if time.monotonic() + wait - begin > limit:
                raise SilentSlurmError(f"SLURM did not answer for {limit:.0f} s ({error})") from None
        except SlurmError:
            silence.note_answer()
            raise
        else:
            silence.note_answer()
            return answer
        call, pause = min(2 * call, LONGEST_CALL), min(2 * pause, LONGEST_PAUSE)
        stop.wait(wait)
    raise RunStopped


def ask_slurm(*command: str, limit: float | None = None, stop: threading.Event | None = None) -> str:
    """A SLURM command's output, asked again until there is an answer.

    Raises SlurmError if the answer is an error or the command is missing, SilentSlurmError if there is none for `limit` seconds.
    """
    return retry_until_answered(lambda timeout: ask_once(*command, timeout=timeout), limit, stop)
