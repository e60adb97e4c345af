"""Start a training program: one process for each device of this node, or of each node of the SLURM job.

In a SLURM job it starts itself on each node with srun, so that a signal before the time limit (SLURM's
`--signal=USR1@600`) arrives. SIGUSR1, SIGTERM and SIGINT make the processes finish their step, save a checkpoint
and end with status 85 (RESUBMIT): start it again to resume. A SLURM job queues itself again then, as often as it
takes: it keeps its number, and Snakemake waits for it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from crawl2llm.chain import gpu_slots
from crawl2llm.chain.halving import parse_task
from crawl2llm.core import console, parent_watch
from crawl2llm.core.console import print_line
from crawl2llm.core.retries import SlurmError, ask_slurm
from crawl2llm.training import compiler, hang_detector, heartbeat
from crawl2llm.training.processes import (
    RANKS,
    RESUBMIT,
    STOPPING,
    environments,
    free_port,
    hold_signals,
    malloc_variables,
    supervise,
    to_stderr,
)

PATIENCE_WITH_NODES = 120  # seconds for the other nodes to end by themselves after the first
PATIENCE = 600.0  # seconds in which SLURM has to end a job that it queued again


def in_job_script(environment: Mapping[str, str]) -> bool:
    """Whether this is the script of a SLURM job and not one of its srun steps, which alone a signal reaches."""
    return "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment and shutil.which("srun") is not None


def rendezvous(nodes: int, environment: Mapping[str, str]) -> tuple[int, str, int]:
    """(this node's number, address, port) where the processes meet: the first node of the SLURM job, or this one.

    The job's nodes are asked of SLURM, because SLURM_JOB_NODELIST does not survive every executor.
    """
    if nodes == 1:
        return 0, "127.0.0.1", free_port()
    job = environment["SLURM_JOB_ID"]
    names = ask_slurm("scontrol", "show", "hostnames", ask_slurm("squeue", "-h", "-j", job, "-o", "%N").strip()).split()
    # Outside the range that Linux hands out for outgoing connections; jobs on one node differ.
    return int(environment["SLURM_PROCID"]), names[0], 20000 + int(job) % 10000


def queue_again(job: str) -> bool:
    """Have SLURM queue this job again, as after a lost node; False if it does not.

    A job that somebody cancelled stops with RESUBMIT as well, but it is not running any more and stays cancelled.
    """
    try:
        if ask_slurm("squeue", "-h", "-j", job, "-o", "%T").strip() != "RUNNING":
            return False
        # Said first: SLURM ends this process too, and at once.
        print_line("stopped before the time limit; SLURM is asked to queue the job again", file=sys.stderr, flush=True)
        ask_slurm("scontrol", "requeue", job)
    except SlurmError as error:
        print_line(f"SLURM does not queue job {job} again ({error}): run again to resume", file=sys.stderr)
        return False
    return True


def wait_for_the_end() -> None:
    """Wait for SLURM to end the job that it has queued again: to continue would look like a failure."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    time.sleep(PATIENCE)


def option_path(options: list[str], name: str) -> Path | None:
    """The path that an option of the module names; None if it is not there."""
    return next((Path(word) for option, word in itertools.pairwise(options) if option == name), None)


def take_gpus(args: argparse.Namespace) -> list[int]:
    """Take the GPUs of this training, one for each process; the descriptors of their locks. See gpu_slots.take_gpus."""
    on_cpu = "--device=cpu" in args.options or ("--device", "cpu") in itertools.pairwise(args.options)
    return (
        []
        if on_cpu
        else gpu_slots.take_gpus(max(1, args.processes), lambda line: print_line(line, file=sys.stderr, flush=True))
    )


def wandb_variables(options: list[str], group: str | None) -> dict[str, str]:
    """W&B's variables for the group and the name of a training, by the manifest that it writes; those of the environment come first.

    group: None for the name of the run's folder. The name is the variant, with the model where the step makes several.
    """
    path = option_path(options, "--manifest")
    if path is None or "results" not in path.parts[:-3]:
        return {"WANDB_RUN_GROUP": group} if group else {}
    variant, task = path.parts[path.parts.index("results") + 1], path.name.removesuffix("manifest.json").rstrip(".")
    if path.parent.name == "rung":  # one W&B run with the training that follows: both have the same checkpoints
        variant, task = parse_task(task)[0], ""
    folder_parts = path.parts[: path.parts.index("results")]
    return {
        "WANDB_RUN_GROUP": group or (Path(*folder_parts).absolute() if folder_parts else Path.cwd()).name,
        "WANDB_NAME": f"{variant} {task}".rstrip(),
    }


def failure_reporter(module: str, options: list[str]) -> Callable[[str, str], None]:
    """A function that says why the module's processes ended: on stderr, and at the end of the log that it was given."""
    log = option_path(options, "--log")

    def report_failure(message: str, traceback: str) -> None:
        to_stderr(message, traceback)
        if log:
            with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
                lines = [*traceback.splitlines(), f"{time.strftime('%H:%M:%S')} {step_of(module)}: error: {message}"]
                file.write("".join(f"{console.safe_message(line)}\n" for line in lines))

    return report_failure


def step_of(module: str) -> str:
    """`crawl2llm.stages.pretrain.train` → `pretrain.train`."""
    return module.split(".", 2)[-1]


def through_srun(nodes: int, options: list[str], module: str) -> int:
    """Start this program on each of the job's nodes with the options `options`; its exit status."""
    place = ["--nodes", str(nodes), "--ntasks", str(nodes), "--ntasks-per-node", "1"]
    # Nodes do not end in the same moment, and 85 on the first is no reason to kill the others.
    place += ["--cpu-bind=none", "--kill-on-bad-exit=0", f"--wait={PATIENCE_WITH_NODES}"]
    command = ["srun", *place, sys.executable, "-m", "crawl2llm.training.launch", "--on-a-node", *options]
    status = supervise([(command, dict(os.environ))], listening=False, step=step_of(module))
    if status == RESUBMIT and queue_again(os.environ["SLURM_JOB_ID"]):
        wait_for_the_end()
    return status


def program_command(module: str, image: str | None, arguments: str) -> list[str]:
    """The command that runs a module, with this interpreter or with that of an Apptainer image."""
    if image is None:
        return [sys.executable, "-m", module]
    apptainer = shutil.which("apptainer") or shutil.which("singularity") or "apptainer"
    home_option = [
        "--home",
        str(Path.cwd()),
    ]  # as Snakemake starts the other rules: the run's folder is there inside, too
    return [apptainer, "exec", *home_option, "--nv", *shlex.split(arguments), image, "python", "-m", module]


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m crawl2llm.training.launch",
        description=__doc__,
        epilog="example:\n  python -m crawl2llm.training.launch --processes 2 crawl2llm.stages.pretrain.train --config config.yaml "
        "--tokens results/main/tokenize/encode/*.manifest.json --tokenizer results/main/tokenize/train/manifest.json "
        "--manifest /tmp/pretrain/manifest.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the SLURM job")
    parser.add_argument(
        "--processes",
        type=int,
        default=0,
        help="processes of each node that train as one group, one for each GPU; 0: one, which is not part of a group",
    )
    parser.add_argument(
        "--wandb-group", default="null", help="group in Weights & Biases; null: the name of the run's folder"
    )
    parser.add_argument("--on-a-node", action="store_true", help=argparse.SUPPRESS)  # started by through_srun
    parser.add_argument("--image", help="an Apptainer image; the module runs inside it, srun outside")
    parser.add_argument("--image-arguments", default="", help="options of `apptainer exec`, as one word")
    parser.add_argument("module", help="the program of a training, such as crawl2llm.stages.pretrain.train")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="the module's own")
    return parser


