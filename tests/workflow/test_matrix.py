"""The rerun matrix: every leaf of the schema, changed to another valid value, reruns exactly what it should.

`expectations.py` says for every leaf what it is changed to and which step is the first to run again (None: nothing, a placement key), and
`rerun_matrix.yaml` what does not follow from the settings; `adds` are steps that the run then has and had not.
A leaf whose other values nobody says fails the test, so a new key cannot be added without an expectation.
"""

from __future__ import annotations

import copy
import os
import shutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.chain import config, config_schema
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.filters.quality import tools
from crawl2llm.training import model_check
from crawl2llm.training.published import hub_folders
from tests.workflow.conftest import ROOT, TINY
from tests.workflow.expectations import TABLE, made_expectation, matrix
from tests.workflow.plan import planned

CASES = {
    f"{path} {number}" if number else path: (path, entry)
    for path, entries in matrix().items()
    for number, entry in enumerate(entries)
}
KENLM = ("quality.lm.enabled", "quality.kenlm.models")  # a plan with these looks for KenLM's programs
LEAVES = dict(config_schema.schema_leaves())
# The steps in order. What follows a step runs again with it, but for what does not read from it.
ORDER = [
    "crawl.render", "ingest.extract", "ingest.check", "url.score", "url.select", "language.score", "language.select",
    "multilingual.score", "multilingual.select",
    "heuristics.score", "heuristics.select", "lines.score", "lines.select",
    "boilerplate.count", "boilerplate.frequent", "boilerplate.score", "boilerplate.select",
    "dedup.signature", "dedup.exact", "dedup.band", "dedup.sets", "dedup.verify", "dedup.select",
    "paragraphs.hash", "paragraphs.repeated", "paragraphs.score", "paragraphs.select",
    "substrings.sample", "substrings.shared", "substrings.windows", "substrings.repeated", "substrings.score", "substrings.select",
    "quality.train", "quality.score", "quality.select", "report.inspect", "corpus.split", "dedup.export", "corpus.write",
    "tokenize.train", "tokenize.encode", "report.whatif", "pretrain.plan", "pretrain.train", "finetune.pairs",
    "finetune.train[sft]", "evaluate.items", "evaluate.model[base]", "evaluate.model[sft]", "evaluate.model[untrained]",
    "evaluate.compare", "report.render",
]  # fmt: skip
BESIDE = {
    "report.inspect": set(ORDER[ORDER.index("corpus.split") : ORDER.index("report.render")]),
    "dedup.export": set(ORDER[ORDER.index("corpus.write") : ORDER.index("report.render")]),
    "tokenize.train": {"finetune.pairs"},
    "tokenize.encode": {"finetune.pairs"},
    "report.whatif": set(ORDER[ORDER.index("pretrain.plan") : ORDER.index("report.render")]),
    "pretrain.plan": {"finetune.pairs", "evaluate.items"},
    "pretrain.train": {"finetune.pairs", "evaluate.items"},
    "finetune.pairs": {"evaluate.items"},
    "finetune.train": {"evaluate.items", "evaluate.model[base]", "evaluate.model[untrained]"},
    "evaluate.model": set(),
}


def downstream(step: str | None) -> set[str]:
    """The step and all that runs again with it; what has a task for each model counts by model."""
    if step is None:
        return set()
    first = next(number for number, name in enumerate(ORDER) if name.split("[")[0] == step)
    return set(ORDER[first:]) - BESIDE.get(step, set())


