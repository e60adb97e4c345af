"""The SLURM executor with patience: no job is forgotten, none is submitted twice, none fails because SLURM was silent.

By itself version 2.8.0 of the executor takes a failed question for an answer: after one failed `scontrol` it asks sacct, which
knows nothing on a cluster without accounting; after five failed status queries it forgets every job; a failed `sbatch` is a
failed job, although the controller may have taken it. What is put in the place of its parts, and why, is in `install_patience`.

A submission has two phases. `sbatch --hold` with a mark of its own in the job's comment may be lost, or arrive late, after
it was cut off; so before it is sent again squeue is asked for the mark. Then one number is released. A copy that arrives
after all stays held, never runs, and is cancelled at the end.

A job starts Snakemake once. By itself the executor starts it twice: the first reads the whole workflow to write the line of `srun`
that starts the second. That line is known at the submission (`task_line`).
"""

from __future__ import annotations

import asyncio
import getpass
import re
import shlex
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from crawl2llm.core import retries
from crawl2llm.core.retries import NoAnswerError, RunStopped, SilentSlurmError, SlurmError
from crawl2llm.slurm import cluster, queue

MARK = re.compile(r" #(\w{12})\b")  # in a job's comment: one submission
# a file for each job whose command ended well, by run, job and attempt
ENDED_FOLDER = Path(".snakemake") / "slurm-ended"
QUOTE, ESCAPED = '"', '\\"'
WRAP = f" --wrap={QUOTE}"
GONE_SECONDS = 60.0  # seconds without a job in squeue's answers after which it counts as gone
# A step takes over what names the job, and no setting of the batch script's own step: these variables, and no other of SLURM's, as in
# the executor's jobstep (0.6.1).
JOB_VARIABLES = " ".join(f"SLURM_{name}" for name in ("JOB_ID", "JOBID", "CLUSTER_NAME", "SUBMIT_DIR", "SUBMIT_HOST"))
UNSET = (
    f"unset $(awk -v kept='{JOB_VARIABLES}' 'BEGIN {{ split(kept, names); for (i in names) keep[names[i]]; "
    "for (name in ENVIRON) if (name ~ /^(SLURM|SRUN|SBATCH)_/ && !(name in keep)) print name }')"
)
WHAT_NOW = (
    "The run ends here and nothing is lost: its jobs in the queue keep running by themselves. Start it again once SLURM answers: "
    "it cancels what is left of them and resumes from the existing results"
)


