"""Compare the plan with the cluster before anything is submitted: partitions, time, memory, GRES, nodes, GPUs' memory, account, fair share.

Submits nothing. The same check runs at the start of every run. An error is what SLURM would refuse, or would let wait for ever; a
warning is what it would take but a person may not want. Options that are not listed go to Snakemake as they are.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.plan import training
from scripts.plan.last import Last
from scripts.pretrain import gpus as cards
from scripts.pretrain import parallel
from scripts.slurm import pace, patience, queue
from scripts.workflow.cli import described
from scripts.workflow.config import ROOT
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import pretty

ONLY = "CRAWL2LLM_PREFLIGHT_ONLY"  # the file that a run writes what it found to, and then ends

TRAINING = "pretrain_train"
LONGEST_PAUSE = int(4 * pace.LONGEST)  # seconds between two status checks at most, with three that got no answer
POOR_SHARE = 0.1  # below this fair-share factor a wait of days is usual


@dataclass(frozen=True)
class Need:
    """What the tasks of one rule ask for, the largest of them. Memory in MB (per node), runtime in minutes; 0: not set.

    `partition` is None where the profile's partitions.yaml has none that fits, and "" where SLURM itself is to choose.
    """

    rule: str
    tasks: int
    partition: str | None
    nodes: int = 1
    cpus: int = 1
    memory: int = 0
    runtime: int = 0
    gres: str = ""
    account: str = ""
    extra: str = ""
    cards: int = 0


@dataclass(frozen=True)
class Node:
    """One compute node. `gres` maps (`gpu`, type or "") to a count."""

    name: str
    cpus: int
    memory: int
    gres: dict[tuple[str, str], int]
    usable: bool


@dataclass(frozen=True)
class Partition:
    """One partition; None is no limit, times in seconds."""

    name: str
    up: bool
    max_time: int | None
    max_nodes: int | None
    nodes: tuple[Node, ...]


@dataclass
class Report:
    """What the preflight found."""

    needs: list[Need]
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def table(self) -> str:
        """The plan by rule."""
        lines = [
            f"{'rule':<20} {'tasks':>6}  {'partition':<16} {'nodes':>5} {'cpus':>5} {'memory':>9} {'limit':>8}  gres"
        ]
        for need in self.needs:
            memory = f"{need.memory / 1000:.0f} GB" if need.memory else "default"
            limit = f"{need.runtime // 60}h{need.runtime % 60:02d}m" if need.runtime else "default"
            lines.append(
                f"{need.rule:<20} {need.tasks:>6,}  {need.partition or 'chosen by SLURM':<16} {need.nodes:>5} {need.cpus:>5} "
                f"{memory:>9} {limit:>8}  {need.gres}"
            )
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """For whoever asked for the preflight alone."""
        path.write_text(
            pretty({"table": self.table(), "warnings": self.warnings, "errors": self.errors}), encoding="utf-8"
        )


def records(text: str) -> Iterable[dict[str, str]]:
    """The lines of `scontrol show … --oneliner` as dictionaries (values with spaces are cut: none is used here)."""
    for line in text.splitlines():
        yield dict(part.split("=", 1) for part in line.split() if "=" in part)


def gres(text: str) -> dict[tuple[str, str], int]:
    """`gpu:h100:8(S:0-1),nvme:1` → {("gpu", "h100"): 8, ("nvme", ""): 1}; `(null)` → {}."""
    found: dict[tuple[str, str], int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        cells = part.replace("=", ":").split(":")
        if not cells[0]:
            continue
        count = int(cells[-1]) if len(cells) > 1 and cells[-1].isdigit() else 1
        kind = cells[1] if len(cells) > 1 and not cells[1].isdigit() else ""
        found[(cells[0], kind)] = found.get((cells[0], kind), 0) + count
    return found


def enough(has: dict[tuple[str, str], int], wants: dict[tuple[str, str], int]) -> bool:
    """Whether a node's GRES cover a request; a request without a type takes any type."""
    for (name, kind), count in wants.items():
        have = sum(n for (other, its), n in has.items() if other == name and kind in ("", its))
        if have < count:
            return False
    return True


def shown(has: dict[tuple[str, str], int]) -> str:
    """GRES as one writes them."""
    return ",".join(":".join(filter(None, [name, kind, str(count)])) for (name, kind), count in has.items()) or "none"


