"""Each place where the project leans on Snakemake's insides, by itself: what broke when its version moved."""

from __future__ import annotations

import inspect
import os
import subprocess
from pathlib import Path

import pytest
import snakemake.api  # noqa: F401 - first, since the modules import each other
from snakemake import persistence
from snakemake.workflow import Workflow

from tests.workflow import forked, plan
from tests.workflow.conftest import environment

SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from crawl2llm.workflow import snakemake_internals
snakemake_internals.ignore_clocks()
snakemake_internals.decide_reruns_by(workflow, lambda job: {why!r} if job.rule.name == "second" else None)
rule second:
    input: "first.txt"
    output: "second.txt"
    params: value=1
    shell: "cat {{input}} > {{output}}"

rule first:
    output: "first.txt"
    shell: "echo 1 > {{output}}"

onstart:
    if {frozen!r}:
        snakemake_internals.start_jobs_from(workflow, Path({frozen!r}), Path("frozen.json"))
        print("JOBS READ", workflow.scheduler._executor.get_snakefile())
        print("JOBS ARE CALLED WITH", workflow.spawned_job_args_factory.general_args(workflow.executor_plugin.common_settings))
    print("ASKED", [snakemake_internals.profile_resource(workflow, rule, "gres") for rule in ("first", "second")])
    print("FORCED", sorted(job.rule.name for job in snakemake_internals.forced_jobs(workflow)))
