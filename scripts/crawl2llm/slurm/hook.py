"""What a run does before its first submission, called by the Snakefile's `onstart`: guard, then preflight.

With another executor than slurm it does nothing, except where SLURM still has jobs of this folder.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

from crawl2llm.core import retries
from crawl2llm.slurm import executor, guard, pace, queue

LOCAL = 2.0  # seconds for which a run on this machine waits for SLURM


def has_jobs_left(submitted: Path) -> bool:
    """Whether jobs of this folder are in the queue, before a run on this machine: it needs nothing else of SLURM, which may be gone.

    submitted: the file that says that SLURM got jobs of this folder. Raises SlurmError, with the ways out, after LOCAL seconds of silence.
    """
    try:
        return bool(queue.read_jobs(Path.cwd(), limit=retries.seconds_to_ask(LOCAL)))
    except retries.SlurmError as error:
        raise retries.SlurmError(
            f"jobs of this folder were submitted to SLURM once, and it does not say whether any is left: {error}. Such a job would "
            f"write the same files. Start again once SLURM answers; or let it be asked for longer, by {retries.LIMIT_VARIABLE}=60 in the "
            f"environment; or, if you know that no job is left: rm {shlex.quote(str(submitted))}"
        ) from None


def before_submission(workflow: Any) -> None:
    """Clear the queue of a dead run's jobs, then compare the plan with the cluster's limits.

    Raises WorkflowError, with every reason, before anything is submitted.
    """
    from snakemake.exceptions import WorkflowError
    from snakemake.logging import logger

    if not shutil.which("squeue"):
        return
    slurm = workflow.executor_plugin.name == "slurm"
    folder = Path.cwd()
    submitted = folder / ".snakemake" / "slurm-submitted"  # whether jobs of this folder can be in the queue
    retries.silence.report = logger.warning
    try:
        if not slurm and not submitted.exists():
            return  # a run on this machine, in a folder of which SLURM never got a job
        guard.claim_folder(folder / guard.DRIVER_FILE)
        if slurm or has_jobs_left(submitted):
            guard.clear_queue(folder, logger.warning)
        if not slurm:
            submitted.unlink()  # nothing is left: the next run on this machine asks nothing
        else:
            from crawl2llm.commands import preflight  # here, since each job reads this file too

            report = preflight.preflight_report(workflow, workflow.executor_settings)
            logger.info(report.table())
            for line in report.warnings:
                logger.warning(f"preflight: {line}")
            if report.errors:
                raise WorkflowError("preflight, nothing was submitted:\n" + "\n".join(f"  {e}" for e in report.errors))
            pace.limit_pause(workflow.scheduler._executor)
            executor.install_patience(workflow.scheduler._executor)
            submitted.touch()
    except (guard.GuardError, retries.SlurmError) as error:
        raise WorkflowError(f"nothing was {'submitted' if slurm else 'started'}: {error}") from None
