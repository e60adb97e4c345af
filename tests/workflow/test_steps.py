"""The rules, the table of steps, the programs, the schema and the pages say the same."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import snakemake.api  # noqa: F401 - first, since the modules import each other

from crawl2llm.chain import config, placement_options, stage_names, steps
from crawl2llm.chain.filter_order import FILTERS, ordinary_filters
from crawl2llm.workflow import project_checks, start
from tests.unit.training.tiny_published import write_published
from tests.workflow.plan import dry_run

ROOT = Path(__file__).resolve().parents[2]
STAGES = list(dict.fromkeys(name.split(".")[0] for name in steps.STEPS))
FILES = sorted((ROOT / "rules").rglob("*.smk"))
SHOWS_A_PART = "report_now"  # shows what is there, makes no result
# No ordinary rules: they read many steps, take options that are no manifests, or write more files.
LONGER = {
    "compress_export", "corpus_split", "evaluate_compare", "ingest_extract", "pretrain_plan", "report_compare", "report_render",
}  # fmt: skip
RESULT = re.compile(r"results/[^/ ]+/(\w+)/(\w+)/")
# For a config that has every step, with a source of each kind that needs no network to be planned:
SOURCES = [
    {"name": "demo", "kind": "crawl"},
    {"name": "web", "kind": "commoncrawl", "crawl": "CC-MAIN-2026-08", "files": 9},
]
WRITTEN = [{"name": name, "kind": "synthesized", "step": f"synthesize.{name}"} for name in ("rephrase", "seed")]
GIVEN = {
    "model": "m",
    "endpoint": "http://127.0.0.1:9/v1",
    "seeds": {"files": [{"name": "b", "kind": "jsonl", "path": "b.jsonl"}]},
}
MODELS = {
    "sft": {"from": "base", "step": "finetune.train"},
    "small": {"from": "base", "step": "compress.prune"},
    "taught": {"from": "small", "step": "compress.distil", "teacher": "sft", "top_k": 8},
    "int8": {"from": "sft", "step": "compress.quantize"},
    "awq": {"from": "sft", "step": "compress.quantize", "method": "awq"},
    "soup": {"from": "sft", "step": "compress.merge", "with": ["liked"]},
    "scores": {"from": "sft", "step": "align.reward"},
    "liked": {
        "from": "sft",
        "step": "align.train",
        "method": "ppo",
        "rewards": [{"reward": "model", "name": "scores"}],
    },
    "give": {"from": "liked", "step": "compress.export"},
    "tiny": {"path": "tiny"},
    "own": {"from": "tiny", "step": "finetune.train"},
    "more": {"from": "tiny", "step": "pretrain.continue"},
}


def with_every_step() -> dict[str, Any]:
    """A config that has every step, except for those that compare variants with other documents."""
    return {
        "filters": list(FILTERS),
        "ingest": {"fetch": {"enabled": True}, "extract": {"shards": 20, "sources": [*SOURCES, *WRITTEN]}},
        "synthesize": {"rephrase": GIVEN, "seed": GIVEN},
        "language": {"compare": {"script": True}},
        "heuristics": {"calibrate": {"method": "quantile"}},
        "dedup": {"export": {"write": True}},
        "quality": {
            "ngrams": {"number": 3},
            "fasttext": {"models": [{"name": "hq", "path": "b.jsonl", "label": "curated"}]},
            "transformers": {"models": [{"name": "edu", "path": "model"}]},
            "lm": {"enabled": True},
            "select": {"by": "language"},
        },
        "topics": {"train": {"clusters": 4, "by": "language"}},
        "tokenize": {"train": {"from": {"path": "tiny"}}},
        "pretrain": {"mix": {"by": "topic", "phases": [{"epochs": {"demo": 2}}]}, "train": {"keep_every": 10}},
        "models": MODELS,
        "align": {"pairs": {"from": "sft", "rewards": [{"reward": "length", "most": 9}]}},
        "evaluate": {
            "public": {"presets": ["copa"]},
            "generate": {"questions": 2},
            "judge": {"model": "m", "endpoint": "http://127.0.0.1:9/v1"},
            "curve": {"every": 10},
        },
        "sweep": {"grid": {"pretrain.train.learning_rate": [0.002]}, "halving": {"rungs": [0.5]}},
    }


WITH_OTHER_DOCUMENTS: dict[str, Any] = {
    "filters": ["language"],
    "pretrain": {"train": {"packing": "best_fit"}},
    "variants": {"other": {"language": {"select": {"threshold": 0.9}}}},
}


class Workflow:
    """The rules and jobs of plans of several configs."""

    def __init__(self, folder: Path, trees: list[dict[str, Any]]) -> None:
        self.rules: dict[str, Any] = {}
        self.jobs: list[tuple[Any, dict[str, Any]]] = []
        for tree in trees:
            plan = dry_run(folder, tree)[1]
            self.rules = {rule.name: rule for rule in plan.rules}
            self.jobs += [
                (job, plan.globals["VARIANTS"]) for job in plan.dag.jobs
            ]  # the next plan has the same globals

    def jobs_of(self, step: str) -> list[tuple[Any, dict[str, Any]]]:
        """The jobs of a step, each with the config of its variant."""
        name = steps.rule_of(step)
        return [(job, variants[job.wildcards_dict["variant"]]) for job, variants in self.jobs if job.rule.name == name]


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The plans of two configs that together have every step. What they name is not there, so nothing is looked at beforehand."""
    folder = tmp_path_factory.mktemp("every step")
    (folder / "b.jsonl").write_text("{}\n")
    (folder / "model").mkdir()
    write_published(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(project_checks, "check_project", lambda project: None)
        patch.setattr(start, "check_environment", lambda workflow, project, gpus: None)
        return Workflow(folder, [with_every_step(), WITH_OTHER_DOCUMENTS])


def steps_in(paths: Iterable[str]) -> set[str]:
    """The steps whose manifests are among paths, or words of a command line."""
    return {f"{stage}.{step}" for path in paths for stage, step in RESULT.findall(str(path))}


def test_one_rule_for_each_step(workflow: Workflow) -> None:
    names = set(workflow.rules)
    assert names == {steps.rule_of(name) for name in steps.STEPS} | {SHOWS_A_PART, "all"}


@pytest.mark.parametrize("step", [name for name in steps.STEPS if name not in steps.PAGES])
def test_a_job_reads_what_the_table_says(workflow: Workflow, step: str) -> None:
    """An input, or a word of the command line, if another input waits for it."""
    jobs = workflow.jobs_of(step)
    assert jobs, "no config has such a step"
    for job, tree in jobs:
        task = job.wildcards_dict[steps.STEPS[step].per] if steps.STEPS[step].per in steps.WITH_OWN_SETTINGS else ""
        needs = {name for name, _ in steps.upstream_tasks(step, tree, task)}
        needs |= set(steps.needed_steps_of_main(step, tree))
        assert steps_in([*job.input, *job.params.options, *job.params.program]) == needs
        waits_for = steps_in(job.input)
        assert needs - waits_for <= steps_above(waits_for, tree), "nothing waits for it"


@pytest.mark.parametrize("step", [name for name, facts in steps.STEPS.items() if facts.inputs])
def test_a_rule_calls_its_inputs_as_the_step_does(workflow: Workflow, step: str) -> None:
    for job, _ in workflow.jobs_of(step):
        flags = {word.partition("=")[0] for word in map(str, job.params.options) if word.startswith("--")}
        flags -= {"--also", "--at-once", *map(placement_options.option_flag, placement_options.placement_keys(step))}
        flags -= further_options(step)
        assert flags == set(map(placement_options.option_flag, steps.STEPS[step].inputs))


def further_options(step: str) -> set[str]:
    """The options of a program that are neither manifests of a declared input nor placement keys."""
    parser = argparse.ArgumentParser(add_help=False)
    import_module(steps.program_of(step)).main.add_options(parser)
    return set(parser._option_string_actions)


def steps_above(names: set[str], config: dict[str, Any]) -> set[str]:
    """All steps that must end before these can start, under a config."""
    above: set[str] = set()
    for step in reversed(steps.used_steps(config)):
        if step in names | above:
            above |= set(steps.needed_steps(step, config))
    return above


def test_the_report_reads_every_step_of_its_variant(workflow: Workflow) -> None:
    for job, tree in workflow.jobs_of(steps.REPORT_STEP):
        assert steps_in(job.input) == set(steps.used_steps(tree)) - set(steps.NOT_IN_REPORT)


def test_the_page_over_variants_reads_what_the_table_says(workflow: Workflow) -> None:
    for job, tree in workflow.jobs_of(steps.COMPARE_ALL):
        assert steps_in(job.input) == {
            need for need in steps.STEPS[steps.COMPARE_ALL].needs if steps.is_used(need, tree)
        }


def test_the_page_lists_the_steps_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\|`([\w.]+)`\|(1|shard|band|part|model|contender)\b", page, re.MULTILINE)
    assert listed == [(name, step.per or "1") for name, step in steps.STEPS.items()]


@pytest.mark.parametrize("step", steps.STEPS)
def test_one_name_everywhere(workflow: Workflow, step: str) -> None:
    stage, name = step.split(".")
    rule = workflow.rules[f"{stage}_{name}"]
    package = stage_names.package_of(stage)
    for path in (rule.output[0], rule.log[0], rule.benchmark):
        assert f"/{stage}/{name}" in str(path)
    for job, _ in workflow.jobs_of(step):
        assert str(job.output[0]).startswith(f"results/{job.wildcards_dict['variant']}/{stage}/{name}/")
        assert json.loads(job.params.fingerprint)["step"] == step
        assert job.params.program[0].startswith(f"crawl2llm.{package}.{stage}.")
    assert (ROOT / "scripts" / "crawl2llm" / package / stage / f"{name}.py").is_file()
    assert (ROOT / "docs" / package / f"{stage}.md").is_file()
    assert list((ROOT / "tests" / "unit" / package / stage).glob("test_*.py"))
    config.lookup(config.validate({}), step)


def test_every_environment_is_there_and_depends_on_no_params(workflow: Workflow) -> None:
    """`use_rule_environments` of workflow/planning_shortcuts.py gives it none."""
    for name, rule in workflow.rules.items():
        if name != "all":
            assert Path(rule.basedir.join(rule.conda_env).get_path_or_uri(secret_free=True)).is_file()


def test_rules_are_short() -> None:
    """The target of a rule: its name, a docstring, its inputs by name, its output and the command."""
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    assert len((ROOT / "rules" / "common.smk").read_text(encoding="utf-8").splitlines()) <= 150
    rules = [
        rule.strip().splitlines() for text in texts for rule in re.split(r"^(?=rule |#)", text, flags=re.MULTILINE)
    ]
    number = sum(lines[0].startswith("rule ") for lines in rules)
    assert sum(len(text.splitlines()) for text in texts) <= 15 * number
    long = [lines[0] for lines in rules if lines[0].startswith("rule ") and len(lines) > 12]
    assert set(long) <= {f"rule {name}:" for name in LONGER}


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "common.smk"], ids=lambda path: path.stem)
def test_rules_open_with_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(rf'"""\n?{path.stem}: ', text)
    assert "lambda" not in text
    assert all(re.match(r'\n    """.+"""\n', after) for after in re.split(r"^rule \w+:", text, flags=re.MULTILINE)[1:])


def test_snakefile_reads_as_a_table_of_contents() -> None:
    lines = (ROOT / "Snakefile").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    included = [line.split('"')[1] for line in lines if line.startswith("include: ")]
    files = {str(path.relative_to(ROOT)) for path in FILES}
    assert set(included) == files and len(included) == len(files)
    stages = [Path(name).stem for name in included if Path(name).stem in STAGES]
    assert stages == [stage for stage in STAGES if stage in stages]
    assert {*stages, *ordinary_filters()} == set(STAGES)


@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_threads_are_asked_for_only_where_they_are_used(workflow: Workflow, profile: str) -> None:
    """A profile sets threads for rules that hand them on. Those of a training are its processes': others would leave cores idle."""
    text = (ROOT / "profiles" / profile / "config.yaml").read_text(encoding="utf-8")
    threads = re.findall(r"^  (\w+): \d+$", text.partition("\nset-threads:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert threads
    for name in threads:
        job, _ = workflow.jobs_of(steps.step_of(name))[0]
        uses = "{threads" in job.rule.shellcmd or {"--at-once", "--workers"} & set(job.params.options)
        assert uses, f"{name} does not use the threads of a profile"
