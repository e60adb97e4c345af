"""A plan that Snakemake made to its end, with what its tasks cost."""

from __future__ import annotations

from dataclasses import dataclass

from crawl2llm.chain.project import Project
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Estimate, Work


@dataclass
class Plan:
    """A plan that Snakemake made to its end. project: None if the config cannot be read as Snakemake read it."""

    tasks: list[Task]
    project: Project | None
    work: Work
    cores: int | None
    costs: dict[str, Estimate]

    @property
    def uses_gpus(self) -> bool:
        """Whether any task uses a GPU."""
        return any(map(self.work.gpus_of, self.tasks))