def cluster() -> dict[str, Partition]:
    """The cluster's partitions with their nodes, by scontrol."""
    nodes: dict[str, list[Node]] = {}
    for row in records(patience.ask("scontrol", "show", "node", "--oneliner")):
        states = set(re.split(r"[+*]", row["State"]))
        node = Node(
            name=row["NodeName"],
            cpus=int(row["CPUTot"]),
            memory=int(row["RealMemory"]),
            gres=gres(row.get("Gres", "")),
            usable=not states & {"DOWN", "DRAIN", "DRAINED", "FAIL", "NOT_RESPONDING", "FUTURE"},
        )
        for partition in row.get("Partitions", "").split(","):
            nodes.setdefault(partition, []).append(node)
    return {
        row["PartitionName"]: Partition(
            name=row["PartitionName"],
            up=row.get("State") == "UP",
            max_time=queue.seconds(row.get("MaxTime", "")),
            max_nodes=int(row["MaxNodes"]) if row.get("MaxNodes", "").isdigit() else None,
            nodes=tuple(nodes.get(row["PartitionName"], ())),
        )
        for row in records(patience.ask("scontrol", "show", "partition", "--oneliner"))
    }


def problems(need: Need, partitions: dict[str, Partition]) -> tuple[list[str], list[str]]:
    """(errors, warnings) of one rule's needs, compared with the cluster's partitions."""
    who = f"{need.rule}:"
    if need.partition is None:
        return [f"{who} no partition of slurm-partition-config takes it ({wanted(need)})"], []
    if not need.partition:
        each = [problems(replace(need, partition=name), partitions) for name in sorted(partitions)]
        fits = min(each, key=lambda found: (len(found[0]), len(found[1])), default=([], []))
        if fits[0]:
            return [f"{who} no partition of the cluster takes it ({wanted(need)}); of the nearest: {fits[0][0]}"], []
        return fits
    there = partitions.get(need.partition)
    if there is None:
        return [
            f"{who} partition {need.partition!r} does not exist; the cluster has {', '.join(sorted(partitions))}"
        ], []
    errors, warnings = [], []
    if not there.up:
        errors.append(f"{who} partition {there.name} is not up")
    if there.max_time is not None and need.runtime and need.runtime * 60 > there.max_time:
        errors.append(f"{who} asks for {need.runtime} min; partition {there.name} allows {there.max_time // 60} min")
    if there.max_nodes is not None and need.nodes > there.max_nodes:
        errors.append(f"{who} asks for {need.nodes} nodes; partition {there.name} allows {there.max_nodes}")
    warned = re.search(r"--signal=\w+@(\d+)", need.extra)
    if warned and need.runtime and int(warned.group(1)) > need.runtime * 60 / 2:
        # Warned at its start, it would do a step and queue itself again, without end.
        errors.append(
            f"{who} is warned {warned.group(1)} s before a time limit of {need.runtime} min; that may be half of it at most "
            "(`warning` and `training` in the profile)"
        )
    wants = gres(need.gres)
    if need.gres and not any(enough(node.gres, wants) for node in there.nodes):
        kinds = sorted({shown(node.gres) for node in there.nodes})
        errors.append(f"{who} asks for gres {need.gres}; nodes of partition {there.name} have {' or '.join(kinds)}")
    elif need.memory and not any(node.memory >= need.memory for node in there.nodes):
        largest = max((node.memory for node in there.nodes), default=0)
        errors.append(f"{who} asks for {need.memory} MB; the largest node of partition {there.name} has {largest} MB")
    elif not any(node.cpus >= need.cpus for node in there.nodes):
        largest = max((node.cpus for node in there.nodes), default=0)
        errors.append(f"{who} asks for {need.cpus} cores; the largest node of partition {there.name} has {largest}")
    else:
        fit = [n for n in there.nodes if enough(n.gres, wants) and n.memory >= need.memory and n.cpus >= need.cpus]
        if len(fit) < need.nodes:
            errors.append(f"{who} asks for {need.nodes} nodes with {wanted(need)}; {there.name} has {len(fit)} such")
        elif sum(node.usable for node in fit) < need.nodes:
            warnings.append(f"{who} the nodes of {there.name} that fit are down or drained now: it would wait for them")
    return errors, warnings


def wanted(need: Need) -> str:
    """A need in words."""
    parts = [f"{need.cpus} cores", f"{need.memory} MB" if need.memory else "", need.gres]
    return ", ".join(filter(None, [*parts, f"{need.runtime} min" if need.runtime else ""]))


