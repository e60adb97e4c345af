"""What the test cluster needs of a machine: packages, the configuration's place, processes to be found and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CONF = Path("/etc/slurm")
MARK = "# written by tests/slurm/cluster.py of crawl2llm"
PACKAGES = ("munge", "slurm-wlm")
ACCOUNTING_PACKAGES = ("slurmdbd", "mariadb-server")


class ClusterError(RuntimeError):
    """The cluster cannot be started here; the message says why and what to do."""


def run(*command: str, timeout: float = 60, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command with captured output; ClusterError shows its stderr when it fails and `check` is set."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False
    )
    if check and done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed with status {done.returncode}: {done.stderr.strip()}")
    return done


def wait(what: str, ready: Callable[[], bool], seconds: float = 30) -> None:
    """Poll `ready` every 20 ms; ClusterError after `seconds`."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise ClusterError(f"timed out after {seconds:g} s: {what}")
        time.sleep(0.02)


def missing(accounting: bool = False) -> list[str]:
    """The Debian packages that are not installed."""
    wanted = PACKAGES + (ACCOUNTING_PACKAGES if accounting else ())
    return [name for name in wanted if "install ok installed" not in run("dpkg", "-s", name, check=False).stdout]


def obstacle(accounting: bool = False) -> str | None:
    """Why the cluster cannot run on this machine, or None."""
    if os.geteuid() != 0:
        return "a SLURM cluster of one's own needs root"
    if not shutil.which("dpkg"):
        return "not a Debian machine (no dpkg)"
    if packages := missing(accounting):
        flag = " --accounting" if accounting else ""
        return f"not installed: {', '.join(packages)} (python -m tests.slurm.cluster install{flag})"
    for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"):
        path = CONF / name
        if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
            return f"{path} belongs to another cluster; it is left alone"
    return None


def install(accounting: bool = False) -> None:
    """Install what is missing with apt-get; the daemons that Debian starts by itself are not started."""
    packages = missing(accounting)
    if not packages:
        return
    if os.geteuid() != 0:
        raise ClusterError(f"installing {', '.join(packages)} needs root")
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        policy.chmod(0o755)
    lock = ["-o", "DPkg::Lock::Timeout=300"]
    try:
        command = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *lock]
        run(*command, "update", "-qq", timeout=600)
        run(*command, "install", "-y", "-qq", "--no-install-recommends", *packages, timeout=1200)
    finally:
        if ours:
            policy.unlink()


def processes() -> Iterator[tuple[int, int, str, dict[str, str]]]:
    """(pid, parent, name, environment) of every process but this one."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            name, rest = stat[stat.index("(") + 1 :].rsplit(")", 1)
            pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            yield int(entry.name), int(rest.split()[1]), name, dict(p.split("=", 1) for p in pairs if "=" in p)


def holds(pid: int, path: Path) -> bool:
    """Whether a process has `path` open."""
    with contextlib.suppress(OSError):
        return any(str(link.readlink()) == str(path) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def kill(pids: set[int]) -> None:
    """End processes at one moment: all are stopped first, so that none can report the end of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in sorted(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