class Driver:
    """What is asked of SLURM for the executor of one run."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self.run: str = executor.run_uuid
        self.job_filter = (f"--user={getpass.getuser()}", f"--name={self.run}")
        self.stop = threading.Event()  # nobody needs more answers
        self.marks_sent: set[str] = set()  # marks of submissions that may have reached the controller
        self.may_be_copied = False  # whether there may be a copy, held
        self.listed_numbers: set[str] | None = None  # numbers in squeue's newest answer
        self.missing_since: dict[str, float] = {}  # number → when squeue first lacked it

    def give_up(self, error: SlurmError) -> None:
        """End the run, with one line, and without a word about its jobs, which did not fail."""
        from snakemake.exceptions import WorkflowError

        if not self.stop.is_set():
            self.stop.set()
            self.executor.workflow.scheduler.executor_error_callback(WorkflowError(f"{error}. {WHAT_NOW}"))

    # ---- submitting

    def submit(self, call: str, script: str | None) -> str:
        """Submit a job once, by the executor's `sbatch …` line with a mark; returns its number.

        Raises SlurmError if SLURM refuses it, SilentSlurmError or RunStopped where it stays unknown.
        """
        match = MARK.search(call)
        assert match, call
        mark = match.group(1)

        def attempt(timeout: float) -> str:
            if mark in self.marks_sent:
                rows = retries.ask_once(
                    "squeue", "--noheader", *self.job_filter, "--states=all", "--format=%i|%k", timeout=timeout
                )
                if numbers := [row.split("|")[0] for row in rows.splitlines() if row.endswith(f" #{mark}")]:
                    return min(numbers, key=int)
                self.may_be_copied = True
            self.marks_sent.add(mark)
            out = retries.ask_once(call, shell=True, script=script, timeout=timeout)  # noqa: S604
            if not (numbers := re.findall(r"^(\d+)(?:;.*)?$", out, re.MULTILINE)):
                raise NoAnswerError(f"sbatch: no number in {out!r}")
            return numbers[0]

        number = retries.retry_until_answered(attempt, stop=self.stop)
        try:
            retries.ask_slurm("scontrol", "release", number, stop=self.stop)
        except SilentSlurmError:
            raise
        except SlurmError:
            # Released by a call whose answer was lost, and over since; or cancelled: its state says so soon.
            reason = retries.ask_slurm(
                "squeue", "--noheader", f"--jobs={number}", "--states=all", "--format=%r", stop=self.stop
            )
            if "JobHeld" in reason:
                raise
        return number

    # ---- asking for states

    async def job_states(self, command: str, logger: Any) -> tuple[dict[str, str], float]:
        """Job number → state, and the seconds that it took; in the place of the executor's `query_job_status`."""
        begin = time.monotonic()
        text = await asyncio.to_thread(lambda: retries.ask_slurm(*shlex.split(command), stop=self.stop))
        states = {
            number.strip(): state.strip() for number, _, state in (row.partition("|") for row in text.splitlines())
        }
        if command.startswith("squeue"):  # sacct may be late with a job
            self.listed_numbers = set(states)
        return states, time.monotonic() - begin

    def is_gone(self, number: str) -> bool:
        """Whether a job that SLURM had accepted has been unknown to it for GONE_SECONDS.

        It was silent for longer than it remembers a job that has ended (MinJobAge), or it came back without its memory.
        """
        if self.listed_numbers is None or number in self.listed_numbers:
            self.missing_since.pop(number, None)
            return False
        return time.monotonic() - self.missing_since.setdefault(number, time.monotonic()) > GONE_SECONDS

    def success_file(self, job: Any) -> Path:
        """The file that a job leaves at its good end."""
        return ENDED_FOLDER / self.run / f"{job.jobid}-{job.attempt}"


def install_patience(executor: Any) -> None:
    """Put patient parts in the place of the executor's own; tests/slurm/test_executor.py says which and holds them."""
    import snakemake_executor_plugin_slurm as plugin

    driver = Driver(executor)
    age = queue.min_job_age()
    shutil.rmtree(ENDED_FOLDER, ignore_errors=True)
    (ENDED_FOLDER / driver.run).mkdir(parents=True)
    submit_command = plugin.get_submit_command

    def marked_submit_command(job: Any, params: dict[str, Any], **options: Any) -> str:
        """The executor's sbatch line: held, and with a mark in its comment."""
        comment = f"{params['comment_str']} #{uuid.uuid4().hex[:12]}"
        line: str = submit_command(job, params | {"comment_str": comment}, **options)
        return line.replace("sbatch ", "sbatch --hold ", 1)

    plugin.get_submit_command = marked_submit_command
    plugin.subprocess = Commands(driver)
    plugin.query_job_status = driver.job_states
    # Asked once; a failed question at each look at the queue would change the status command.
    plugin.get_min_job_age = lambda: age
    # The preflight has compared the account with sshare, and sbatch refuses a wrong one. The executor asks sacctmgr at each
    # submission, and guesses an account from sacct.
    plugin.validate_account = lambda account, logger: account
    plugin.get_account = lambda logger: None
    plugin.get_default_partition = lambda job, logger: cluster.default_partition()
    executor.__class__ = patient_class(type(executor), driver)


class Commands:
    """What the executor uses of the module `subprocess`, with patience."""

    PIPE, CalledProcessError = subprocess.PIPE, subprocess.CalledProcessError

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def Popen(self, call: str, **_: Any) -> Submission:
        """A submission."""
        return Submission(self.driver, quote_wrapped(call))

    def check_output(self, call: str, **_: Any) -> str:
        """A question about a job that failed: the reason, its node. Without an answer they stay unknown."""
        try:
            return retries.ask_slurm(*shlex.split(call), limit=60, stop=self.driver.stop)
        except SlurmError as error:
            raise subprocess.CalledProcessError(1, call, stderr=str(error)) from None


def quote_wrapped(call: str) -> str:
    """The executor's sbatch line with its last option, `--wrap`, quoted for the shell.

    The executor escapes double quotes alone, so the shell would run what stands in a path between `$(` and `)`.
    """
    head, wrap, rest = call.partition(WRAP)
    return f"{head} --wrap={shlex.quote(rest.removesuffix(QUOTE).replace(ESCAPED, QUOTE))}" if wrap else call


