"""A real SLURM cluster on one Debian machine: munge, slurmctld and seven slurmd, started and stopped by the tests.

    python -m tests.slurm.cluster install [--accounting]
    python -m tests.slurm.cluster start [--accounting]
    python -m tests.slurm.cluster status | crash h1 | revive h1 | stop

Nodes: cpu1, cpu2 in partition `cpu`; h1, h2 in `h100` with gres gpu:h100:8 on character devices that are copies of
/dev/null; f1, f2 in `fragile` and p1 in `low` and `urgent` (which preempts `low`) are the same, for the tests that break
something. Node sizes are declared, not measured. As root, without systemd and without cgroups, every daemon on a loopback
address, all state in one run directory.

The configuration itself has to lie in /etc/slurm: the executor's jobstep removes SLURM_CONF from a job's environment.
A configuration there that this module did not write is never touched.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.slurm.machine import CONF, MARK, ClusterError, holds, install, kill, obstacle, processes, run, wait

RUN = Path(os.environ.get("CRAWL2LLM_SLURM_RUN", "/var/lib/crawl2llm-slurm"))
HOSTS = Path("/etc/hosts")
NAME = "crawl2llm"
TEMPLATES = Path(__file__).resolve().parent / "conf"
MARIADB_PORT = 26306
NODES = ("cpu1", "cpu2", "h1", "h2", "f1", "f2", "p1")
GPUS = 8


class Cluster:
    """One cluster in one run directory. As a context manager it is started on entry and stopped on exit."""

    def __init__(self, accounting: bool = False, run: Path = RUN) -> None:
        self.accounting, self.run = accounting, run
        self.host = socket.gethostname().split(".")[0]

    def __enter__(self) -> Cluster:
        self.start(owner=os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- starting

    def start(self, owner: int = 0) -> None:
        """Start every daemon and wait until all nodes are idle.

        owner: the process that will stop the cluster; 0 for a person. What a dead owner left behind is removed first.
        Raises ClusterError where the machine does not allow it or a living owner has the cluster.
        """
        if reason := obstacle(self.accounting):
            raise ClusterError(reason)
        if self._pid("slurmctld") is not None:
            found = self._owner()
            if found == 0:
                raise ClusterError("a cluster started by hand is running: python -m tests.slurm.cluster stop")
            if Path(f"/proc/{found}").exists():
                raise ClusterError(f"a cluster is in use by process {found}")
        self.stop()
        for name in ("munge", "ctld", "spool", "pid", "log", "mysql", "dev"):
            (self.run / name).mkdir(parents=True)
        self.run.chmod(0o755)
        (self.run / "owner").write_text(str(owner), encoding="utf-8")
        try:
            self._write_configuration()
            self._start_munge()
            if self.accounting:
                self._start_accounting()
            self._start_controller("-c")
            for node in NODES:
                self._start_node(node, "-c")
            wait("all nodes idle", lambda: self.states() == dict.fromkeys(NODES, "idle"))
        except BaseException:
            self._show_logs()
            self.stop()
            raise

    def _render(self, name: str, target: Path, mode: int = 0o644, **values: object) -> None:
        text = (TEMPLATES / name).read_text(encoding="utf-8")
        facts = {"RUN": self.run, "HOST": self.host, "GPUS": GPUS - 1, **values}
        for key, value in facts.items():
            text = text.replace(f"@{key}@", str(value))
        target.write_text(f"{MARK}; run directory {self.run}\n{text}", encoding="utf-8")
        target.chmod(mode)

    def _write_configuration(self) -> None:
        CONF.mkdir(exist_ok=True)
        address = self._write_hosts()
        accounting = (TEMPLATES / ("accounting.conf" if self.accounting else "no-accounting.conf")).read_text("utf-8")
        accounting = accounting.replace("@RUN@", str(self.run))
        self._render("slurm.conf", CONF / "slurm.conf", ACCOUNTING=accounting, ADDRESS=address)
        self._render("gres.conf", CONF / "gres.conf")
        version = run("slurmctld", "-V").stdout.split()[-1]
        if tuple(map(int, version.split(".")[:2])) >= (23, 11):
            # From 23.11 on cgroups are set up even where no plugin asks for them.
            (CONF / "cgroup.conf").write_text(f"{MARK}\nCgroupPlugin=disabled\n", encoding="utf-8")
        for number in range(GPUS):
            os.mknod(self.run / "dev" / f"nvidia{number}", 0o666 | 0o020000, os.makedev(1, 3))

    def _write_hosts(self) -> str:
        """Name the nodes in /etc/hosts; returns the loopback address that this host's own name has, or now has.

        The daemons listen on the address of the host's name, so it has to be a loopback one.
        """
        address = socket.gethostbyname(self.host)
        before = ""
        if not address.startswith("127."):
            address, before = "127.0.0.1", f"127.0.0.1 {self.host} {MARK}\n"
        after = "".join(f"127.0.0.1 {node} {MARK}\n" for node in NODES)
        text = HOSTS.read_text(encoding="utf-8")
        end = "" if text.endswith("\n") else "\n"
        HOSTS.write_text(before + text + end + after, encoding="utf-8")
        return address

    def _start_munge(self) -> None:
        """A munged of the cluster's own, on a socket in the run directory."""
        key = self.run / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        run(
            "munged",
            f"--key-file={key}",
            f"--socket={self.run}/munge/socket",
            f"--pid-file={self.run}/pid/munged.pid",
            f"--log-file={self.run}/munge/log",
            f"--seed-file={self.run}/munge/seed",
            "--num-threads=4",
            "--force",
        )

    def _start_accounting(self) -> None:
        """MariaDB and slurmdbd, with one account `crawl2llm` of user root."""
        data, user = self.run / "mysql", ["--no-defaults", "--user=root", f"--datadir={self.run}/mysql"]
        run("mariadb-install-db", *user, "--skip-test-db", "--auth-root-authentication-method=socket", timeout=900)
        shutil.copy(TEMPLATES / "accounts.sql", data.parent / "accounts.sql")
        with (self.run / "log" / "mariadbd.log").open("wb") as log:
            subprocess.Popen(
                [
                    "mariadbd",
                    *user,
                    f"--socket={self.run}/mysql.sock",
                    "--bind-address=127.0.0.1",
                    f"--port={MARIADB_PORT}",
                    f"--pid-file={self.run}/pid/mariadbd.pid",
                    f"--init-file={self.run}/accounts.sql",
                    "--innodb-buffer-pool-size=64M",
                    "--innodb-log-file-size=16M",
                    "--innodb-lock-wait-timeout=900",
                    "--innodb-flush-log-at-trx-commit=0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{MARIADB_PORT}", "-uslurm", "-pslurm"]
        wait("mariadb", lambda: run(*client, "-e", "use slurm_acct_db", check=False).returncode == 0, 60)
        self._render("slurmdbd.conf", CONF / "slurmdbd.conf", mode=0o600)
        run("slurmdbd")
        wait("slurmdbd", lambda: run("sacctmgr", "-n", "list", "cluster", check=False).returncode == 0, 60)
        run("sacctmgr", "-i", "add", "cluster", NAME)
        run("sacctmgr", "-i", "add", "account", NAME, f"description={NAME}", f"organization={NAME}")
        run("sacctmgr", "-i", "add", "user", "root", f"account={NAME}")

    def _start_controller(self, *options: str) -> None:
        run("slurmctld", *options)
        wait("slurmctld answers", lambda: "UP" in run("scontrol", "ping", check=False).stdout)

    def _start_node(self, node: str, *options: str) -> None:
        (self.run / "spool" / node).mkdir(exist_ok=True)
        run("slurmd", *options, "-N", node)

    # ---- looking

    def states(self) -> dict[str, str]:
        """Node → state as sinfo shows it (`idle`, `mixed`, `down*`, …)."""
        out = run("sinfo", "-h", "-N", "-o", "%N %T", check=False).stdout
        return dict(line.split() for line in sorted(set(out.splitlines())))

    def status(self) -> str:
        """Daemons, nodes and queue, for a person."""
        lines = [f"run directory {self.run}, owner {self._owner() or 'a person'}"]
        for path in sorted((self.run / "pid").glob("*.pid")):
            pid = self._pid(path.stem)
            lines.append(f"{path.stem:<16} {f'pid {pid}' if pid else 'not running'}")
        lines.append(run("sinfo", "-N", "-o", "%8N %10P %8T %4c %8m %G", check=False).stdout)
        lines.append(run("squeue", "-o", "%8i %10P %10T %10M %N %k", check=False).stdout)
        return "\n".join(lines)

    def _owner(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int((self.run / "owner").read_text(encoding="utf-8"))
        return 0

    def _pid(self, daemon: str) -> int | None:
        """The process of a daemon's pid file, if it lives and is that daemon (slurmd-h1 → slurmd)."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.run / "pid" / f"{daemon}.pid").read_text(encoding="utf-8"))
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
            if f"({daemon.split('-')[0]})" in stat and stat.rsplit(")", 1)[1].split()[0] != "Z":
                return pid
        return None

    def _show_logs(self) -> None:
        for path in sorted((self.run / "log").glob("*.log")):
            tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            if tail:
                print(f"--- {path.name}", *tail, sep="\n", file=sys.stderr)

    # ---- breaking and mending

    def _job_processes(self, node: str | None = None) -> set[int]:
        """The processes of the cluster's jobs, on one node or on all: the step daemons and what runs below them."""
        logs = [self.run / "log" / f"slurmd-{name}.log" for name in ([node] if node else NODES)]
        children: dict[int, list[int]] = {}
        found: set[int] = set()
        for pid, parent, name, environment in processes():
            children.setdefault(parent, []).append(pid)
            step = name == "slurmstepd" and any(holds(pid, log) for log in logs)
            job = environment.get("SLURM_CLUSTER_NAME") == NAME and "SLURM_JOB_ID" in environment
            if step or (job and node in (None, environment.get("SLURMD_NODENAME"))):
                found.add(pid)
        queue = list(found)
        while queue:
            for child in children.get(queue.pop(), []):
                if child not in found:
                    found.add(child)
                    queue.append(child)
        return found

    def crash(self, node: str) -> None:
        """A power loss: SIGKILL to the node's slurmd, its step daemons and every process of its jobs."""
        pid = self._pid(f"slurmd-{node}")
        kill(({pid} if pid else set()) | self._job_processes(node))
        kill(self._job_processes(node))  # what was being forked meanwhile

    def revive(self, node: str) -> None:
        """The crashed node comes back as after a reboot, and is idle again."""
        self._start_node(node, "-c")
        wait(f"{node} idle", lambda: self.states().get(node) == "idle", 60)

    def restart_controller(self, away: float = 0) -> None:
        """slurmctld ends as in an upgrade (it saves its state) and is started again, after `away` seconds."""
        if pid := self._pid("slurmctld"):
            os.kill(pid, signal.SIGTERM)
            wait("slurmctld ends", lambda: self._pid("slurmctld") is None)
        time.sleep(away)
        self._start_controller()

    # ---- stopping

    def stop(self) -> None:
        """End what this cluster started and remove its configuration; safe to call on leftovers, or on nothing."""
        jobs = self._job_processes()
        daemons = [path.stem for path in sorted((self.run / "pid").glob("*.pid"))]
        kill({pid for name in daemons if name.startswith("slurmd-") and (pid := self._pid(name))})
        kill(jobs | self._job_processes())
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            pid = self._pid(name)
            if pid is None:
                continue
            # Nothing here is worth a clean end, but the database shares its directory with what is removed below.
            os.kill(pid, signal.SIGTERM if name == "mariadbd" else signal.SIGKILL)
            wait(f"{name} ends", lambda name=name: self._pid(name) is None)  # type: ignore[misc]
        for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"):
            path = CONF / name
            if path.exists() and MARK in path.read_text(encoding="utf-8", errors="replace"):
                path.unlink()
        with contextlib.suppress(OSError):
            CONF.rmdir()  # only where it is empty
        hosts = HOSTS.read_text(encoding="utf-8")
        if MARK in hosts:
            kept = [line for line in hosts.splitlines(keepends=True) if MARK not in line]
            HOSTS.write_text("".join(kept), encoding="utf-8")
        shutil.rmtree(self.run, ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.slurm.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["install", "start", "stop", "status", "crash", "revive"])
    parser.add_argument("node", nargs="?", choices=NODES, help="for crash and revive")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB, so that sacct answers")
    args = parser.parse_args(argv)
    cluster = Cluster(args.accounting)
    if args.action in ("crash", "revive") and not args.node:
        parser.error(f"{args.action} needs a node: {', '.join(NODES)}")
    begin = time.monotonic()
    try:
        if args.action == "install":
            install(args.accounting)
        elif args.action in ("crash", "revive"):
            getattr(cluster, args.action)(args.node)
        elif args.action == "status":
            print(cluster.status())
            return 0
        else:
            getattr(cluster, args.action)()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.action} {args.node or ''}".rstrip() + f": {time.monotonic() - begin:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
