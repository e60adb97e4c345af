"""Looking before leaping: plans, pictures, refusals; all without running a step."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.dry_run import imported, prepared
from crawl2llm.commands.plan import dryrun
from crawl2llm.commands.plan.reasons import reasons_by_rule
from crawl2llm.core.console import format_duration
from tests.unit.training.header_published import SHAPES, write_headers
from tests.workflow import forked
from tests.workflow.conftest import ROOT, TINY, command, environment, run
from tests.workflow.plan import planned
from tools import rulegraph


def snakemake(*options: str, profile: str = "local", folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Snakemake with a profile, in `folder`."""
    return forked.snakemake(
        "--snakefile", str(ROOT / "Snakefile"),
        "--profile", str(ROOT / "profiles" / profile), "--directory", str(folder), *options,
        cwd=ROOT, env=environment(), merge=False,
    )  # fmt: skip


def test_readme_shows_the_rulegraph() -> None:
    edges = rulegraph.rule_edges(rulegraph.rulegraph_dot("--profile", "profiles/local"))
    picture = rulegraph.mermaid_chart(edges)
    assert (ROOT / "docs/rulegraph.mmd").read_text(encoding="utf-8") == picture, "run `make docs`"
    assert (ROOT / "docs/rulegraph.svg").read_text(encoding="utf-8") == rulegraph.rulegraph_svg(edges), (
        "run `make docs`"
    )
    assert "](docs/rulegraph.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_shard_that_the_task_of_another_makes_is_not_planned_twice(tmp_path: Path) -> None:
    done = snakemake(
        "--configfile", str(TINY), "-n", "results/main/language/score/00001.manifest.json", folder=tmp_path
    )
    assert done.returncode == 1
    assert "00001 is made by the task 00000: ask for 00000.manifest.json" in done.stdout + done.stderr


def test_a_dry_run_imports_nothing_heavy(tmp_path: Path) -> None:
    assert imported(tmp_path, prepared(tmp_path, 3)) == []


def test_a_broken_config_of_the_folder_is_named_with_its_place(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    for text, words in (
        ("a: 1\n\tb: 2\n", "config.yaml, line 2, column 1: a tab, where YAML takes spaces only"),
        ("", ""),
    ):
        config.write_text(text) if text else config.unlink()
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "--dry-run"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=environment(), check=False,
        )  # fmt: skip
        said = f"error: {words or f'{config}: No such file or directory'}"
        assert done.returncode == 1 and said in done.stdout.splitlines()[-1] and "Traceback" not in done.stdout


