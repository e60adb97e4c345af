"""How long `snakemake --dry-run` and `crawl2llm plan` take over 1,000 shards, and what a dry run imports.

    python -m benchmarks.dry_run            # a quarter of an hour; writes benchmarks/results/dry_run.json
    python -m benchmarks.dry_run --shards 4096 --files 90000 --rounds 1 --output /tmp/dump.json    # a whole dump
    python -m benchmarks.dry_run --variants --shards 256 --output benchmarks/results/dry_run_variants.json    # sweeps of 50 and of 10
    python -m benchmarks.dry_run --results --folder /tmp/dump --shards 4096 --files 90000 --output benchmarks/results/dry_run_dump.json

Planned with no result at all, with the manifests of a complete run, each of which is read and compared, and with these after an
edit of an early key. The floor is Snakemake alone: a Snakefile with as many jobs and input files and nothing else. CPU seconds are
user and system together; the clock also counts what others do on the machine. Only what is measured in the same run compares.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from benchmarks import machine
from benchmarks.machine import processor, versions
from crawl2llm.chain import config as configuration
from crawl2llm.chain import filter_order, sources, steps
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.commands.plan import dryrun
from crawl2llm.core import manifest_ranges, record
from crawl2llm.core.manifest import Manifest, combine_sources, digest
from crawl2llm.core.root import ROOT

HEAVY = ("torch", "pyarrow", "numpy", "transformers", "deepspeed", "fasttext", "datasketch", "tokenizers", "lm_eval")
EDIT = {"language": {"select": {"threshold": 0.7}}}

# Snakemake alone. jobs.json: rule → task → its input files; a task's output is <rule>/<task>.
BARE = """
import json
JOBS = json.load(open("jobs.json"))
def inputs(rule):
    return lambda wildcards: JOBS[rule][wildcards.task]
rule all:
    input: "report_render/0"
"""
RULE = """
rule {name}:
    input: inputs("{name}")
    output: "{name}/{{task}}"
    log: "logs/{name}/{{task}}"
    benchmark: "benchmarks/{name}/{{task}}"
    params: name="{name}"
    shell: "true {{input}} {{output}} {{params.name}} {{log}}"
