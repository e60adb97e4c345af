"""Each shortcut in Snakemake's planning by itself: the plan is the same as without it, and what it saves is saved."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import snakemake.api  # noqa: F401 - first, since the modules import each other

from crawl2llm.workflow import planning_shortcuts
from tests.workflow.conftest import ROOT, environment

# Shortcut → what it has Snakemake call less often.
SAVED = {
    "cache_producers": "snakemake.output_index.OutputIndex.match_producers",
    "cache_parameters": "inspect.signature",
    "use_rule_environments": "snakemake.rules.Rule.expand_params",
    "skip_times": "snakemake.io._IOFile.mtime_uncached",
    "keep_files": "snakemake.rules.IOFile",
    "share_files": "snakemake.io._IOFile.clone_flags",
    "read_storage_flags": "snakemake.io.is_flagged",
    "print_plain_names": "snakemake.jobs.fmt_iofile",
    "format_one_command": "snakemake.jobs.Job.format_wildcards",
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "plan": (),
    "commands": ("--printshellcmds",),
    "forced": ("--forcerun", "part", "--until", "other"),
    "circle": ("round/a.1",),
    "lacking": ("lacking.txt",),
    "mistaken": ("mistaken/1.txt",),
}
WORDS = {
    "circle": "CyclicGraphException",
    "lacking": "MissingInputException",
    "mistaken": "RuleException",
    "commands": "echo 3 > part/3.txt",
}
# Each dry run in a copy of a process that has imported Snakemake: its shortcuts are its own.
START = """
import atexit, json, os, pkgutil, sys
import snakemake.api
from snakemake.cli import main
from crawl2llm.workflow import planning_shortcuts

def counted(path):
    holder, _, name = path.rpartition(".")
    holder, calls = pkgutil.resolve_name(holder), []
    whole = getattr(holder, name)
    def call(*given, **named):
        calls.append(1)
        return whole(*given, **named)
    setattr(holder, name, call)
    return lambda: print("CALLED", path, len(calls), flush=True)

for name, taken, options, paths in json.load(sys.stdin):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    out = os.open(name + ".out", os.O_CREAT | os.O_WRONLY)
    os.dup2(out, 1), os.dup2(out, 2)
    tell = [counted(path) for path in paths]
    for shortcut in taken:
        getattr(planning_shortcuts, shortcut)()
    try:
        main(["--cores=2", "--dry-run", *options])
    finally:
        for each in tell:
            each()
        os._exit(0)
"""
SNAKEFILE = """
def several(wildcards):
    return [f"part/{number}.txt" for number in range(4)]

rule all:
    input: "whole.txt", "other.txt"

rule whole:
    input: parts=several, source="source.txt"
    output: page=report("whole.txt", category="pages")
    log: "logs/whole.log"
    shell: "cat {input} > {output} 2> {log}"

rule other:
    input: several
    output: temp("other.txt")
    params: many=lambda wildcards, input: len(input)
    shell: "echo {params.many} > {output}"

rule part:
    input: "source.txt"
    output: "part/{number}.txt"
    log: "logs/{number}.log"
    benchmark: "benchmarks/{number}.tsv"
    conda: "env.yaml"
    params: number=lambda wildcards: wildcards.number
    threads: 2
    shell: "echo {params.number} > {output} 2> {log}"

rule circle:
    input: "round/{name}.2"
    output: "round/{name}.1"
    shell: "cp {input} {output}"

rule circle_again:
    input: "round/{name}.1"
    output: "round/{name}.2"
    shell: "cp {input} {output}"

rule lacking:
    input: "part/0.txt", "nowhere.txt"
    output: "lacking.txt"
    shell: "cp {input} {output}"

rule mistaken:
    output: "mistaken/{number}.txt"
    shell: "echo {params.number} > {output}"
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What dry runs say: of every case without shortcuts (`plan`) and with all (`plan, all`), of the plan with each by itself."""
    folder = tmp_path_factory.mktemp("shortcuts")
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "env.yaml").write_text("dependencies: [python]\n")
    (folder / "source.txt").touch()
    paths = list(SAVED.values())
    runs = [(name, [], options, paths) for name, options in OPTIONS.items()]
    runs += [(f"{name}, all", list(SAVED), options, []) for name, options in OPTIONS.items()]
    runs += [(f"plan, {shortcut}", [shortcut], (), paths) for shortcut in SAVED]
    subprocess.run(
        [sys.executable, "-c", START], cwd=folder, input=json.dumps(runs), text=True, check=True,
        env={**environment(), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return {name: (folder / f"{name}.out").read_text() for name, *_ in runs}


def plan(output: str) -> list[str]:
    """The lines of a plan that are not of the hour; tasks stand in any order, and the files of a reason too."""
    lines = output.partition("Building DAG of jobs...")[2].splitlines()
    kept = [line for line in lines if not re.match(r"\[|CALLED|    jobid:", line)]
    return sorted(" ".join(sorted(re.split(r"[;,:]?\s+", line))) for line in kept)


def calls(output: str, path: str) -> int:
    return int(re.findall(rf"^CALLED {re.escape(path)} (\d+)$", output, re.MULTILINE)[0])


def test_every_shortcut_is_tested() -> None:
    assert [shortcut.__name__ for shortcut in planning_shortcuts.ALL] == list(SAVED)


@pytest.mark.parametrize("shortcut", SAVED)
def test_a_shortcut_saves_work_and_changes_no_plan(said: dict[str, str], shortcut: str) -> None:
    before, after, path = said["plan"], said[f"plan, {shortcut}"], SAVED[shortcut]
    assert plan(after) == plan(before) and "rule part:" in after
    assert calls(after, path) < calls(before, path), f"{shortcut} saves nothing: Snakemake uses {path} in another way"


@pytest.mark.parametrize("case", OPTIONS)
def test_all_shortcuts_together_change_no_plan_and_no_refusal(said: dict[str, str], case: str) -> None:
    before, after = said[case], said[f"{case}, all"]
    assert plan(after) == plan(before) and WORDS.get(case, "rule part:") in after


def test_the_version_of_the_lock_is_the_tested_one() -> None:
    lock = (ROOT / "envs/lock.txt").read_text(encoding="utf-8").splitlines()
    assert f"snakemake=={planning_shortcuts.TESTED_VERSION}" in lock