class Submission:
    """An sbatch process, as far as the executor sees it."""

    def __init__(self, driver: Driver, call: str) -> None:
        self.driver, self.call, self.returncode = driver, call, 0

    def communicate(self, input: str | None = None) -> tuple[str, str]:
        """(the job's number, ""), or ("", SLURM's refusal)."""
        try:
            return self.driver.submit(self.call, input), ""
        except SilentSlurmError as error:
            self.driver.give_up(error)
            raise RunStopped from None
        except SlurmError as error:
            self.returncode = 1
            return "", str(error)


def task_line(job: Any, python: str, line: str) -> str:
    """The line of a job's script: `line`, which starts Snakemake by `python`, as one task of SLURM with the job's cores and GPUs.

    A rule with `mpi` starts its tasks itself, one on each node. The words are those of the executor's jobstep.
    """
    from snakemake_executor_plugin_slurm_jobstep import get_cpu_setting, get_gpu_setting, get_node_setting

    start = f"{python} -m snakemake"
    if line.count(start) != 1:
        raise ValueError(f"the executor's line starts Snakemake in another way than by {start!r}: {line}")
    if "mpi" not in job.resources.keys():  # noqa: SIM118 - `in` asks for values
        gpus = bool(job.resources.get("gpus") or job.resources.get("gpu"))
        words = ["srun -n1 --cpu-bind=q", get_cpu_setting(job, gpus), get_gpu_setting(job), get_node_setting(job)]
        line = line.replace(start, f"{' '.join(filter(None, words))} {start}")
    return f"{UNSET}; {line}"


def patient_class(parent: Any, driver: Driver) -> Any:
    """The executor's class with the methods that do what the head of this file says."""

    class PatientExecutor(parent):
        def get_python_executable(self) -> str:
            """The interpreter's path as a word for the shell."""
            return shlex.quote(super().get_python_executable())

        def additional_general_args(self) -> str:
            """Options of the Snakemake in a job; an array's are the executor's, which finds its task by them."""
            return super().additional_general_args() if self.array_jobs else ""

        def format_job_exec(self, job: Any) -> str:
            line = super().format_job_exec(job)
            return line if self.array_jobs else task_line(job, self.get_python_executable(), line)

        def get_job_exec_suffix(self, job: Any) -> str:
            before = super().get_job_exec_suffix(job)
            return (
                f"{before} && (touch {driver.success_file(job)} || true)"
                if before
                else f"(touch {driver.success_file(job)} || true)"
            )

        async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
            """The executor's own, which yields the jobs that are not over; every job is yielded or reported."""
            unreported = {id(info): info for info in active_jobs}
            try:
                async for info in super().check_active_jobs(active_jobs):
                    del unreported[id(info)]
                    if not driver.is_gone(info.external_jobid):
                        yield info
                    elif driver.success_file(info.job).exists():
                        self.report_job_success(info)
                    else:
                        message = f"SLURM does not know job {info.external_jobid} any more, and it left no sign of a good end. "
                        self.report_job_error(info, msg=message, aux_logs=[str(info.aux.get("slurm_logfile"))])
            except (SlurmError, RunStopped) as error:
                if isinstance(error, SlurmError):
                    driver.give_up(error)
                for info in unreported.values():
                    yield info

        def cancel_jobs(self, active_jobs: list[Any]) -> None:
            """Cancel this run's jobs, by its name: also those under submission, or just being asked for."""
            driver.stop.set()
            self._job_submission_executor.shutdown(wait=True, cancel_futures=True)
            try:
                retries.ask_slurm("scancel", *driver.job_filter)
            except SlurmError as error:
                self.logger.error(f"the run's jobs are not cancelled ({error}); the next start does it")
            driver.may_be_copied = False

        def shutdown(self) -> None:
            super().shutdown()
            if driver.may_be_copied and not driver.stop.is_set():
                try:
                    retries.ask_slurm("scancel", *driver.job_filter, "--state=PENDING")
                except SlurmError as error:
                    self.logger.warning(f"copies of submissions may be left in the queue, held ({error})")
            shutil.rmtree(ENDED_FOLDER, ignore_errors=True)

    return PatientExecutor
