"""What slurm/executor.py takes from the executor plugin (2.8.0): a test that fails here says what broke when it moved."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import snakemake.iocontainers
import snakemake_executor_plugin_slurm as plugin
import snakemake_executor_plugin_slurm_jobstep
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from crawl2llm.core import retries
from crawl2llm.slurm import executor, queue

HOME = Path(plugin.__file__).parent
REPLACED = {
    "get_submit_command",
    "subprocess",
    "query_job_status",
    "get_min_job_age",
    "validate_account",
    "get_account",
    "get_default_partition",
}


def uses(path: Path, name: str) -> dict[str, set[str]]:
    """Function → the attributes of `name` that it uses, in a module."""
    found: dict[str, set[str]] = {}
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
                    found.setdefault(function.name, set()).add(node.attr)
    return found


def test_every_question_of_the_plugin_is_known() -> None:
    """Each function that starts a process: replaced, never called under profiles/slurm, or without consequence."""
    found = {
        f"{path.stem}.{name}"
        for path in HOME.glob("*.py")
        for library in ("subprocess", "asyncio", "os")
        for name, used in uses(path, library).items()
        if used & {"Popen", "run", "check_output", "check_call", "call", "system", "popen", "create_subprocess_exec"}
    }
    assert found == {
        # through Commands
        "__init__.run_job",
        "__init__.check_active_jobs",
        "__init__.run_array_jobs",  # never: the profile has no array jobs
        # replaced
        "accounts.validate_account",
        "accounts.get_account",
        "partitions.get_default_partition",
        "job_status_query.get_min_job_age",
        "job_status_query.query_job_status",
        "job_cancellation.cancel_slurm_jobs",  # by PatientExecutor.cancel_jobs
        # without consequence: a limit for array jobs, `which`, options that the profile does not use
        "utils.get_max_array_size",
        "job_status_query.is_query_tool_available",
        "efficiency_report.get_sacct_data",
        "partitions.query_scontrol_partitions",
    }


def test_what_is_replaced_is_there_and_is_looked_up_in_the_module() -> None:
    assert {name for name in REPLACED if hasattr(plugin, name)} == REPLACED
    source = inspect.getsource(plugin.Executor)
    for name in REPLACED - {"subprocess"}:
        assert f"{name}(" in source, name
    used = set().union(*uses(HOME / "__init__.py", "subprocess").values())
    assert used == {"Popen", "PIPE", "CalledProcessError", "check_output"}
    assert used <= set(dir(executor.Commands))


def test_signatures() -> None:
    def names(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert names(plugin.get_submit_command)[:4] == ["job", "params", "settings", "failed_nodes"]
    assert names(plugin.query_job_status) == ["command", "logger"]
    assert names(plugin.get_min_job_age) == []
    assert names(plugin.validate_account) == ["account", "logger"] and names(plugin.get_account) == ["logger"]
    assert names(plugin.get_default_partition) == ["job", "logger"]
    assert names(RemoteExecutor.cancel_jobs) == ["self", "active_jobs"]
    assert names(RemoteExecutor.get_job_exec_suffix) == ["self", "job"]
    assert names(JobScheduler.executor_error_callback) == ["self", "exception"]
    assert inspect.isasyncgenfunction(plugin.Executor.check_active_jobs)
    assert "_job_submission_executor = ThreadPoolExecutor(" in inspect.getsource(plugin.Executor.__post_init__)
    assert "self._main_event_loop.call_soon_threadsafe" in inspect.getsource(plugin.Executor)


class Resources(dict[str, Any]):
    __getattr__ = dict.__getitem__


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """An executor with its patient parts, without SLURM; what is replaced in the plugin is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue, "min_job_age", lambda: 300)
    for name in REPLACED:
        monkeypatch.setattr(plugin, name, getattr(plugin, name))
    made = object.__new__(plugin.Executor)
    made.run_uuid = "crawl2llm_17"
    made.array_jobs = set()
    executor.install_patience(made)
    return made


def test_the_line_of_a_submission(installed: Any) -> None:
    """Held, with a mark of its own behind the comment that people read."""
    job = SimpleNamespace(resources=Resources(mem_mb=100), threads=1)
    params = {
        "run_uuid": "x",
        "slurm_logfile": "x.log",
        "comment_str": "rule_a_wildcards_b",
        "account": "",
        "partition": "",
    }
    line = [shlex.split(plugin.get_submit_command(job, params | {"workdir": None})) for _ in range(2)]
    assert line[0][:3] == ["sbatch", "--hold", "--parsable"]
    comments = [words[words.index("--comment") + 1] for words in line]
    assert comments[0] != comments[1]
    for comment in comments:
        assert executor.MARK.search(comment)
        match = queue.COMMENT.match(comment)
        assert match and match["rule"] == "a" and match["task"] == "b"
    assert plugin.get_min_job_age() == 300


