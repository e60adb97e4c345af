"""Programs of a model, run by bubblewrap: without network, other processes, a file to write or a secret to read; memory and time bounded.

A program and its tests are two processes (sandboxed_program.py), in a sandbox each. What is right is said by the one without the program,
over a pipe of its own: a program that ends early, prints, or replaces what it finds decides nothing but the values that it returns.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.stages.evaluate import sandboxed_program
from crawl2llm.stages.evaluate.sandboxed_program import ANSWER, ENDED, JOB, JUDGE

SECONDS = (
    60  # of the wall clock, after which what waits is ended; what computes is ended before (sandboxed_program.LIMITS)
)
NOBODY = "65534"
PROGRAM = "/program.py"
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")  # read-only; nothing else of /etc
# System calls that are refused, by processor: (its number in audit.h, these calls, clone, clone3). x86-64: fork, vfork, unshare, shmget,
# msgget, memfd_create, io_uring_setup, memfd_secret; arm64 has no fork and vfork.
CALLS = {
    "x86_64": (0xC000003E, (57, 58, 272, 29, 68, 319, 425, 447), 56, 435),
    "aarch64": (0xC00000B7, (97, 194, 186, 279, 425, 447), 220, 435),
}
LOAD, EQUAL, AT_LEAST, HAS_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of Linux's filters
ALLOW, REFUSE, UNKNOWN_CALL, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
SIGNALLED = 128  # from here on bwrap's status says which signal ended the process
THREAD, OTHER_ABI = 0x10000, 0x40000000  # a flag of clone; the numbers of x32's calls


def system_call_filter(machine: str) -> bytes:
    """A filter for seccomp that refuses processes, and memory that no limit counts. Threads are let through."""
    processor, refused, clone, clone3 = CALLS[machine]
    steps = [
        (LOAD, 0, 0, 4), (EQUAL, 1, 0, processor), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0),
        (AT_LEAST, 0, 1, OTHER_ABI), (RETURN, 0, 0, REFUSE),
    ]  # fmt: skip
    for number in refused:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    steps += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, UNKNOWN_CALL)]  # the C library takes clone then
    steps += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, 16), (HAS_BITS, 1, 0, THREAD), (RETURN, 0, 0, REFUSE)]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, (RETURN, 0, 0, ALLOW)])


def sandbox_command(job: Path, role: str, filter_number: int) -> list[str]:
    """The command of one of the two processes. filter_number: that of the open file of its filter."""
    packages = sysconfig.get_path("purelib")
    command = ["bwrap", "--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY, "--die-with-parent"]
    for path in SYSTEM:
        command += ["--ro-bind-try", path, path]
    for path in (sys.base_prefix, packages):
        command += [] if f"{path}/".startswith("/usr/") else ["--ro-bind", path, path]
    command += ["--dev-bind", os.devnull, os.devnull, "--ro-bind", sandboxed_program.__file__, PROGRAM]
    command += ["--ro-bind", str(job), JOB, "--remount-ro", "/", "--chdir", "/", "--new-session"]
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return [*command, "--seccomp", str(filter_number), str(python), "-s", "-S", "-B", PROGRAM, role, packages]


def start_role(role: str, job: dict[str, str], folder: Path, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    """One of the two processes; both ends of its pipes are closed here."""
    path, filter_path = folder / f"{role}.json", folder / f"{role}.filter"
    path.write_text(json.dumps(job), encoding="utf-8")
    filter_path.write_bytes(system_call_filter(platform.machine()))
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    try:
        with filter_path.open("rb") as file:
            number = file.fileno()
            return subprocess.Popen(
                sandbox_command(path, role, number),
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE if role == JUDGE else subprocess.DEVNULL,
                pass_fds=[number],
                env=environment,
            )
    finally:
        os.close(stdin)
        os.close(stdout)


def run_tests(program: str, function: str, prompt: str, test: str) -> dict[str, Any]:
    """Whether a program passes tests: right; error, the name of what failed, or ENDED if it took too long or ended itself.

    program: Python that defines `function`. prompt: what the tests may call besides. test: Python that defines `check(candidate)`.
    Raises InputError for tests that do not run, and if the sandbox fails.
    """
    (calls, call), (values, value) = os.pipe(), os.pipe()
    processes = list[subprocess.Popen[bytes]]()
    with tempfile.TemporaryDirectory() as name:
        try:
            answer_job = {"program": program, "function": function}
            judge_job = {"prompt": prompt, "test": test, "function": function}
            processes.append(start_role(ANSWER, answer_job, Path(name), calls, value))
            processes.append(start_role(JUDGE, judge_job, Path(name), values, call))
            output = processes[1].communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            return {"right": False, "error": ENDED}
        finally:
            for process in processes:  # with all that runs in its sandbox
                process.kill()
                process.wait()
    if processes[1].returncode >= SIGNALLED:
        return {"right": False, "error": ENDED}
    try:
        verdict: dict[str, Any] = json.loads(output)
    except ValueError:
        message = output.decode(errors="replace").strip()
        raise InputError(
            f"bubblewrap cannot run programs on {socket.gethostname()}: {message or 'no message'}"
        ) from None
    if "broken" in verdict:
        raise InputError(f"the tests do not run: {verdict['broken']}")
    return verdict


@cache
def check_sandbox(tasks: tuple[str, ...]) -> None:
    """Raise InputError, which says what to install, if programs cannot be run on this machine that models write for `tasks`, if for any."""
    if not tasks:
        return
    subject = (
        f"evaluate.public.presets has {' and '.join(map(repr, tasks))}, where programs of models are run by bubblewrap"
    )
    advice = (
        "install it there and on each node that runs evaluate.public (apt install bubblewrap), or leave the task out"
    )
    host = socket.gethostname()
    if platform.machine() not in CALLS:
        raise InputError(f"{subject}, which is possible on {' and '.join(CALLS)}; {host} is {platform.machine()}")
    if not shutil.which("bwrap"):
        raise InputError(f"{subject}, and {host} has no bwrap: {advice}")
    try:
        run_tests("def one():\n    return 1", "one", "", "def check(candidate):\n    assert candidate() == 1")
    except InputError as error:
        raise InputError(f"{subject}, and it must be allowed to make user namespaces: {error}") from error