def site(needs: list[Need]) -> tuple[list[str], list[str]]:
    """(errors, warnings) about what is not a partition's: accounting, fair share, how long squeue remembers a job."""
    errors: list[str] = []
    warnings: list[str] = []
    age = queue.min_job_age()
    if age is not None and age <= LONGEST_PAUSE:
        errors.append(
            f"squeue forgets a job {age} s after its end (MinJobAge), and up to {LONGEST_PAUSE} s may pass between two "
            "answers: set `slurm-status-command: sacct` in the profile (docs/slurm.md says what that changes)"
        )
    try:
        rows = patience.ask("sshare", "-U", "-n", "-P", "-o", "Account,FairShare").splitlines()
    except patience.Silent as error:
        return errors, [f"accounts and fair share are not checked: {error}"]
    except patience.SlurmError:
        return errors, warnings  # no accounting here: nothing to be compared with
    shares = dict(row.split("|")[:2] for row in rows if "|" in row)
    for account in sorted({need.account for need in needs}):
        if account and shares and account not in shares:
            errors.append(f"account {account!r} is not one of yours: {', '.join(sorted(shares))}")
        elif not account and len(shares) > 1:
            errors.append(f"no account is set in the profile, and you have several: {', '.join(sorted(shares))}")
        elif (share := shares.get(account)) and re.fullmatch(r"[\d.]+", share) and float(share) < POOR_SHARE:
            warnings.append(f"account {account} has a fair-share factor of {share} (1 is unused): expect long waits")
    return errors, warnings


