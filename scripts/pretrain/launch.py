"""Start pretrain.train: one process for each device of this node, or, through srun, of each node of the SLURM job.

Options not listed here go to `python -m scripts.pretrain.train`. SIGTERM, SIGINT and SIGUSR1 (SLURM's `--signal=USR1@300`)
make all processes finish their step, save a checkpoint and end with status 85 (RESUBMIT): run again to go on. With
--srun the job queues itself again then, as often as it takes: SLURM keeps its number, and Snakemake waits for it.
torchrun is not used since it turns every exit status into 1 and ends its workers 30 s after a signal.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

__tracked__ = False  # places processes, never decides: see scripts/common/fingerprint.py

RESUBMIT = 85  # exit status: stopped by a signal after a checkpoint; train.py has the same
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
PATIENCE = 600.0  # seconds in which SLURM has to end a job that it queued again
GRACE = 15.0  # seconds for the other processes to end by themselves after one failed


def free_port() -> int:
    """A TCP port that is free on this node now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def output(*command: str) -> str:
    """What a command prints, without the white space around it."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def rendezvous(nodes: int, environment: dict[str, str]) -> tuple[int, str, int]:
    """(this node's number, address, port) where the processes meet: the first node of the SLURM job, or this one.

    The job's nodes are asked of SLURM, because SLURM_JOB_NODELIST does not survive every executor.
    """
    if nodes == 1:
        return 0, "127.0.0.1", free_port()
    job = environment["SLURM_JOB_ID"]
    names = output("scontrol", "show", "hostnames", output("squeue", "-h", "-j", job, "-o", "%N")).split()
    # Outside the range that Linux hands out for outgoing connections; jobs on one node differ.
    return int(environment["SLURM_PROCID"]), names[0], 20000 + int(job) % 10000


def environments(node: int, nodes: int, processes: int, address: str, port: int) -> list[dict[str, str]]:
    """The variables that tell each process of this node its place."""
    return [
        {
            "RANK": str(node * processes + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(nodes * processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "HF_HUB_OFFLINE": "1",
        }
        | ({"GLOO_SOCKET_IFNAME": "lo"} if nodes == 1 else {})
        for local in range(processes)
    ]


def queue_again(job: str) -> bool:
    """Have SLURM queue this job again, as after a lost node; False where it does not.

    A job that somebody cancelled stops with RESUBMIT as well, but it is not running any more and stays cancelled.
    """
    try:
        if output("squeue", "-h", "-j", job, "-o", "%T") != "RUNNING":
            return False
        output("scontrol", "requeue", job)
    except subprocess.CalledProcessError as error:
        print(f"SLURM does not queue job {job} again ({error.stderr.strip()}): run again to go on", file=sys.stderr)
        return False
    return True


def wait_for_the_end() -> None:
    """Wait for SLURM to end the job that it has queued again: what ran after this would be taken for a failure."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    time.sleep(PATIENCE)


def status_of(codes: Sequence[int]) -> int:
    """One exit status for all processes: a failure before RESUBMIT before 0; a signal n as 128 + n.

    A process that a stopping signal reached before it listened has done nothing yet: RESUBMIT.
    """
    shell = [RESUBMIT if -code in STOPPING else 128 - code if code < 0 else code for code in codes]
    failed = [code for code in shell if code not in (0, RESUBMIT)]
    # A process that was killed for another's failure (137) says less than the failure itself.
    return min(failed) if failed else max(shell)


def supervise(commands: Sequence[tuple[list[str], dict[str, str]]]) -> int:
    """Run the commands side by side, pass signals on as SIGUSR1, end all when one fails; returns the exit status."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: FrameType | None) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGUSR1)

    for number in STOPPING:
        signal.signal(number, forward)
    children += [subprocess.Popen(command, env=environment) for command, environment in commands]
    deadline = None
    while any(child.poll() is None for child in children):
        if deadline is None and any(child.poll() not in (None, 0, RESUBMIT) for child in children):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(0.05)
    return status_of([child.wait() for child in children])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.pretrain.launch",
        description=__doc__,
        epilog="example:\n  python -m scripts.pretrain.launch --processes 2 --config config.yaml --tokens "
        "results/main/tokenize/encode/*.manifest.json --tokenizer results/main/tokenize/train/manifest.json "
        "--manifest /tmp/pretrain/manifest.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--processes", type=int, default=1, help="processes of each node: one for each GPU")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the SLURM job; more than 1 implies --srun true")
    parser.add_argument("--srun", default="false", help="true: start through srun, so that SLURM's signals arrive")
    parser.add_argument("--node", action="store_true", help=argparse.SUPPRESS)  # on each node, started by srun
    args, rest = parser.parse_known_args(argv)
    if not args.node and (args.nodes > 1 or args.srun.lower() == "true"):
        if "SLURM_JOB_ID" not in os.environ:
            print("error: pretrain.train.nodes > 1 and srun need a SLURM job, and this is none", file=sys.stderr)
            return 1
        place = ["--nodes", str(args.nodes), "--ntasks", str(args.nodes), "--ntasks-per-node", "1"]
        place += ["--cpu-bind=none", "--kill-on-bad-exit=1"]
        own = ["--node", "--nodes", str(args.nodes), "--processes", str(args.processes)]
        command = ["srun", *place, sys.executable, "-m", "scripts.pretrain.launch", *own, *rest]
        status = supervise([(command, dict(os.environ))])
        if status == RESUBMIT and queue_again(os.environ["SLURM_JOB_ID"]):
            print("stopped before the time limit; SLURM has queued the job again", file=sys.stderr, flush=True)
            wait_for_the_end()
        return status
    node, address, port = rendezvous(args.nodes, dict(os.environ))
    train = [sys.executable, "-m", "scripts.pretrain.train", *rest]
    places = environments(node, args.nodes, args.processes, address, port)
    return supervise([(train, {**os.environ, **place}) for place in places])


if __name__ == "__main__":
    raise SystemExit(main())
