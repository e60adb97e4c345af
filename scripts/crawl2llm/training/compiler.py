"""Checks that torch.compile has a compiler and Python's headers, and names the folder of what it compiled.

For a GPU, Triton compiles a small C program for each kernel; for a CPU, Inductor compiles the kernels themselves, as C++.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import socket
import subprocess
import sysconfig
from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import digest

# By the device: the language, the variable that names a compiler, and those that are looked for without it. Sources: triton
# runtime/build.py, torch _inductor/config.py (cpp.cxx).
COMPILERS = {"cuda": ("c", "CC", ("gcc", "clang")), "cpu": ("c++", "CXX", ("g++",))}
SECONDS = 60  # that the trial may take
REMEDY = "or set compile_layers to false"


CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
CACHE_FOLDER = Path(".cache/compiled")  # below a run's working directory
PROCESSOR = Path("/proc/cpuinfo")


def cache_variables(folder: Path = CACHE_FOLDER) -> dict[str, str]:
    """The variable that has all jobs of a run share what torch.compile made; none if a person has set it.

    torch's default is in /tmp, so each node compiles again and times kernels again. Each kind of processor has a folder: C++ is compiled
    for the one at hand (-march=native), and the names in the cache do not say for which.
    """
    if CACHE_VARIABLE in os.environ:
        return {}
    try:
        lines = PROCESSOR.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    kind = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return {CACHE_VARIABLE: str(folder.absolute() / digest("\n".join([platform.machine(), *kind]))[:8])}


def check_compiler(device: str, key: str = "pretrain.train.compile_layers") -> None:
    """Compile a program that includes Python.h, as torch.compile will. device: `cuda` or `cpu`.

    Raises InputError, which names `key`, this machine, what is missing and what to do.
    """
    language, variable, usual = COMPILERS[device]
    where = f"{key} is true, and on {socket.gethostname()}"
    command = shlex.split(os.environ.get(variable, "")) or [name for name in usual if shutil.which(name)][:1]
    if not command or not shutil.which(command[0]):
        variable_text = f"{variable} is {command[0]!r}, which is not there" if command else f"{variable} is not set"
        raise InputError(
            f"{where} there is no compiler ({', '.join(usual)}; {variable_text}): install one (Debian: apt-get install {usual[0]}), "
            f"{REMEDY}"
        )
    include = sysconfig.get_path("include")
    if not (header := Path(include, "Python.h")).is_file():
        raise InputError(
            f"{where} Python's headers are missing ({header}): install them (Debian: apt-get install python3-dev), {REMEDY}"
        )
    trial = [*command, "-fsyntax-only", "-x", language, f"-I{include}", "-"]
    try:
        done = subprocess.run(
            trial, input="#include <Python.h>\n", capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{where} {command[0]} does not work: {error}; mend it, {REMEDY}") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines()]
        problem = next((line for line in lines if "error" in line), f"status {done.returncode}")
        raise InputError(f"{where} {command[0]} does not compile a program with Python.h: {problem}; mend it, {REMEDY}")