def config_with(path: str, value: Any, **also: Any) -> dict[str, Any]:
    """The tiny config with one leaf set, and those that have to be set with it."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    for name, new in {path: value, **also}.items():
        node = tree
        *sections, leaf = name.split(".")
        for part in sections:
            node = node.setdefault(part, {})
        node[leaf] = new
    return tree


def test_every_leaf_has_an_expectation() -> None:
    assert set(TABLE) <= set(LEAVES), "keys that there are not"
    assert [path for path, entry in CASES.values() if "to" not in entry] == [], "rerun_matrix.yaml has to say a value"


@pytest.mark.parametrize("path", TABLE)
def test_the_table_says_what_does_not_follow_from_the_settings(path: str) -> None:
    made, entry = made_expectation(path, LEAVES[path]), TABLE[path]
    if isinstance(entry, list) or entry.keys() - {"to", "runs"}:
        return  # several, or with other keys: whole, to be read
    assert [word for word in entry if word in made and repr(made[word]) == repr(entry[word])] == [], "leave it out"


def test_every_filter_can_be_skipped_by_a_source() -> None:
    sources = [source for _, entry in CASES.values() if isinstance(entry["to"], list) for source in entry["to"]]
    skipped = [name for source in sources if isinstance(source, dict) for name in source.get("skip_filters", [])]
    assert skipped == list(FILTERS)


@pytest.fixture(scope="module")
def answers_about_models() -> None:
    """What the plans of all cases ask about their models, answered by one process: each by itself would import transformers."""
    trees = (
        config_with(path, entry["to"], **entry.get("also", {})) for path, entry in CASES.values() if "train." in path
    )
    model_check.prefetch_answers(map(config.validate, trees))


@pytest.fixture(scope="module")
def fetched_tokenizer(complete: Path) -> None:
    """The tokenizer that the table names on the hub, as `crawl2llm fetch-model --tokenizer` leaves it."""
    keys = TABLE["tokenize.train.from.hub"]
    folder = hub_folders.cache_folder(keys["to"], keys["also"]["tokenize.train.from.revision"], hub_folders.TOKENIZERS)
    (complete / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(complete / "results/main/tokenize/train/tokenizer.json", complete / folder)


@pytest.mark.parametrize("case", CASES)
def test_leaf(complete: Path, fetched_tokenizer: None, answers_about_models: None, case: str) -> None:
    path, entry = CASES[case]
    if path in KENLM and (why := tools.KENLM.problem()):
        pytest.skip(why)
    tree = config_with(path, entry["to"], **entry.get("also", {}))
    before = config.lookup(config.validate(yaml.safe_load(TINY.read_text(encoding="utf-8"))), path)
    assert config.lookup(config.validate(copy.deepcopy(tree)), path) != before, "the table's value is the value it has"
    assert planned(complete, tree) == downstream(entry["runs"]) | set(entry.get("adds", []))


def reorder_keys(tree: Any) -> Any:
    """The same YAML with the keys of every mapping the other way round."""
    if isinstance(tree, dict):
        return {key: reorder_keys(tree[key]) for key in reversed(list(tree))}
    return tree


def test_reordered_keys(complete: Path) -> None:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    assert planned(complete, reorder_keys(tree)) == set()


def test_touch_everything(copy_of: Callable[[], Path]) -> None:
    folder = copy_of()
    for number, path in enumerate(sorted(folder.rglob("*"), reverse=True)):
        os.utime(path, (2_000_000_000 + number, 2_000_000_000 + number))
    assert planned(folder, yaml.safe_load(TINY.read_text(encoding="utf-8"))) == set()


@contextmanager
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the workflow's own files, to edit."""
    root = tmp_path / "checkout"
    for name in ("scripts", "rules", "schemas", "envs", "profiles", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(ROOT / name, root / name)
    yield root


Edit = tuple[str, Callable[[str], str]]
# What is edited, and the step that runs first then; what decides no byte is edited all at once.
EDITS: dict[str, tuple[list[Edit], str | None]] = {
    "a comment, a docstring, plumbing, the shell of a rule": (
        [
            ("scripts/crawl2llm/filters/language/select.py",
             lambda text: text.replace('"""The rules under', '"""What holds under') + "\n# a comment\n"),
            ("scripts/crawl2llm/core/console.py", lambda text: text.replace("interval: float = 5.0", "interval: float = 6.0")),
            ("scripts/crawl2llm/chain/command_line.py", lambda text: text.replace("is neither a file nor", "is no file and not")),
            ("scripts/crawl2llm/chain/steps.py", lambda text: text.replace("TASKS = 256", "TASKS = 255")),
            ("rules/filters/language.smk", lambda text: text.replace("        PROGRAM", '        "nice " + PROGRAM')),
            ("scripts/crawl2llm/workflow/rule_parts.py", lambda text: text.replace('"""python -m', '"""nice python -m')),
        ],
        None,
    ),
    "code of one step": (
        [("scripts/crawl2llm/filters/quality/select.py", lambda text: text.replace("BINS = 20", "BINS = 21"))],
        "quality.select",
    ),
    "a module that two steps share": (
        [("scripts/crawl2llm/filters/quality/classifier.py", lambda text: text.replace("text.lower()", "text.casefold()"))],
        "quality.train",
    ),
    "a module that every step shares": (
        [("scripts/crawl2llm/formats/documents.py", lambda text: text.replace("BATCH = 1024", "BATCH = 512"))],
        "ingest.extract",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_code_edit(complete: Path, tmp_path: Path, name: str) -> None:
    edits, first = EDITS[name]
    with checkout(tmp_path) as root:
        for file, edit in edits:
            text = (root / file).read_text(encoding="utf-8")
            assert edit(text) != text, textwrap.shorten(text, 200)
            (root / file).write_text(edit(text), encoding="utf-8")
        found = planned(complete, yaml.safe_load(TINY.read_text(encoding="utf-8")), root=root)
    assert found == downstream(first)
