"""What decides a plan by Snakemake's internals, except planning_shortcuts.py; tests/workflow/test_engine.py tests each by itself.

Snakemake decides what runs again by its records in `.snakemake` and by modification times. Here the manifests decide
(chain/freshness.py), and the jobs of a run work from a copy of the code and the config (core/code_snapshot.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from snakemake.dag import DAG
from snakemake.jobs import Job
from snakemake.logging import logger
from snakemake.persistence import ParamsChange
from snakemake.settings.enums import RerunTrigger

from crawl2llm.chain import steps
from crawl2llm.chain.early_cutoff import NOTHING_TO_DO, UNCHANGED_JOB
from crawl2llm.chain.freshness import STALE_PREFIX
from crawl2llm.workflow import planning_shortcuts, rule_parts
from crawl2llm.workflow.rule_parts import RuleParts


class StaleResult(ParamsChange):
    """Why a job's results are not up to date, where Snakemake would tell of changed parameters."""

    def __init__(self, why: str, output: str) -> None:
        super().__init__(only_new={why}, files={output})
        self.why = why

    def __str__(self) -> str:
        return STALE_PREFIX + self.why


async def _no_time(_: Any) -> None:
    """A job's oldest output: none, so that Snakemake compares no modification times."""


def _records_class(parent: type, why: Callable[[Any], str | None]) -> type:
    """Snakemake's records (a class of its own), with `why` in place of what they say of changes."""

    class ManifestRecords(parent):
        def has_metadata(self, job: Any) -> bool:
            return True

        def has_outdated_metadata(self, job: Any) -> bool:
            return False

        def params_changed(self, job: Any, file: Any = None) -> ParamsChange:
            reason = why(job)
            return StaleResult(reason, str(job.output[0])) if reason else ParamsChange()

        def input_changed(self, job: Any, file: Any = None) -> Any:
            return () if file is None else False

        code_changed = software_stack_changed = input_changed

    return ManifestRecords


async def _no_clock(*_: Any) -> None:
    """What Snakemake says of an output that is older than an input: nothing, since a clock of another machine decides nothing."""


def ignore_clocks() -> None:
    """Let no finished job fail because an input has a time in the future, as a copied folder or another machine's file may have."""
    DAG.check_output_mtime = _no_clock


def decide_reruns_by(workflow: Any, why: Callable[[Any], str | None]) -> None:
    """Let `why(job)` say whether a job's results are up to date (None), in place of what Snakemake has recorded."""

    class ManifestWorkflow(type(workflow)):  # type: ignore[misc]
        """Snakemake makes its records after the Snakefile is read: they are changed when they are first asked for."""

        @property
        def persistence(self) -> Any:
            records = super().persistence
            if records is not None and type(records).__name__ != "ManifestRecords":
                records.__class__ = _records_class(type(records), why)
            return records

        @property
        def rerun_triggers(self) -> Any:
            """Whatever `--rerun-triggers` says: without these `why` would not be asked, and no clock is."""
            return frozenset({RerunTrigger.PARAMS, RerunTrigger.INPUT})

    workflow.__class__ = ManifestWorkflow
    planning_shortcuts.take_shortcuts()
    Job.output_mintime = property(_no_time)


def complete_rules(workflow: Any, parts: RuleParts) -> None:
    """Give every rule that is called after a step what follows from the step and the rule does not say itself.

    To be called before the rules are read. A rule says what its step reads: `input`; each named input and param is an option.
    """
    make = workflow.rule

    def make_complete_rule(name: str | None = None, **place: Any) -> Callable[[Any], Any]:
        register = make(name=name, **place)

        def complete(info: Any) -> Any:
            step = steps.step_of(info.name or name or "")
            if step in steps.STEPS:
                _complete_rule(workflow, info, step, parts)
            return register(info)

        return complete

    workflow.rule = make_complete_rule


def _complete_rule(workflow: Any, info: Any, step: str, parts: RuleParts) -> None:
    """Fill in what Snakemake has read of a rule, with the directives that a rule would have."""
    words, params = info.params or ((), {})
    by_name = {**(info.input.kwpaths if info.input else {}), **params}
    directives = {
        "log": workflow.log(rule_parts.log_file(step)),
        "benchmark": workflow.benchmark(rule_parts.benchmark_file(step)),
        "conda_env": workflow.conda(str(Path(workflow.basedir) / rule_parts.environment_file(step))),
    }
    if threads := parts.threads(step):
        directives["threads"] = workflow.threads(threads)
    if rule_parts.takes_gpus(step):
        directives["resources"] = workflow.resources(card=parts.gpu_count(step))
    launcher: dict[str, Any] = {}
    if rule_parts.is_launched(step):
        launcher = {"launcher": parts.launcher(step)}
        # srun is not in the image: the launcher starts the image itself.
        directives["container_img"] = workflow.container(None)
    for name, fill_in in directives.items():
        if getattr(info, name) is None:
            fill_in(info)
    options = parts.options(step, by_name, words)
    workflow.params(fingerprint=parts.fingerprint(step), program=parts.program(step), options=options, **launcher)(info)


def start_jobs_from(workflow: Any, snakefile: Path, config: Path) -> None:
    """Let every job that another process runs (SLURM's) read this Snakefile and this config. To be called in onstart."""
    for executor in (workflow.scheduler._executor, workflow.scheduler._local_executor):
        if executor is not None:
            executor.snakefile = str(snakefile)
    workflow.config_settings.configfiles = [config]
    workflow.config_settings.config_args = None


def start_only_if(workflow: Any, nothing_to_do: Callable[[Any], bool]) -> None:
    """Before a job is started or submitted, ask whether it has nothing to do: then it is over. To be called in onstart."""
    scheduler = workflow.scheduler
    run = scheduler.run

    def start_jobs(jobs: list[Any], executor: Any = None) -> None:
        remaining = []
        for job in jobs:
            if job.is_group() or not nothing_to_do(job):
                remaining.append(job)
                continue
            job.log_info()
            logger.info(f"{NOTHING_TO_DO} (job {job.jobid})", extra={UNCHANGED_JOB: job.jobid})
            scheduler.submit_callback(job)
            scheduler.finish_callback(job)
        scheduler._run_performed = True
        if remaining:
            run(remaining, executor)

    scheduler.run = start_jobs


def profile_resource(workflow: Any, rule: str, resource: str) -> str:
    """What the profile's `set-resources` say of a rule's resource, as text; "" where they say nothing."""
    rules = workflow.resource_settings.overwrite_resources or {}
    value = rules[rule][resource] if rule in rules and resource in rules[rule] else ""
    return str(getattr(value, "raw", value))  # an expression that Snakemake evaluates for each job


def planned_jobs(workflow: Any) -> list[Any]:
    """The jobs that this run does, once the plan is made."""
    return list(workflow.dag.needrun_jobs())


def forced_jobs(workflow: Any) -> list[Any]:
    """Those of them that a person asked to run again (`--forcerun`, `--forceall`)."""
    return [job for job in planned_jobs(workflow) if workflow.dag.reason(job).forced]
