"""What the jobs of a plan ask SLURM for, by rule."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl2llm.slurm.cluster import default_partition


@dataclass(frozen=True)
class Need:
    """What the tasks of one rule ask for, the largest of them. Memory in MB (per node), runtime in minutes; 0: not set.

    `partition` is None if the profile's partitions.yaml has none that fits, and "" where SLURM itself is to choose.
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

    @property
    def requirements_text(self) -> str:
        """What a node must have, in words."""
        parts = [f"{self.cpus} cores", f"{self.memory} MB" if self.memory else "", self.gres]
        return ", ".join(filter(None, [*parts, f"{self.runtime} min" if self.runtime else ""]))


def needs_by_rule(workflow: Any, settings: Any) -> list[Need]:
    """The needs of the jobs that would run, by rule, in the workflow's order, each at its largest. settings: the slurm executor's."""
    from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

    class QuietLogger:
        """The executor's logger argument, without the line that it writes for every job."""

        def debug(self, *_: object) -> None: ...

        info = warning = debug

    file = settings.partition_config or os.environ.get("SNAKEMAKE_SLURM_PARTITIONS")
    candidates = read_partition_file(Path(file)) if file else None
    needs: dict[str, Need] = {}

    def resource_number(job: Any, name: str) -> int:
        value = job.resources.get(name)
        return value if isinstance(value, int) else 0  # 0: not set, or known only when its input is there

    for job in workflow.dag.needrun_jobs():
        if job.is_local:
            continue
        partition = job.resources.get("slurm_partition")
        if not partition:
            partition = get_best_partition(candidates, job, QuietLogger()) if candidates else default_partition()
        cpus = resource_number(job, "cpus_per_task") or job.threads
        before = needs.get(job.rule.name, Need(job.rule.name, 0, partition))
        needs[job.rule.name] = Need(
            rule=job.rule.name,
            tasks=before.tasks + 1,
            partition=partition,
            nodes=max(resource_number(job, "nodes"), before.nodes),
            cpus=max(cpus, before.cpus),
            memory=max(resource_number(job, "mem_mb_per_cpu") * cpus or resource_number(job, "mem_mb"), before.memory),
            runtime=max(resource_number(job, "runtime"), before.runtime),
            gres=job.resources.get("gres") or "",
            account=str(job.resources.get("slurm_account") or ""),
            extra=str(job.resources.get("slurm_extra") or ""),
            cards=resource_number(job, "card"),
        )
    order = {rule.name: position for position, rule in enumerate(workflow.rules)}
    return sorted(needs.values(), key=lambda need: order[need.rule])
