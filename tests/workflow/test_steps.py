"""The rules, the table of steps, the programs, the schema and the pages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crawl2llm.chain import config, model_registry, stage_names, steps
from crawl2llm.chain.filter_order import ORDINARY, ORDINARY_STEPS
from crawl2llm.chain.step import ALL_VERDICTS, EDITS_BEFORE, LANGUAGES_BEFORE, VERDICTS_BEFORE
from tools.tour import rules_file

ROOT = Path(__file__).resolve().parents[2]
STAGES = list(dict.fromkeys(name.split(".")[0] for name in steps.STEPS))
RULE = re.compile(r"^rule (\w+):\n(.*?)(?=^rule |\Z)", re.MULTILINE | re.DOTALL)


LOOP = (ROOT / "rules/filters/ordinary.smk").read_text(encoding="utf-8").partition("\nfor ")[2]


def rules() -> dict[str, str]:
    """Rule name → its text, over all stages. A loop writes those of ordinary filters."""
    texts = [rules_file(stage).read_text(encoding="utf-8") for stage in STAGES if stage not in ORDINARY]
    written = {name: text for all_rules in texts for name, text in RULE.findall(all_rules)}
    return written | {steps.rule_of(step): LOOP for step in ORDINARY_STEPS}


def test_one_rule_for_each_step() -> None:
    page_of_a_part = {"report_now"}  # shows what is there, makes no result
    assert set(rules()) == {name.replace(".", "_") for name in steps.STEPS} | page_of_a_part


# Their rules go by the table itself: `manifests_for_report`, `manifests_read_by("report.inspect")`. Another test has that over variants.
BY_THE_TABLE = (*steps.PAGES, steps.WHATIF, steps.INSPECT)


@pytest.mark.parametrize("step", [name for name in steps.STEPS if name not in (*BY_THE_TABLE, *ORDINARY_STEPS)])
def test_a_rule_reads_what_the_table_says(step: str) -> None:
    text = rules()[step.replace(".", "_")]
    functions = "manifests?|manifest_ranges|manifests_(?:if_needed|for_calibration|for_mix)|lineage|reward_models"
    named = set(re.findall(rf'(?:{functions})\("([\w.]+)"', text))
    stage = steps.stage_of(step)
    words = {
        VERDICTS_BEFORE: f'verdicts=verdicts_before("{stage}")',
        LANGUAGES_BEFORE: f'languages=language_scores("{stage}")',
        EDITS_BEFORE: "edits=edits(" if stage == "corpus" else f'edits("{stage}")',
        ALL_VERDICTS: "verdicts=verdicts(),",
    }
    named |= {need for need, word in words.items() if word in text}
    if re.search(r"model=(model|parent),|models=lineage\(\),", text):  # of one of the steps that make models
        named |= set(model_registry.MAKERS) & set(steps.STEPS[step].needs)
    assert named == set(steps.STEPS[step].needs)
    of_main = set(re.findall(r'=manifests_of_main\("([\w.]+)"', text)) | (
        {EDITS_BEFORE} if "=edits_of_main(" in text else set()
    )
    assert of_main == set(steps.STEPS[step].common)


def test_the_rules_of_ordinary_filters_go_by_the_table() -> None:
    assert "**inputs_of_filter(_step)" in LOOP and LOOP.count("_step") > 5
    assert {"url", "multilingual", "lines", "licence", "sourcecode", "toxicity", "pii"} == set(ORDINARY)


@pytest.mark.parametrize("step", [steps.WHATIF, steps.INSPECT])
def test_a_rule_that_goes_by_the_table(step: str) -> None:
    assert rules()[steps.rule_of(step)].count(f'manifests_read_by("{step}"') == 2


def test_the_page_over_variants_reads_what_the_table_says() -> None:
    named = re.findall(
        r'"([\w.]+)"', rules()["report_compare"].partition("manifests_of_all_variants(")[2].partition(")")[0]
    )
    assert named == list(steps.STEPS["report.compare"].needs)


def test_the_page_lists_the_steps_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w.]+)` \| (1|shard|band|part|model|contender)\b", page, re.MULTILINE)
    assert listed == [(name, step.per or "1") for name, step in steps.STEPS.items()]


@pytest.mark.parametrize("step", steps.STEPS)
def test_one_name_everywhere(step: str) -> None:
    stage, name = step.split(".")
    text = rules()[f"{stage}_{name}"]
    package = stage_names.package_of(stage)
    if step not in ORDINARY_STEPS:
        assert f'fingerprint("{step}")' in text
        assert f"results/{{variant}}/{stage}/{name}/" in text
        assert f"crawl2llm.{package}.{stage}." in text
    assert (ROOT / "scripts" / "crawl2llm" / package / stage / f"{name}.py").is_file()
    assert (ROOT / "docs" / package / f"{stage}.md").is_file()
    assert list((ROOT / "tests" / "unit" / package / stage).glob("test_*.py"))
    config.lookup(config.validate({}), step)


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in ORDINARY])
def test_rules_open_with_a_docstring(stage: str) -> None:
    text = rules_file(stage).read_text(encoding="utf-8")
    assert text.startswith(f'"""\n{stage}: ')
    assert "OUTPUTS:" in text
    assert "lambda" not in text


def test_snakefile_reads_as_a_table_of_contents() -> None:
    lines = (ROOT / "Snakefile").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    included = [line.split('"')[1] for line in lines if line.startswith("include: ")]
    files = dict.fromkeys(str(rules_file(stage).relative_to(ROOT)) for stage in STAGES)
    assert included == ["rules/common.smk", *files]


@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_threads_are_asked_for_only_where_they_are_used(profile: str) -> None:
    """A profile sets threads for rules that hand {threads} on. Those of a training are its processes': others would leave cores idle."""
    text = (ROOT / "profiles" / profile / "config.yaml").read_text(encoding="utf-8")
    named = re.findall(r"^  (\w+): \d+$", text.partition("\nset-threads:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert named
    for name in named:
        assert "{threads" in rules()[name], f"{name} does not use the threads of a profile"