def test_a_job_leaves_a_sign_of_its_good_end(installed: Any) -> None:
    suffix = installed.get_job_exec_suffix(SimpleNamespace(jobid=3, attempt=2))
    assert suffix == "(touch .snakemake/slurm-ended/crawl2llm_17/3-2 || true)"
    assert Path(".snakemake/slurm-ended/crawl2llm_17").is_dir()


def test_a_job_starts_snakemake_once(installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script starts the line that the executor's jobstep would, with that step's environment."""
    monkeypatch.setattr(
        RemoteExecutor, "format_job_exec", lambda self, job: "cd x && /env/python -m snakemake --cores all"
    )
    monkeypatch.setattr(RemoteExecutor, "get_python_executable", lambda self: "/env/python")
    job = SimpleNamespace(resources=Resources(mem_mb=100), threads=3)
    alone = installed.format_job_exec(job).removeprefix(f"{executor.UNSET}; ")
    assert alone == "cd x && srun -n1 --cpu-bind=q --cpus-per-task=3 --nodes=1 /env/python -m snakemake --cores all"
    several_nodes = SimpleNamespace(
        resources=snakemake.iocontainers.ResourceList(fromdict={"mpi": "", "nodes": 2}), threads=3
    )
    assert installed.format_job_exec(several_nodes).endswith("; cd x && /env/python -m snakemake --cores all")
    assert installed.additional_general_args() == ""

    jobstep = inspect.getsource(snakemake_executor_plugin_slurm_jobstep.Executor.run_job)
    assert set(re.findall(r'"(SLURM_\w+)"', jobstep.split("keep_slurm = ")[1].split("}")[0])) == {
        name for name in executor.JOB_VARIABLES.split()
    } | {name for name in re.findall(r'"(SLURM_ARRAY\w+)"', jobstep)}
    given = {
        "SLURM_JOB_ID": "3",
        "SLURM_CPU_BIND": "q",
        "SRUN_X": "1",
        "SBATCH_Y": "a b",
        "XSLURM_": "1",
        "PATH": os.environ["PATH"],
    }
    left = subprocess.run(
        ["sh", "-c", f"{executor.UNSET}; env"], env=given, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split("=")[0] for line in left.splitlines()} - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "SLURM_JOB_ID",
        "XSLURM_",
        "PATH",
    }


def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> executor.Driver:
    """A driver whose SLURM are these shell scripts."""
    for name, body in programs.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho {name} $* >>{tmp_path}/calls\n{body}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(retries, "PAUSE", 0.05)
    return executor.Driver(SimpleNamespace(run_uuid="crawl2llm_17"))


LINE = "sbatch --hold --parsable --comment 'rule_a #0123456789ab' --wrap=true"
LOST = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"


def test_a_submission_whose_answer_was_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = "echo '16|rule_a #ba9876543210'; echo '17|rule_a #0123456789ab'"
    made = driver(tmp_path, monkeypatch, sbatch=LOST, squeue=found, scontrol="true")
    assert made.submit(LINE, None) == "17"
    assert [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()] == [
        "sbatch",
        "squeue",
        "scontrol",
    ]
    assert not made.may_be_copied


def test_a_refusal_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1"
    made = driver(tmp_path, monkeypatch, sbatch=refused)
    with pytest.raises(retries.SlurmError, match="Invalid partition name"):
        made.submit(LINE, None)
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_giving_up_ends_the_run_once() -> None:
    said: list[BaseException] = []
    scheduler = SimpleNamespace(executor_error_callback=said.append)
    made = executor.Driver(SimpleNamespace(run_uuid="x", workflow=SimpleNamespace(scheduler=scheduler)))
    for _ in range(2):
        made.give_up(retries.SilentSlurmError("SLURM did not answer for 600 s (squeue: …)"))
    assert len(said) == 1 and str(said[0]).startswith("SLURM did not answer for 600 s (squeue: …). The run ends here")
    assert isinstance(made.stop, threading.Event) and made.stop.is_set()
