"""Snakemake's plan for `crawl2llm preflight`, in a process that cannot start a job: whatever profile and options say, it is a dry run.

`python -m crawl2llm.slurm.dry_submission REPORT OPTIONS…` writes the report of the preflight to REPORT.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

from crawl2llm.commands import preflight
from crawl2llm.core import retries
from crawl2llm.slurm import local_plugin


def plan_only(path: Path) -> None:
    """Replace all that Snakemake's command line can do with a workflow: it plans, writes the report to `path`, and refuses the rest."""
    from snakemake.api import DAGApi
    from snakemake.exceptions import WorkflowError

    execute = DAGApi.execute_workflow

    def execute_nothing(
        self: DAGApi, executor: str = "local", pseudo_executor: str = "", executor_settings: Any = None, **more: Any
    ) -> None:
        if executor != "slurm":
            raise WorkflowError(
                f"preflight: the executor of this profile is {executor!r}, which asks no cluster for anything; name a profile of "
                "`executor: slurm`, such as profiles/slurm"
            )
        workflow = self.workflow_api._workflow

        class DryRunWorkflow(type(workflow)):  # type: ignore[misc]
            """The workflow; Snakemake gives it a scheduler when the plan is complete, and before anything else is done."""

            # The jobs are those that SLURM would get: the dry run's executor calls all of them local.
            local_exec = False

            @property
            def scheduler(self) -> Any:
                return self._scheduler

            @scheduler.setter
            def scheduler(self, scheduler: Any) -> None:
                self._scheduler = scheduler
                try:
                    jobs = list(self.dag.needrun_jobs())
                    (preflight.preflight_report(self, executor_settings) if jobs else preflight.Report([])).write(path)
                except retries.SlurmError as error:
                    raise WorkflowError(f"preflight: {error}") from None
                raise WorkflowError("the plan is made: here a preflight ends")

        workflow.__class__ = DryRunWorkflow
        execute(self, executor=executor, pseudo_executor="dryrun", executor_settings=executor_settings, **more)

    def make_refusal(name: str) -> Any:
        def raise_refusal(*_: Any, **__: Any) -> NoReturn:
            raise WorkflowError(f"preflight only plans: it does no {name.replace('_', ' ')}")

        return raise_refusal

    for name in [name for name in vars(DAGApi) if not name.startswith("_")]:
        if callable(getattr(DAGApi, name)):
            setattr(DAGApi, name, make_refusal(name))
    DAGApi.execute_workflow = execute_nothing


def main(argv: list[str]) -> None:
    plan_only(Path(argv[0]))
    local_plugin.main([*argv[1:], "--dry-run"])


if __name__ == "__main__":
    main(sys.argv[1:])
