"""Looking before leaping: plans, pictures, refusals; all without running a step."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from benchmarks.dry_run import imported
from scripts.common import plan, rulegraph
from tests.workflow.conftest import ROOT, TINY, command, environment, run
from tests.workflow.plan import planned


def snakemake(*options: str, profile: str = "local", folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Snakemake with a profile, in `folder`."""
    return subprocess.run(
        [
            sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
            "--profile", str(ROOT / "profiles" / profile), "--directory", str(folder), *options,
        ],
        capture_output=True, text=True, env=environment(), cwd=ROOT, check=False,
    )  # fmt: skip


def test_readme_shows_the_rulegraph() -> None:
    picture = rulegraph.mermaid(rulegraph.edges(rulegraph.dot("--profile", "profiles/local")))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == rulegraph.with_graph(readme, picture), "run `make docs`"


def test_a_dry_run_imports_nothing_heavy(tmp_path: Path) -> None:
    assert imported(tmp_path, 3) == []


def test_plan_of_a_complete_run(complete: Path) -> None:
    done = snakemake("--configfile", str(TINY), "--dry-run", folder=complete)
    assert plan.plan((done.stdout + done.stderr).splitlines()) == ({}, [])


def test_plan_says_what_and_why(complete: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["evaluate"]["model"]["seed"] = 5
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tree))
    done = snakemake("--configfile", str(config), "--dry-run", folder=complete)
    rules, errors = plan.plan((done.stdout + done.stderr).splitlines())
    assert errors == []
    assert {rule: sum(reasons.values()) for rule, reasons in rules.items()} == {"evaluate_model": 2, "report_render": 1}
    assert set(rules["evaluate_model"]) == {"seed 0 → 5"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{langauge: {}}", r"langauge is not a known key; the nearest known key is language"),
        (
            "{language: {select: {treshold: 0.5}}}",
            r"language\.select\.treshold is not a known key; .*language\.select\.threshold",
        ),
        ("{language: {select: {threshold: high}}}", r"language\.select\.threshold is 'high'.*number from 0 to 1"),
        ("{pretrain: {train: {zero_stage: 4}}}", r"pretrain\.train\.zero_stage is 4; allowed are 0, 1, 2, 3"),
        (
            "{pretrain: {train: {model: {hidden_size: 63, heads: 2}}}}",
            r"pretrain\.train\.model\.hidden_size is 63, not a multiple of pretrain\.train\.model\.heads = 2",
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


def test_a_refusal_is_plain_on_the_screen_and_whole_in_the_log(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("{langauge: {}}")
    done = snakemake("--configfile", str(config), folder=tmp_path)
    last = f"error: {config}: langauge is not a known key; "
    assert done.stderr.splitlines()[-1].startswith(last) and "common.smk" not in done.stderr
    (log,) = (tmp_path / ".snakemake/log").glob("*.log")
    assert re.search(r'WorkflowError in file ".*common\.smk", line \d+:\n.*langauge', log.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_configs_plan(tmp_path: Path, path: Path, profile: str) -> None:
    """Every run in configs/ plans, on a machine without SLURM too, over (empty) files where it looks for them."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    for source in tree["ingest"]["extract"]["sources"]:
        for pattern in source["paths"]:
            target = tmp_path / pattern.lstrip("@").replace("{data}", "data").replace("*", "one")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(str(tmp_path / "x.warc.gz") if pattern.startswith("@") else "")
    (tmp_path / "x.warc.gz").write_bytes(b"")
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
        "pretrain.train", "finetune.train", "evaluate.model[pretrain]", "evaluate.model[finetune]", "report.render",
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
    before = (folder / "results/main/evaluate/model/pretrain.manifest.json").read_bytes()
    run(folder, config=config)
    steps = sorted(path.name for path in (folder / "results/strict").iterdir() if path.name != "benchmarks")
    assert steps == ["evaluate", "report"]
    assert (folder / "results/main/evaluate/model/pretrain.manifest.json").read_bytes() == before