def page(folder: Path, config: Path, *options: str) -> str:
    """What `crawl2llm plan` prints in the folder of a run."""
    done = subprocess.run(
        [sys.executable, "-m", "crawl2llm.commands.plan.command", "--configfile", str(config), "--cores", "2", *options],
        capture_output=True, text=True, cwd=folder, env={**environment(), "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def seconds(folder: Path, *names: str) -> float:
    """The sum of the seconds in these benchmark files."""
    paths = [folder / "results/main/benchmarks" / name for name in names]
    return sum(float(path.read_text(encoding="utf-8").splitlines()[1].split("\t")[0]) for path in paths)


def write_config(tmp_path: Path, tree: dict[str, Any]) -> Path:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return config


def test_plan_of_a_complete_run(complete: Path) -> None:
    assert page(complete, TINY).endswith("\nnothing to do: every result is up to date\n")


def test_plan_says_what_and_why(complete: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["evaluate"]["model"]["temperature"] = 0.9
    done = snakemake("--configfile", str(write_config(tmp_path, tree)), "--dry-run", folder=complete)
    tasks, errors = dryrun.parse_output((done.stdout + done.stderr).splitlines())
    assert errors == []
    assert reasons_by_rule(tasks) == {
        "evaluate_model": {"temperature 0.8 → 0.9": 3},
        "evaluate_compare": {"runs, unless evaluate.model comes out the same": 1},
        "report_render": {"needs evaluate.compare, which runs again": 1},
    }
    # The same input as in the run that was measured takes as long as it took there, three tasks on two cores.
    taken = [seconds(complete, f"evaluate/model/{model}.tsv") for model in ("base", "sft", "untrained")]
    all_three = max(*taken, sum(taken) / 2)
    last = seconds(complete, "evaluate/compare.tsv") + seconds(complete, "report/render.tsv")
    said = page(complete, tmp_path / "config.yaml")
    assert re.search(
        rf"^evaluate_model +3 +{format_duration(all_three)}  temperature 0.8 → 0.9$", said, re.MULTILINE
    ), said
    assert f"estimate: {format_duration(all_three + last)}, one step after another, on 2 cores." in said.replace(
        "\n", " "
    )


def test_plan_scales_a_training_by_its_steps(complete: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["pretrain"]["train"]["steps"] *= 3
    said = page(complete, write_config(tmp_path, tree), "--until", "pretrain_train")
    threefold = format_duration(3 * seconds(complete, "pretrain/train.tsv"))
    assert re.search(rf"^pretrain_train +1 +{threefold}  steps 40 → 120$", said, re.MULTILINE), said


def test_plan_names_every_key_that_differs(complete: Path, tmp_path: Path) -> None:
    """Snakemake asks no task below one that runs whether it is up to date itself."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["quality"]["select"]["keep_fraction"] = 0.8
    tree["pretrain"]["train"]["steps"] = 80
    said = page(complete, write_config(tmp_path, tree))
    assert re.search(r"^quality_select .*  keep_fraction 0\.9 → 0\.8$", said, re.MULTILINE), said
    assert re.search(r"  steps 40 → 80; needs tokenize\.encode, which runs again$", said, re.MULTILINE), said
    assert re.search(
        r"^report_render .*  needs dedup\.export, pretrain\.plan, evaluate\.compare, report\.whatif and\s+"
        r"report\.inspect, which run again$",
        said,
        re.MULTILINE,
    ), said


def test_plan_of_a_folder_without_a_run_has_no_numbers(tmp_path: Path) -> None:
    said = page(tmp_path, TINY)
    assert re.search(r"^total +\d+ +\?$", said, re.MULTILINE) and "how long it takes is not known" in said


def test_plan_names_the_file_that_was_replaced(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder = copy_of()
    (folder / "books").mkdir()
    for number in range(4):
        (folder / f"books/{number}.txt").write_text(f"A book of {number} words, and more of them. " * 50)
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["ingest"]["extract"]["sources"] = [{"name": "books", "kind": "text", "paths": ["books/*.txt"]}]
    config = write_config(tmp_path, tree)
    run(folder, "--until", "ingest_extract", config=config)
    assert "nothing to do" in page(folder, config, "--until", "ingest_extract")
    (folder / "books/2.txt").write_text("Another book.")
    said = page(folder, config)
    assert re.search(r"^ingest_extract +1 +\S+  source files: 2\.txt replaced$", said, re.MULTILINE), said
    assert re.search(r"^language_select .* runs, unless language\.score comes out the same$", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{langauge: {}}", r"langauge is not a known key \(did you mean language\?\)"),
        (
            "{language: {select: {treshold: 0.5}}}",
            r"language\.select\.treshold is not a known key .*language\.select\.threshold",
        ),
        ("{language: {select: {threshold: high}}}", r"language\.select\.threshold is 'high'.*number from 0 to 1"),
        (
            "{language: {select: {languages: [xx]}}}",
            r"language\.select\.languages has 'xx', which the model bundled:lid\.176\.ftz never finds",
        ),
        ("{pretrain: {train: {zero_stage: 4}}}", r"pretrain\.train\.zero_stage is 4; allowed are 0, 1, 2, 3"),
        (
            "{pretrain: {train: {model: {hidden_size: 63, heads: 2}}}}",
            r"pretrain\.train\.model\.hidden_size is 63, not a multiple of pretrain\.train\.model\.heads = 2",
        ),
        (
            "{tokenize: {train: {vocabulary: 4096}}, pretrain: {train: {model: {size: 30M, hidden_size: 128, layers: 4}}}}",
            r"pretrain\.train\.model\.size is 30M, and hidden_size .* leave no model with about so many parameters",
        ),
        (
            "{ingest: {extract: {sources: [{name: web, kind: warc, paths: ['none/*.gz']}]}}}",
            r"ingest\.extract\.sources\[0\]\.paths: no file matches 'none/\*\.gz'",
        ),
    ],
)
def test_a_wrong_config_is_refused(tmp_path: Path, given: str, message: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(given)
    done = snakemake("--configfile", str(config), "--dry-run", folder=tmp_path)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(message, output), output
    assert "Traceback" not in output and "common.smk" not in output
    assert done.stdout.splitlines()[-1].startswith("error: ")


def test_a_misspelt_rule_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    for options in (("--until", "pretrain_trian"), ("pretrain_trian",)):
        done = snakemake("--configfile", str(TINY), "--dry-run", *options, folder=tmp_path)
        assert done.returncode == 1 and "(did you mean pretrain_train?)" in done.stdout + done.stderr
        assert "MissingRule" not in done.stdout + done.stderr


def test_a_refusal_is_plain_on_the_screen_and_whole_in_the_log(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("{langauge: {}}")
    done = snakemake("--configfile", str(config), folder=tmp_path)
    last = f"error: {config}: langauge is not a known key "
    assert done.stderr.splitlines()[-1].startswith(last) and "common.smk" not in done.stderr
    (log,) = (tmp_path / ".snakemake/log").glob("*.log")
    assert re.search(r'WorkflowError in file ".*common\.smk", line \d+:\n.*langauge', log.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_configs_plan(tmp_path: Path, path: Path, profile: str) -> None:
    """Every run in configs/ plans, on a machine without SLURM too, over (empty) files, and a tiny model, where it looks for them."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    for source in tree["ingest"]["extract"]["sources"]:
        for pattern in source.get("paths", []):
            target = tmp_path / pattern.lstrip("@").replace("{data}", "data").replace("*", "one")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(str(tmp_path / "x.warc.gz") if pattern.startswith("@") else "")
    (tmp_path / "x.warc.gz").write_bytes(b"")
    for stage in ("finetune", "align"):
        for entry in tree.get(stage, {}).get("pairs", {}).get("files", []):
            target = tmp_path / entry["path"].replace("{data}", "data")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("")
    for entry in tree.get("models", {}).values():
        if "path" in (entry or {}):
            folder = tmp_path / entry["path"].replace("{data}", "data")
            write_headers(folder, next((size for size in SHAPES if folder.name.endswith(f"-{size}")), "1b"))
    for folder in tree.get("evaluate", {}).get("public", {}).get("data", []):
        (tmp_path / folder.replace("{data}", "data")).mkdir(parents=True)
    done = snakemake("--configfile", str(path), "--config", f"data={tmp_path / 'data'}", "--dry-run", "--quiet", "rules",
                     profile=profile, folder=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "report_render" in done.stdout + done.stderr


@pytest.mark.parametrize("option", ["--dag", "--rulegraph"])
def test_pictures_under_the_slurm_profile(tmp_path: Path, option: str) -> None:
    done = snakemake("--configfile", str(TINY), option, "dot", profile="slurm", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "digraph" in done.stdout


def test_variants_share_what_does_not_differ(complete: Path) -> None:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["variants"] = {"hotter": {"pretrain": {"train": {"learning_rate": 0.001}}}}
    found = planned(complete, tree)
    assert found == {
        "pretrain.plan", "pretrain.train",
        "finetune.train[sft]", "evaluate.model[base]", "evaluate.model[sft]", "evaluate.model[untrained]",
        "evaluate.common[base]", "evaluate.common[sft]", "evaluate.compare", "report.render", "report.compare",
    }  # fmt: skip


@pytest.mark.parametrize("by", ["source", "language"])
def test_a_mix_of_a_variant_takes_the_tokens_that_are_there(complete: Path, by: str) -> None:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["variants"] = {"mixed": {"pretrain": {"mix": {"by": by, "phases": [{"temperature": 2}]}}}}
    assert planned(complete, tree) == {
        "pretrain.mix", "pretrain.train",
        "finetune.train[sft]", "evaluate.model[base]", "evaluate.model[sft]", "evaluate.model[untrained]",
        "evaluate.common[base]", "evaluate.common[sft]", "evaluate.compare", "report.render", "report.compare",
    }  # fmt: skip


def test_snakemake_report(copy_of: Callable[[], Path]) -> None:
    folder = copy_of()
    page = folder / "snakemake-report.html"
    done = subprocess.run(
        command(folder, "--report", str(page)), capture_output=True, text=True, env=environment(), cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert page.stat().st_size > 100_000


@pytest.mark.slow
def test_a_variant_runs(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """A variant's own steps are under its name, and main's files stay as they were."""
    folder = copy_of()
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["variants"] = {"strict": {"evaluate": {"model": {"max_new_tokens": 4}}}}
    config = tmp_path / "variant.yaml"
    config.write_text(yaml.safe_dump(tree))
    before = (folder / "results/main/evaluate/model/base.manifest.json").read_bytes()
    run(folder, config=config)
    steps = sorted(path.name for path in (folder / "results/strict").iterdir() if path.name != "benchmarks")
    assert steps == ["evaluate", "report"]
    assert "All variants compared" in (folder / "results/main/report/compare/compare.html").read_text(encoding="utf-8")
    assert (folder / "results/main/evaluate/model/base.manifest.json").read_bytes() == before