def placement(needs: list[Need], config: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(errors, warnings) where the config starts other processes than the profile gives GPUs and nodes for."""
    errors: list[str] = []
    warnings: list[str] = []
    for need in needs:
        cards = queue.gpus(need.gres)
        if need.cards < cards * need.nodes:
            # Snakemake cuts what a job asks for down to the run's cap, and the cap would not hold.
            errors.append(f"{need.rule}: takes {cards * need.nodes} GPUs, more than the profile's gpu_cap")
        for key, section in sections(need.rule, config) if cards else ():
            processes, nodes = section["processes"], section.get("nodes", 1)
            try:
                parallel.check(parallel.Degrees.of(section), processes * nodes, section)
            except InputError as error:
                errors.append(f"{need.rule}: {error}")
            if nodes != need.nodes:
                errors.append(
                    f"{need.rule}: the profile asks for {need.nodes} nodes, the config has {key}.nodes: {nodes}"
                )
            if processes > cards:
                errors.append(
                    f"{need.rule}: the config has {key}.processes: {processes}, the profile {cards} GPUs of a node"
                )
            elif processes < cards:
                warnings.append(
                    f"{need.rule}: the profile takes {cards} GPUs of a node, and {key}.processes: {processes} leaves some idle"
                )
    return errors, warnings


def sections(rule: str, config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, settings) of each section that sets the processes of a rule: that of its step, and of each model with processes of its own."""
    stage, _, name = rule.partition("_")
    step = f"{stage}.{name}"
    section = config.get(stage, {}).get(name, {})
    if "processes" in section:
        yield step, section
    for model, entry in config.get("models", {}).items():
        if entry["step"] == step and "processes" in entry:
            yield f"models.{model}", {**section, **entry}


def memory(needs: list[Need], configs: dict[str, dict[str, Any]], folder: Path) -> tuple[list[str], list[str]]:
    """(errors, warnings) where a training would not fit the GPUs that the profile asks for, by the estimate of pretrain.plan.

    configs: complete, by variant, of those whose training would run. folder: of the run, whose tokens may be counted. An error is what
    takes over TOLERANCE × what there is, as in the trainer, a warning over TIGHT × that. Nothing is said before the shape is known.
    """
    errors: list[str] = []
    warnings: list[str] = []
    last = Last(folder)
    for need in needs:
        if need.rule != TRAINING or not queue.gpus(need.gres):
            continue
        for variant, config in configs.items():
            who = need.rule if variant == "main" else f"{need.rule} of {variant}"
            owner = next((name for name in (variant, "main") if last.manifests(name, training.TOKENS)), "main")
            tokens, entries = training.counted(last, owner)
            results = folder / "results" / variant / "pretrain" / "train"
            try:
                _, found = training.foreseen(config, tokens, entries, results, cards.of_profile(need.gres))
            except InputError as error:
                warnings.append(f"{who}: whether it fits its GPUs is not known: {error}")
                continue
            left = found["available"] - found["memory"]["total"]
            if found["refused"]:
                size = found["memory"][found["largest"]] / 1e9
                errors.append(
                    f"{who}: {found['refusal']}. The largest part is {found['largest']}, {size:.1f} GB. Where the GPU has more: "
                    "pretrain.plan.gpu_memory"
                )
            elif not found["fits"]:
                warnings.append(f"{who}: {found['refusal']}. It may do all the same: the estimate is not so exact")
            elif found["tight"]:
                warnings.append(
                    f"{who}: of the GPU's memory {left / 1e9:.1f} GB are left, by the estimate of pretrain.plan"
                )
    return errors, warnings


def needs(workflow: Any) -> list[Need]:
    """The needs of the jobs that would run, by rule, in the workflow's order, each at its largest."""
    from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

    class Silent:
        """The executor's logger argument, without the line that it writes for every job."""

        def debug(self, *_: object) -> None: ...

        info = warning = debug

    file = workflow.executor_settings.partition_config or os.environ.get("SNAKEMAKE_SLURM_PARTITIONS")
    candidates = read_partition_file(Path(file)) if file else None
    found: dict[str, Need] = {}

    def number(job: Any, name: str) -> int:
        value = job.resources.get(name)
        return value if isinstance(value, int) else 0  # 0: not set, or known only when its input is there

    for job in workflow.dag.needrun_jobs():
        if job.is_local:
            continue
        partition = job.resources.get("slurm_partition")
        if not partition:
            partition = get_best_partition(candidates, job, Silent()) if candidates else default_partition()
        cpus = number(job, "cpus_per_task") or job.threads
        before = found.get(job.rule.name, Need(job.rule.name, 0, partition))
        found[job.rule.name] = Need(
            rule=job.rule.name,
            tasks=before.tasks + 1,
            partition=partition,
            nodes=max(number(job, "nodes"), before.nodes),
            cpus=max(cpus, before.cpus),
            memory=max(number(job, "mem_mb_per_cpu") * cpus or number(job, "mem_mb"), before.memory),
            runtime=max(number(job, "runtime"), before.runtime),
            gres=job.resources.get("gres") or "",
            account=str(job.resources.get("slurm_account") or ""),
            extra=str(job.resources.get("slurm_extra") or ""),
            cards=number(job, "card"),
        )
    order = {rule.name: position for position, rule in enumerate(workflow.rules)}
    return sorted(found.values(), key=lambda need: order[need.rule])


def default_partition() -> str:
    """The partition that sinfo marks with a star; "" where none is: a site's own submit script chooses then."""
    return next((line[:-1] for line in patience.ask("sinfo", "-h", "-o", "%P").split() if line.endswith("*")), "")


def check(workflow: Any) -> Report:
    """The whole preflight of a workflow that is about to start under the slurm executor."""
    report = Report(needs(workflow))
    partitions = cluster()
    found = [problems(need, partitions) for need in report.needs]
    config = workflow.globals["config"]
    variants = workflow.globals.get("VARIANTS", {})  # of rules/common.smk; another workflow has none
    trained = {job.wildcards.variant for job in workflow.dag.needrun_jobs() if job.rule.name == TRAINING}
    configs = {name: variants[name] for name in variants if name in trained}
    found += [placement(report.needs, config), memory(report.needs, configs, Path.cwd()), site(report.needs)]
    for errors, warnings in found:
        report.errors += errors
        report.warnings += warnings
    return report


def asked(path: Path, environment: dict[str, str], options: list[str]) -> tuple[int, str]:
    """Let Snakemake plan, and write what the preflight found to `path` (scripts/slurm/hook.py): its status and what it said."""
    command = [sys.executable, "-m", "snakemake", *options]
    done = subprocess.run(command, env={**environment, ONLY: str(path)}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main(argv: list[str] | None = None) -> int:
    parser = described(
        "crawl2llm preflight", __doc__, "--profile profiles/mysite --configfile mine.yaml", allow_abbrev=False
    )
    parser.add_argument("--profile", default="profiles/slurm", help="Snakemake's profile (default: %(default)s)")
    args, more = parser.parse_known_args(argv)
    profile = args.profile if Path(args.profile).exists() else str(ROOT / args.profile)
    if not Path("Snakefile").exists() and not {"-s", "--snakefile"} & set(more):  # in the folder of a run
        more = ["--snakefile", str(ROOT / "Snakefile"), *more]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "found.json")
        status, said = asked(path, dict(os.environ), ["--profile", profile, *more])
        if not path.exists():  # nothing to do, or Snakemake's own error
            print(
                said.strip() if status else "nothing to check: every result is up to date, so no job would be submitted"
            )
            return status
        found = json.loads(path.read_text(encoding="utf-8"))
    print(found["table"])
    for kind in ("warnings", "errors"):
        for line in found[kind]:
            print(f"{kind.removesuffix('s')}: {line}")
    print("preflight passed" if not found["errors"] else "the cluster would refuse this run")
    return int(bool(found["errors"]))


if __name__ == "__main__":
    raise SystemExit(main())
