"""The rules, the table of steps, the programs, the schema and the pages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.workflow import config, steps

ROOT = Path(__file__).resolve().parents[2]
STAGES = list(dict.fromkeys(name.split(".")[0] for name in steps.STEPS))
RULE = re.compile(r"^rule (\w+):\n(.*?)(?=^rule |\Z)", re.MULTILINE | re.DOTALL)


def rules() -> dict[str, str]:
    """Rule name → its text, over all stages."""
    return {
        name: text
        for stage in STAGES
        for name, text in RULE.findall((ROOT / "rules" / f"{stage}.smk").read_text(encoding="utf-8"))
    }


def test_one_rule_for_each_step() -> None:
    page_of_a_part = {"report_now"}  # shows what is there, makes no result
    assert set(rules()) == {name.replace(".", "_") for name in steps.STEPS} | page_of_a_part


@pytest.mark.parametrize("step", [name for name in steps.STEPS if name != "report.render"])
def test_a_rule_reads_what_the_table_says(step: str) -> None:
    text = rules()[step.replace(".", "_")]
    named = set(re.findall(r'(?:manifests?|ranged|asked|lineage|reward_models|calibrating|grouping)\("([\w.]+)"', text))
    stage = steps.stage_of(step)
    words = {
        steps.BEFORE: f'verdicts=before("{stage}")',
        steps.LABELS: f'languages=languages("{stage}")',
        steps.EDITS: "edits=edits(" if stage == "corpus" else f'edits("{stage}")',
        steps.EVERY: "verdicts=verdicts(),",
    }
    named |= {need for need, word in words.items() if word in text}
    if re.search(r"model=(model|parent),|models=lineage\(\),", text):  # of one of the steps that make models
        named |= set(steps.MAKERS) & set(steps.STEPS[step].needs)
    assert named == set(steps.STEPS[step].needs)


def test_the_page_lists_the_steps_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w.]+)` \| (1|shard|band|part|model)\b", page, re.MULTILINE)
    assert listed == [(name, step.per or "1") for name, step in steps.STEPS.items()]


@pytest.mark.parametrize("step", steps.STEPS)
def test_one_name_everywhere(step: str) -> None:
    stage, name = step.split(".")
    text = rules()[f"{stage}_{name}"]
    assert f'fingerprint("{step}")' in text
    assert f"results/{{variant}}/{stage}/{name}/" in text
    assert f"scripts.{stage}." in text
    assert (ROOT / "scripts" / stage / f"{name}.py").is_file()
    assert (ROOT / "docs" / f"{stage}.md").is_file()
    assert list((ROOT / "tests" / "unit" / stage).glob("test_*.py"))
    config.lookup(config.validate({}), step)


@pytest.mark.parametrize("stage", STAGES)
def test_rules_open_with_a_docstring(stage: str) -> None:
    text = (ROOT / "rules" / f"{stage}.smk").read_text(encoding="utf-8")
    assert text.startswith(f'"""\n{stage}: ')
    assert "OUTPUTS:" in text
    assert "lambda" not in text


def test_snakefile_reads_as_a_table_of_contents() -> None:
    lines = (ROOT / "Snakefile").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    included = [line.split("/")[1].split(".")[0] for line in lines if line.startswith('include: "rules/')]
    assert included == ["common", *STAGES]


@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_threads_are_asked_for_only_where_they_are_used(profile: str) -> None:
    """A profile sets threads for rules that hand {threads} on, or whose threads are those of their processes."""
    text = (ROOT / "profiles" / profile / "config.yaml").read_text(encoding="utf-8")
    named = re.findall(r"^  (\w+): \d+$", text.partition("\nset-threads:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert named
    for name in named:
        own = ("{threads", "threads: config[", "threads: cores(")
        assert any(words in rules()[name] for words in own), f"{name} uses one thread"