def main(argv: list[str] | None = None) -> int:
    hold_signals()
    parent_watch.watch_driver()
    argv = sys.argv[1:] if argv is None else argv
    args = argument_parser().parse_args(argv)
    if in_job_script(os.environ):
        return through_srun(args.nodes, argv, args.module)
    if args.nodes > 1 and not args.on_a_node:
        print_line(
            f"error: {args.module} on {args.nodes} nodes has to be started by the script of a SLURM job; "
            "this is no job, or a step of one (profiles/slurm sets `mpi` for that)",
            file=sys.stderr,
        )
        return 1
    group = None if args.wandb_group == "null" else args.wandb_group
    for name, value in wandb_variables(args.options, group).items():
        os.environ.setdefault(name, value)
    command = [*program_command(args.module, args.image, args.image_arguments), *args.options]
    step, say = step_of(args.module), failure_reporter(args.module, args.options)
    try:
        locks = take_gpus(args)
    except gpu_slots.GpuWaitInterrupted:
        return RESUBMIT
    os.environ.update(gpu_slots.allocator_variables() | compiler.cache_variables())
    if not args.processes:
        environment = {name: value for name, value in os.environ.items() if name not in RANKS} | malloc_variables()
        return supervise([(command, environment)], step=step, say=say, locks=locks)
    try:
        node, address, port = rendezvous(args.nodes, os.environ)
    except SlurmError as error:
        say(f"the processes have no place to meet: {error}", "")
        return 1
    places = environments(node, args.nodes, args.processes, address, port)
    # One for each group of processes, and the same on all of its nodes, which share the folder of checkpoints.
    folder = (option_path(args.options, "--checkpoints") or Path("checkpoints")).absolute() / f".alive-{address}-{port}"
    watch = hang_detector.Watch(folder, [place["RANK"] for place in places], args.nodes * args.processes)
    places = [{**os.environ, **place, heartbeat.FOLDER_VARIABLE: str(folder)} for place in places]
    return supervise([(command, place) for place in places], step=step, say=say, watch=watch, locks=locks)


if __name__ == "__main__":
    raise SystemExit(main())