"""


def run(folder: Path, *options: str, why: str | None = None, frozen: str = "") -> str:
    root = str(Path(__file__).resolve().parents[2])
    (folder / "Snakefile").write_text(SNAKEFILE.format(root=root, why=why, frozen=frozen))
    done = forked.snakemake("--cores", "1", *options, cwd=folder, env=environment())
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_reason_makes_a_job_run_and_is_shown(tmp_path: Path) -> None:
    run(tmp_path)
    assert "Nothing to be done" in run(tmp_path, "-n")
    shown = run(tmp_path, "-n", why="the answer is 43 now")
    assert "reason: Params have changed since last execution: not up to date: the answer is 43 now" in shown
    assert "rule first" not in shown


def test_a_run_that_hangs_is_ended_and_the_next_is_not_harmed(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("import time\ntime.sleep(100)\n")
    with pytest.raises(subprocess.TimeoutExpired):
        forked.snakemake("--cores", "1", cwd=tmp_path, env=environment(), seconds=0.2)
    assert forked.snakemake("--version", cwd=tmp_path, env=environment()).returncode == 0


def test_the_manifests_are_asked_whatever_triggers_are_named(tmp_path: Path) -> None:
    """Snakemake itself advises `--rerun-triggers mtime`: it would ask neither the manifests nor, here, the clocks."""
    run(tmp_path)
    for triggers in ("mtime", "code"):
        assert "the answer is 43 now" in run(tmp_path, "-n", "--rerun-triggers", triggers, why="the answer is 43 now")


def test_neither_records_nor_times_nor_code_decide(tmp_path: Path) -> None:
    import os
    import shutil

    run(tmp_path)
    os.utime(tmp_path / "first.txt", (4_000_000_000, 4_000_000_000))
    assert "Nothing to be done" in run(tmp_path, "-n")
    shutil.rmtree(tmp_path / ".snakemake")
    assert "Nothing to be done" in run(tmp_path, "-n")
    run(tmp_path, "--touch")
    text = (tmp_path / "Snakefile").read_text().replace("value=1", "value=2").replace("cat {input}", "cp {input}")
    (tmp_path / "Snakefile").write_text(text)
    done = forked.snakemake("--cores", "1", "-n", cwd=tmp_path, env=environment())
    assert "Nothing to be done" in done.stdout


def test_what_is_missing_is_made_and_what_reads_it_too(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "first.txt").unlink()
    assert "Nothing to be done" in run(tmp_path, "-n")
    shown = run(tmp_path, "-n", why="x")
    assert "rule first" in shown and "rule second" in shown


def test_jobs_of_another_process_read_the_copies(tmp_path: Path) -> None:
    shown = run(tmp_path, "--config", "name=1", frozen="/copy/Snakefile")
    assert "JOBS READ /copy/Snakefile" in shown
    (called,) = [line for line in shown.splitlines() if line.startswith("JOBS ARE CALLED WITH")]
    assert "--configfiles frozen.json" in called and "name=1" not in called


def test_what_a_person_forces_is_known_before_the_first_job(tmp_path: Path) -> None:
    run(tmp_path)
    assert "FORCED ['second']" in run(tmp_path, "--forcerun", "second")
    assert "FORCED []" in run(tmp_path, why="x")


def test_what_a_profile_asks_for_a_rule_is_known(tmp_path: Path) -> None:
    """As profiles/slurm writes it: YAML takes one pair of quotes, Snakemake evaluates the other."""
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "config.yaml").write_text("set-resources:\n  first:\n    gres: \"'gpu:h100:4'\"\n")
    (asked,) = [line for line in run(tmp_path, "--profile", str(profile)).splitlines() if line.startswith("ASKED")]
    assert asked == """ASKED ["'gpu:h100:4'", '']"""


def test_the_names_that_are_used_are_there() -> None:
    from snakemake.dag import DAG
    from snakemake.jobs import Job

    source = inspect.getsource(DAG)
    for name in (
        "has_metadata",
        "has_outdated_metadata",
        "params_changed",
        "input_changed",
        "code_changed",
        "software_stack_changed",
    ):
        assert hasattr(persistence.PersistenceBase, name), f"{name} is gone: the manifests are not asked any more"
        assert f"persistence.{name}" in source, f"the DAG does not ask {name} any more"
    assert "output_mintime" in vars(Job), "Job.output_mintime is gone: modification times count again"
    assert {"persistence", "scheduler", "rerun_triggers"} <= vars(Workflow).keys()
    assert "self.workflow.rerun_triggers" in source, (
        "the DAG has its triggers from elsewhere: --rerun-triggers counts again"
    )
    assert {"only_new", "files"} <= set(persistence.ParamsChange.__dataclass_fields__)


def test_an_input_of_the_future_fails_no_job(tmp_path: Path) -> None:
    """Of a copied folder, or written by a machine whose clock is ahead: no clock decides."""
    run(tmp_path)
    (tmp_path / "second.txt").unlink()
    os.utime(tmp_path / "first.txt", (4e9, 4e9))
    run(tmp_path)
    assert (tmp_path / "second.txt").exists() and "Nothing to be done" in run(tmp_path, "-n")


def test_a_job_that_has_nothing_to_do_is_not_started(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    text = SNAKEFILE.format(root=root, why=None, frozen="")
    text += '    snakemake_internals.start_only_if(workflow, lambda job: job.rule.name == "second")\n'
    (tmp_path / "Snakefile").write_text(text)
    (tmp_path / "second.txt").write_text("as it was\n")
    done = forked.snakemake("--cores", "1", "--forceall", cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "first.txt").read_text() == "1\n" and (tmp_path / "second.txt").read_text() == "as it was\n"
    assert (
        "nothing to do: settings, code and input are as before" in done.stdout
        and "2 of 2 steps (100%) done" in done.stdout
    )


def test_a_rule_that_is_called_after_a_step_is_complete(tmp_path: Path) -> None:
    """What it says itself stays, in a rule of a loop too; a rule of another name is left alone."""
    _, workflow = plan.dry_run(tmp_path, {"ingest": {"extract": {"shards": 2}}, "filters": ["url", "language"]})
    rules = {rule.name: rule for rule in workflow.rules}
    jobs = {job.rule.name: job for job in workflow.dag.jobs}
    assert str(jobs["url_score"].log[0]) == "logs/main/url/score/00000.log"
    assert jobs["url_score"].params.program == ["crawl2llm.filters.url.score"]
    assert jobs["language_score"].params.program == ["crawl2llm.filters.language.score"]
    assert jobs["tokenize_train"].threads == 2 and rules["tokenize_train"].shellcmd.startswith("RAYON_NUM_THREADS=")
    assert rules["pretrain_train"].shellcmd.startswith("exec python -m crawl2llm.training.launch ")
    assert rules["pretrain_train"].ruleinfo.container_img is False and rules["url_score"].ruleinfo.container_img is None
    assert not rules["report_now"].log and rules["all"].conda_env is None