"""


def run(command: list[str], folder: Path) -> tuple[dict[str, float], str]:
    """machine.run with this project's programs.

    Snakemake lists the folders of sys.path for plugins; that with the crawl is not among them where its command is called.
    """
    return machine.run(command, folder, PYTHONPATH=str(ROOT), PYTHONSAFEPATH="1")


def prepared(folder: Path, shards: int, files: int | None = None) -> Path:
    """A config over `files` small files (default: as many as shards) of one web source, which are made with it; returns its path."""
    config = folder / "config.yaml"
    if not config.exists():
        (folder / "crawl").mkdir(parents=True)
        for number in range(files or shards):
            (folder / "crawl" / f"CC-MAIN-20260101000000-20260101030000-{number:05d}.warc.gz").write_bytes(
                b"%d" % number
            )
        source = {"name": "web", "kind": "warc", "paths": [str(folder / "crawl" / "*.warc.gz")]}
        config.write_text(yaml.safe_dump({"ingest": {"extract": {"shards": shards, "sources": [source]}}}))
    return config


def planned(folder: Path, config: Path, *python: str) -> tuple[dict[str, float], str]:
    """Seconds and output of one dry run of the workflow in `folder`."""
    options = ["--profile", str(ROOT / "profiles/local"), "--configfile", str(config), "--dry-run"]
    return run([sys.executable, *python, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), *options], folder)


@mock.patch("os.fsync", lambda _: None)
def completed(folder: Path, config: Path) -> None:
    """Write the manifests and records of a complete run, as its programs would: each reader names the files that it read.

    Nothing is forced to the disk: it would take minutes, and a benchmark is not kept.
    """
    complete = configuration.validate(yaml.safe_load(config.read_text(encoding="utf-8")))
    found = sources.files_by_shard(complete)
    contents = {shard: sources.content_digest(found.get(shard, [])) for shard in steps.shards(complete)}
    whole = combine_sources([{shard: mark} for shard, mark in contents.items()])
    memo: dict[str, str] = {}
    written: dict[tuple[str, str], Manifest] = {}
    for_each_shard = {
        name for name in [*filter_order.verdict_steps(complete["filters"]), "corpus.split"] if not steps.STEPS[name].per
    }
    for step in steps.used_steps(complete):
        facts = steps.STEPS[step]
        sharded = facts.per == "shard"
        for task in steps.result_ids(step, complete):
            place = folder / "results/main" / step.replace(".", "/")
            place.mkdir(parents=True, exist_ok=True)
            files = [place / f"{name}.bin" for name in ([*contents] if step in for_each_shard else [task or "all"])]
            for file in files:
                file.write_bytes(b"")
            mark = fingerprint(step, complete, memo, task if facts.per == "model" else "")
            made = Manifest(step, digest(mark))
            alone = step == DOCUMENTS  # what comes later goes back to all shards, through ingest.check
            if alone:
                made.sources = {task: contents[task]}
            else:
                made.sources = {} if step == "crawl.render" else whole
            for need in steps.needed_steps(step, complete, task if facts.per == "model" else ""):
                same = sharded and steps.STEPS[need].per == "shard"
                for key in [task] if same else steps.result_ids(need, complete):
                    read = written[need, key]
                    own = sharded and need in for_each_shard
                    parts = [f"{task}.bin"] if own else [*read.files]
                    made.inputs[read.key] = {part: str(read.digest_of(part)) for part in parts}
            made.inputs = manifest_ranges.pack_ranges(made.inputs) or {"sources": {"files": contents.get(task, "")}}
            path = place / f"{task}.manifest.json".removeprefix(".")
            record.write(path, mark, {})
            made.write(path, files)
            written[step, task] = made
    for name in ("report.html", "figures/funnel.svg", "figures/loss.svg", "figures/bits-per-byte.svg"):
        path = folder / "results/main/report/render" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def bare(folder: Path, said: str) -> tuple[int, int]:
    """Write a Snakefile with the jobs and input files of this plan into `folder`; returns (jobs, input files)."""
    tasks, _ = dryrun.parse_output(said.splitlines())
    names = {str(task.manifest): f"{task.rule}/{task.id or 0}" for task in tasks}
    jobs: dict[str, dict[str, list[str]]] = {}
    for task in tasks:
        jobs.setdefault(task.rule, {})[task.id or "0"] = [names.get(path, path) for path in task.inputs]
    folder.mkdir()
    (folder / "jobs.json").write_text(json.dumps(jobs))
    (folder / "Snakefile").write_text(BARE + "".join(RULE.format(name=name) for name in jobs))
    return len(tasks), sum(len(task.inputs) for task in tasks)


def finished(folder: Path) -> None:
    """All outputs of the bare Snakefile, the oldest first, so that nothing is to be done."""
    for rule, tasks in json.loads((folder / "jobs.json").read_text()).items():
        (folder / rule).mkdir()
        for task in tasks:
            (folder / rule / task).write_bytes(b"")


def imported(folder: Path, config: Path) -> list[str]:
    """The heavy libraries that a dry run imports, but for those that Snakemake imports for an empty workflow."""

    def loaded(output: str) -> set[str]:
        lines = (line for line in output.splitlines() if "import time:" in line)
        return {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in lines} & set(HEAVY)

    empty = folder / "empty.smk"
    empty.write_text("rule all:\n    shell: 'true'\n")
    alone = run([sys.executable, "-X", "importtime", "-m", "snakemake", "-s", str(empty), "--dry-run"], folder)
    return sorted(loaded(planned(folder, config, "-X", "importtime")[1]) - loaded(alone[1]))


def measured(case: Callable[[], tuple[dict[str, float], str]], rounds: int) -> tuple[dict[str, Any], str]:
    """({"cpu": {median, all}, "clock": …, "peak_mb": …}, last output) of `rounds` calls."""
    runs = [case() for _ in range(rounds)]
    seconds = {
        name: {
            "median": round(statistics.median(took[name] for took, _ in runs), 2),
            "all": [round(took[name], 2) for took, _ in runs],
        }
        for name in ("cpu", "clock", "peak_mb")
    }
    return seconds, runs[-1][1]


def with_results(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds and memory of plans where every result is there, and of one without any, in turns. The results stay in args.folder."""
    cases = {"no result": args.folder / "none", "all results": args.folder / "all"}
    plan = [
        sys.executable,
        "-m",
        "crawl2llm.commands.plan.command",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--configfile",
    ]
    configs = {name: prepared(folder, args.shards, args.files) for name, folder in cases.items()}
    if not (folder := cases["all results"] / "results").exists():
        completed(folder.parent, configs["all results"])
    found: dict[str, Any] = {}
    for _ in range(args.rounds):
        for name, folder in cases.items():
            dry, said = planned(folder, configs[name])
            whole, told = run([*plan, str(configs[name])], folder)
            if name == "all results" and not ("Nothing to be done" in said and "nothing to do" in told):
                raise RuntimeError(said[-3000:] + told[-3000:])
            for words, took in ((name, dry), (f"{name}, crawl2llm plan", whole)):
                found.setdefault(words, []).append({key: round(value, 2) for key, value in took.items()})
    return found


# Sweeps by what differs first, of so many variants; one that changes nothing; and seconds that a plan of each may take.
RATE, THRESHOLD = "pretrain.train.learning_rate", "language.select.threshold"
SWEEPS: dict[str, tuple[dict[str, Any], int]] = {
    "50 variants from training on": ({"grid": {RATE: [round(1e-4 * n, 6) for n in range(1, 51)]}, "most": 50}, 15),
    "10 variants from the first filter on": ({"grid": {THRESHOLD: [round(0.5 + n / 100, 2) for n in range(10)]}}, 30),
    "50 trainings judged at two rungs": (
        {"grid": {RATE: [round(1e-4 * n, 6) for n in range(1, 50)]}, "most": 50, "halving": {"rungs": [0.25, 0.5]}},
        15,
    ),
}
UNCHANGED = "10 that change nothing"
SAME = {f"same-{number}": {"tokenize": {"train": {"vocabulary": "auto"}}} for number in range(10)}


