"""The filter of docs/filters/plugins.md in a run: its results, its pages, what an edit reruns, and what it says when it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.chain import plugins
from crawl2llm.chain.fingerprint import fingerprint, fingerprint_for_program
from crawl2llm.commands import verify
from crawl2llm.commands.trace import command as trace
from crawl2llm.commands.whatif import command as whatif
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.framework import plugin as program
from tests.plugin_example import CONFIG, EXAMPLE
from tests.workflow.conftest import run
from tests.workflow.plan import planned

TEXTS = {
    "calm": "The sea was calm in the morning, and the boats went out early. " * 6,
    "loud": "Buy now! Only today! Cheap! " * 8,
    "glad": "What a day! It was long, and nobody was tired at the end of it, for they had slept. " * 5,
}
# It overwrites its file when it measures, which must not matter to the run that works.
MEASURE = '        return {"exclamations":'
FILE_EDITS = MEASURE.replace("return", 'open("my_filters/exclaim.py", "w").write("!")\n        return')
MADE = {"exclaim.score", "exclaim.select", "report.inspect"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run up to the pages of its samples."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "my_filters").mkdir()
    for name in ("a", "b"):
        lines = (json.dumps({"text": f"{name} {text}", "title": title}) for title, text in TEXTS.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "config.yaml").write_text(yaml.safe_dump(tree()))
    write(folder, EXAMPLE.replace(MEASURE, FILE_EDITS))
    run(folder, *(f"results/main/{step.replace('.', '/')}/manifest.json" for step in ("report.inspect",)),
        config=folder / "config.yaml")  # fmt: skip
    assert (folder / "my_filters/exclaim.py").read_text() == "!", "an edit while the run worked"
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, which is the working directory, with the file as the run had it."""
    monkeypatch.chdir(made)
    write(made, EXAMPLE.replace(MEASURE, FILE_EDITS))
    plugins.unload()
    yield made
    plugins.unload()


def tree(**select: Any) -> dict[str, Any]:
    """The config of the docs, with less beside it."""
    config = yaml.safe_load(CONFIG)
    return {
        **config,
        "filters": [name for name in config["filters"] if name == "exclaim"],
        "exclaim": {"select": {**config["exclaim"]["select"], **select}},
        "ingest": {
            "extract": {"shards": 2, "sources": [{"name": "web", "kind": "jsonl", "paths": ["a.jsonl", "b.jsonl"]}]}
        },
        "evaluate": {"common": {"enabled": False}},
    }


def write(folder: Path, text: str) -> None:
    (folder / "my_filters/exclaim.py").write_text(text)


def again(folder: Path, text: str = "", **select: Any) -> set[str]:
    """The steps that were made and would run, with other code or settings."""
    if text:
        write(folder, text)
    plugins.unload()
    return planned(folder, tree(**select)) & MADE


@pytest.mark.slow
def test_results_and_what_looks_at_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [pq.read_table(path) for path in sorted((folder / "results/main/exclaim/select").glob("*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    assert [(row["kept"], row["rules"]) for row in rows] == [(True, []), (False, ["exclamations_max"]), (True, [])] * 2
    counts = [
        Manifest.read(path).counts for path in sorted((folder / "results/main/exclaim/select").glob("0*.manifest.json"))
    ]
    assert [count["dropped"] for count in counts] == [{"exclamations_max": 1}] * 2
    page = (folder / "results/main/report/inspect/exclaim.html").read_text()
    assert "exclamations_max" in page and "Buy now!" in page

    assert trace.main([next(row["id"] for row in rows if not row["kept"]), "--configfile", "config.yaml"]) == 0
    assert "dropped by exclamations_max: 0.10" in capsys.readouterr().out
    assert whatif.main(["exclaim.select.exclamations_max=0.5", "--configfile", "config.yaml"]) == 0
    assert "edited" in (shown := capsys.readouterr().out) and "back" in shown, shown
    assert verify.main(["--deep"]) == 0


@pytest.mark.slow
def test_an_edit_reruns_its_steps_and_what_follows(folder: Path) -> None:
    text = EXAMPLE.replace(MEASURE, FILE_EDITS)
    assert again(folder) == set()
    assert again(folder, "# A comment.\n" + text.replace("setting(0.01,", "setting(0.05,")) == set()
    assert again(folder, text.replace('count("!")', 'count("?")')) == MADE
    assert again(folder, text.replace('">"', '">="')) == MADE - {"exclaim.score"}
    assert again(folder, text, exclamations_max=0.03) == MADE - {"exclaim.score"}
    placement = text.replace("le=1)", 'le=1)\n    level: int = setting(1, "Decides nothing.", placement=True)')
    assert again(folder, placement, level=2) == set()


def program_words(folder: Path, mark: str) -> list[str]:
    return [
        "exclaim.score", "--config", mark,
        "--documents", "results/main/ingest/extract/00000.manifest.json",
        "--verdicts", "results/main/ingest/check/manifest.json",
        "--manifest", str(folder / "other/00000.manifest.json"),
    ]  # fmt: skip


def planned_mark(step: str = "exclaim.score") -> str:
    return fingerprint_for_program(fingerprint(step, configuration.validate(tree())), ".")


@pytest.mark.slow
def test_a_program_refuses_another_file_than_was_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = planned_mark()
    plugins.unload()
    write(folder, EXAMPLE)
    assert program.main(program_words(folder, mark)) == 1
    assert "not what this run was planned with: plugins/exclaim/exclaim.py; start" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('count("!")', "count(1)", ":21: the filter exclaim failed: TypeError: must be str, not int"),
        (MEASURE, '        return {"marks":', ": the filter exclaim: measure returned 'marks', which is not among its measures: "),
        (MEASURE, '        return {"exclamations": "many"} or {"":', ": the filter exclaim: measure returned 'many' for exclamations"),
        (MEASURE, "        raise SystemExit(0) or {1:", ":21: the filter exclaim failed: SystemExit: 0"),
    ],
)  # fmt: skip
def test_a_fault_names_the_file_the_line_and_the_document(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    assert old in EXAMPLE
    write(folder, EXAMPLE.replace(old, new))
    assert program.main(program_words(folder, planned_mark())) == 1
    first = pq.read_table("results/main/ingest/extract/00000.parquet")["id"][0].as_py()
    shown = capsys.readouterr().err
    assert f"my_filters/exclaim.py{words}" in shown and f"; document {first}" in shown, shown
