"""Compare the plan with the cluster before anything is submitted: partitions, time, memory, GRES, nodes, GPUs' memory, account, fair share.

Submits nothing and runs nothing, whatever the profile and the options say. The same check runs at the start of every run. An error is
what SLURM would refuse, or would let wait for ever; a warning is what it would take but a person may not want. Options that are not
listed go to Snakemake as they are.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crawl2llm.chain.command_line import command_parser
from crawl2llm.core import retries, secret_masking
from crawl2llm.core.console import print_line
from crawl2llm.core.manifest import pretty_json
from crawl2llm.core.root import ROOT
from crawl2llm.slurm import cluster, local_plugin, needs, pace, queue, trainings
from crawl2llm.slurm.cluster import Partition
from crawl2llm.slurm.needs import Need

LONGEST_PAUSE = int(4 * pace.LONGEST)  # seconds between two status checks at most, with three that got no answer
POOR_SHARE = 0.1  # below this fair-share factor a wait of days is usual


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
            pretty_json(
                {
                    "tasks": sum(need.tasks for need in self.needs),
                    "table": self.table(),
                    "warnings": self.warnings,
                    "errors": self.errors,
                }
            ),
            encoding="utf-8",
        )


def need_problems(need: Need, partitions: dict[str, Partition]) -> tuple[list[str], list[str]]:
    """(errors, warnings) of one rule's needs, compared with the cluster's partitions."""
    label = f"{need.rule}:"
    if need.partition is None:
        return [f"{label} no partition of slurm-partition-config takes it ({need.requirements_text})"], []
    if not need.partition:
        by_partition = [need_problems(replace(need, partition=name), partitions) for name in sorted(partitions)]
        fits = min(by_partition, key=lambda problems: (len(problems[0]), len(problems[1])), default=([], []))
        if fits[0]:
            return [
                f"{label} no partition of the cluster takes it ({need.requirements_text}); of the nearest: {fits[0][0]}"
            ], []
        return fits
    partition = partitions.get(need.partition)
    if partition is None:
        return [
            f"{label} partition {need.partition!r} does not exist; the cluster has {', '.join(sorted(partitions))}"
        ], []
    errors, warnings = [], []
    if not partition.up:
        errors.append(f"{label} partition {partition.name} is not up")
    if partition.max_time is not None and need.runtime and need.runtime * 60 > partition.max_time:
        errors.append(
            f"{label} asks for {need.runtime} min; partition {partition.name} allows {partition.max_time // 60} min"
        )
    if partition.max_nodes is not None and need.nodes > partition.max_nodes:
        errors.append(f"{label} asks for {need.nodes} nodes; partition {partition.name} allows {partition.max_nodes}")
    warned = re.search(r"--signal=\w+@(\d+)", need.extra)
    if warned and need.runtime and int(warned.group(1)) > need.runtime * 60 / 2:
        # Warned at its start, it would do a step and queue itself again, without end.
        errors.append(
            f"{label} is warned {warned.group(1)} s before a time limit of {need.runtime} min; that may be half of it at most "
            "(`warning` and `training` in the profile)"
        )
    wants = cluster.parse_gres(need.gres)
    if need.gres and not any(cluster.has_enough_gres(node.gres, wants) for node in partition.nodes):
        kinds = sorted({cluster.gres_text(node.gres) for node in partition.nodes})
        errors.append(
            f"{label} asks for gres {need.gres}; nodes of partition {partition.name} have {' or '.join(kinds)}"
        )
    elif need.memory and not any(node.memory >= need.memory for node in partition.nodes):
        largest = max((node.memory for node in partition.nodes), default=0)
        errors.append(
            f"{label} asks for {need.memory} MB; the largest node of partition {partition.name} has {largest} MB"
        )
    elif not any(node.cpus >= need.cpus for node in partition.nodes):
        largest = max((node.cpus for node in partition.nodes), default=0)
        errors.append(
            f"{label} asks for {need.cpus} cores; the largest node of partition {partition.name} has {largest}"
        )
    else:
        fit = [
            n
            for n in partition.nodes
            if cluster.has_enough_gres(n.gres, wants) and n.memory >= need.memory and n.cpus >= need.cpus
        ]
        if len(fit) < need.nodes:
            errors.append(
                f"{label} asks for {need.nodes} nodes with {need.requirements_text}; {partition.name} has {len(fit)} such"
            )
        elif sum(node.usable for node in fit) < need.nodes:
            warnings.append(
                f"{label} the nodes of {partition.name} that fit are down or drained now: it would wait for them"
            )
    return errors, warnings


def site_problems(needs: list[Need]) -> tuple[list[str], list[str]]:
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
        rows = retries.ask_slurm("sshare", "-U", "-n", "-P", "-o", "Account,FairShare").splitlines()
    except retries.SilentSlurmError as error:
        return errors, [f"accounts and fair share are not checked: {error}"]
    except retries.SlurmError:
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


def preflight_report(workflow: Any, settings: Any) -> Report:
    """The whole preflight of a planned workflow. settings: those of the slurm executor."""
    report = Report(needs.needs_by_rule(workflow, settings))
    partitions = cluster.read_partitions()
    problems = [need_problems(need, partitions) for need in report.needs]
    config = workflow.globals["config"]
    variants = workflow.globals.get("VARIANTS", {})  # of rules/common.smk; another workflow has none
    planned = {(job.rule.name, getattr(job.wildcards, "variant", "main")) for job in workflow.dag.needrun_jobs()}
    for name in sorted({name for _, name in planned}):
        own_needs = [need for need in report.needs if (need.rule, name) in planned]
        problems.append(trainings.placement_problems(own_needs, variants.get(name, config), name))
    problems += [
        *(
            check(
                [need for need in report.needs if need.rule == rule],
                {name: variants[name] for name in variants if (rule, name) in planned},
                Path.cwd(),
            )
            for rule, check in (
                (trainings.PRETRAIN, trainings.memory_problems),
                *((rule, trainings.tuning_problems) for rule in trainings.TUNES),
            )
        ),
        site_problems(report.needs),
    ]
    for errors, warnings in problems:
        report.errors += [line for line in errors if line not in report.errors]
        report.warnings += [line for line in warnings if line not in report.warnings]
    return report


def plan_workflow(path: Path, options: list[str]) -> tuple[int, str]:
    """Let Snakemake plan in a process that cannot start a job (slurm/dry_submission.py), which writes the report to `path`.

    Its exit status, which is not 0 (the process ends when the plan is made), and all that it prints.
    """
    command = [*local_plugin.module_command("crawl2llm.slurm.dry_submission"), str(path), *options]
    done = subprocess.run(command, env=local_plugin.project_environment(), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main(argv: list[str] | None = None) -> int:
    parser = command_parser(
        "crawl2llm preflight", __doc__, "--profile profiles/mysite --configfile mine.yaml", allow_abbrev=False
    )
    parser.add_argument("--profile", default="profiles/slurm", help="Snakemake's profile (default: %(default)s)")
    args, more = parser.parse_known_args(argv)
    profile = args.profile if Path(args.profile).exists() else str(ROOT / args.profile)
    if not Path("Snakefile").exists() and not {"-s", "--snakefile"} & set(more):  # in the folder of a run
        more = ["--snakefile", str(ROOT / "Snakefile"), *more]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "found.json")
        status, output = plan_workflow(path, ["--profile", profile, *more])
        if not path.exists():  # Snakemake's own error
            print_line(secret_masking.mask(output.strip()))
            return status or 1
        report = json.loads(path.read_text(encoding="utf-8"))
    if not report["tasks"]:
        print_line("nothing to check: every result is up to date, so no job would be submitted")
        return 0
    print_line(report["table"])
    for kind in ("warnings", "errors"):
        for line in report[kind]:
            print_line(f"{kind.removesuffix('s')}: {line}")
    print_line("preflight passed" if not report["errors"] else "the cluster would refuse this run")
    return int(bool(report["errors"]))


if __name__ == "__main__":
    raise SystemExit(main())