def with_variants(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds and memory of plans of sweeps, with no result and with all of main's; variants that change nothing are asked for too."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folders = {"no result": Path(name) / "none", "main's results": Path(name) / "all"}
        configs = {words: prepared(folder, args.shards, args.files) for words, folder in folders.items()}
        completed(folders["main's results"], configs["main's results"])
        plan = [
            sys.executable,
            "-m",
            "crawl2llm.commands.plan.command",
            "--snakefile",
            str(ROOT / "Snakefile"),
            "--configfile",
        ]
        cases = {words: {"sweep": sweep} for words, (sweep, _) in SWEEPS.items()} | {UNCHANGED: {"variants": SAME}}
        for words, more in cases.items():
            for there, config in configs.items():
                own = config.with_name("variants.yaml")
                own.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text(encoding="utf-8")), **more}))
                case = f"{words}, {there}"
                found[case], said = measured(lambda own=own: planned(own.parent, own), args.rounds)  # type: ignore[misc]
                jobs = re.findall(r"^total\s+(\d+)", said, re.MULTILINE)
                found[case]["jobs"] = int(jobs[0]) if jobs else 0
                found[f"{case}, crawl2llm plan"], _ = measured(
                    lambda own=own: run([*plan, str(own)], own.parent),  # type: ignore[misc]
                    args.rounds,
                )
                # main's results are of a run without variants: it is still to be scored on what variants are compared on.
                if words == UNCHANGED and there == "main's results" and "variant=same-" in said:
                    raise RuntimeError(f"variants that change nothing have tasks:\n{said[-3000:]}")
    return {"seconds": found, "seconds allowed": {words: most for words, (_, most) in SWEEPS.items()}}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--files", type=int, help="source files over all shards (default: as many as shards)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "dry_run.json")
    parser.add_argument(
        "--results", action="store_true", help="only with no result and with all, which are kept in --folder"
    )
    parser.add_argument("--variants", action="store_true", help="only sweeps")
    parser.add_argument("--folder", type=Path, help="of --results: where what is planned lies, or is made")
    args = parser.parse_args(argv)
    if args.results:
        if not args.folder:
            parser.error("--results needs --folder")
        return written(args, {"runs": with_results(args)})
    if args.variants:
        return written(args, with_variants(args))
    seconds: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, alone = Path(name) / "run", Path(name) / "bare"
        config = prepared(folder, args.shards, args.files)
        edited = folder / "edited.yaml"
        edited.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **EDIT}))
        plan = [sys.executable, "-m", "crawl2llm.commands.plan.command", "--snakefile", str(ROOT / "Snakefile")]
        snakemake = [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "all"]

        seconds["no result"], said = measured(lambda: planned(folder, config), args.rounds)
        seconds["no result, crawl2llm plan"], _ = measured(
            lambda: run([*plan, "--configfile", str(config)], folder), args.rounds
        )
        heavy = imported(folder, config)
        jobs, files = bare(alone, said)
        seconds["no result, Snakemake alone"], other = measured(lambda: run(snakemake, alone), args.rounds)
        totals = {re.findall(r"^total\s+(\d+)", text, re.MULTILINE)[0] for text in (said, other)}
        if totals != {str(jobs + 1)}:
            raise RuntimeError(f"plans of {totals} jobs")
        completed(folder, config)
        finished(alone)
        seconds["complete"], said = measured(lambda: planned(folder, config), args.rounds)
        seconds["complete, crawl2llm plan"], _ = measured(
            lambda: run([*plan, "--configfile", str(config)], folder), args.rounds
        )
        seconds["complete, Snakemake alone"], other = measured(
            lambda: run([*snakemake, "--rerun-triggers", "mtime"], alone), args.rounds
        )
        if not all("Nothing to be done" in text for text in (said, other)):
            raise RuntimeError(said[-3000:] + other[-3000:])
        seconds["an early key edited"], _ = measured(lambda: planned(folder, edited), args.rounds)
        seconds["an early key edited, crawl2llm plan"], _ = measured(
            lambda: run([*plan, "--configfile", str(edited)], folder), args.rounds
        )
        (Path(name) / "Snakefile").write_text("rule all:\n    shell: 'true'\n")
        seconds["Snakemake alone, one job"], _ = measured(lambda: run(snakemake, Path(name)), args.rounds)
    return written(args, {"jobs": jobs, "input files of jobs": files, "seconds": seconds, "heavy_imports": heavy})


def written(args: argparse.Namespace, found: dict[str, Any]) -> int:
    """Write and print what was found, with the machine; 0."""
    result = {
        "what": f"snakemake --dry-run and crawl2llm plan over {args.files or args.shards} files in {args.shards} shards",
        **found,
        "load of the machine at the end": os.getloadavg()[0],
        "versions": versions("snakemake"),
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
