"""The pages of a real run lead from its report, and marks on them give precision and recall."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import steps
from crawl2llm.commands.marks import command
from crawl2llm.core.manifest import Manifest
from tests.unit.stages.report.test_render import Page
from tests.workflow.conftest import TINY
from tests.workflow.plan import planned
from tests.workflow.test_matrix import config_with

FILTER = "language"  # of the tiny run, drops more documents than a sample has


@pytest.fixture(scope="module")
def samples(complete: Path) -> list[dict[str, Any]]:
    """What the pages show."""
    path = complete / "results/main/report/inspect/samples.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def marks(path: Path, rows: list[dict[str, Any]], **change: Any) -> Path:
    """A file of marks on rows of `samples.jsonl`; a tenth is wrong."""
    generator = random.Random(1)  # noqa: S311
    lines = [
        {
            **{key: row[key] for key in ("id", "filter", "rule", "verdict", "run")},
            "mark": "wrong" if generator.random() < 0.1 else "right",
            "sample": "near" if row["random"] is None else "random",
            "url": None, "variant": "main", "time": "2026-01-01T00:00:00Z", **change,
        }
        for row in rows
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_curated_documents_are_left_out_where_a_filter_keeps_them_all(complete: Path) -> None:
    """language judges them like any other, so they are in its populations."""
    path = complete / "results/main/report/inspect/manifest.json"
    found = Manifest.read(path).summary["filters"]
    assert found["language"]["exempt"] == 0 and found["heuristics"]["exempt"] > 0


def told(capsys: pytest.CaptureFixture[str], complete: Path, *files: Path) -> dict[str, Any]:
    words = [*map(str, files), "--directory", str(complete), "--configfile", str(TINY), "--json"]
    assert command.main(words) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_the_report_leads_to_the_pages(complete: Path, samples: list[dict[str, Any]]) -> None:
    report = complete / "results/main/report/render/report.html"
    assert '<a href="../inspect/index.html">' in report.read_text(encoding="utf-8")
    index = Page((complete / "results/main/report/inspect/index.html").read_text(encoding="utf-8"))
    pages = [link for link in index.links if link.endswith(".html") and not link.startswith("../")]
    used = list(dict.fromkeys(row["filter"] for row in samples))
    assert pages == [f"{name}.html" for name in used]
    for name in pages:
        page = complete / "results/main/report/inspect" / name
        Page(page.read_text(encoding="utf-8"))
        assert page.stat().st_size < 5_000_000


def test_marks_of_every_sample(
    capsys: pytest.CaptureFixture[str], complete: Path, samples: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = told(capsys, complete, marks(tmp_path / "marks.jsonl", samples))
    assert found["bad"] == [] and found["other_verdict"] == 0 and found["stale"] == []
    assert sum(of["marks"] for of in found["filters"]) == found["documents"] == len(samples)
    (of,) = (of for of in found["filters"] if of["filter"] == FILTER)
    drawn = [row for row in samples if row["filter"] == FILTER and row["random"] is not None]
    assert of["random"] == len(drawn)
    assert of["all"]["documents"] > of["all"]["marks"]
    precision, recall = of["all"]["precision"], of["all"]["recall"]
    assert precision["low"] < precision["value"] < precision["high"] and recall["low"] < recall["value"] < 1
    parts = [rule["recall"]["value"] for rule in of["rules"]]
    assert abs(sum(parts) - recall["value"]) < 1e-9
    wrong = [fault for each in found["filters"] for fault in each["faults"]]
    assert 0.05 * len(samples) < len(wrong) < 0.15 * len(samples)


def test_marks_on_other_verdicts_count_where_the_documents_verdict_is_the_same(
    capsys: pytest.CaptureFixture[str], complete: Path, samples: list[dict[str, Any]], tmp_path: Path
) -> None:
    own = [row for row in samples if row["filter"] == FILTER]
    dropped = [row for row in own if row["verdict"] == "dropped"]
    found = told(capsys, complete, marks(tmp_path / "old", own, run="0" * 16))
    assert found["filters"][0]["other_runs"] == len(own) and found["other_verdict"] == 0
    # Those that were kept then, and of a rule that drops them no more, do not.
    for change in ({"verdict": "kept", "rule": None}, {"rule": "another"}, {"id": "f" * 32}):
        lines = [{**row, **change} for row in dropped]
        found = told(capsys, complete, marks(tmp_path / "other", lines, run="0" * 16))
        assert found["filters"][0]["marks"] == 0 and found["other_verdict"] == found["documents"] > 0


def test_words_and_errors(
    capsys: pytest.CaptureFixture[str], complete: Path, samples: list[dict[str, Any]], tmp_path: Path
) -> None:
    options = ["--directory", str(complete), "--configfile", str(TINY)]
    path = marks(tmp_path / "marks.jsonl", samples, url="http://x/\x1b[31m\u202e")
    with path.open("a", encoding="utf-8") as handle:
        handle.write('{"id": 1}\n')
    assert command.main([str(path), *options]) == 0
    printed = capsys.readouterr().out
    assert f"no mark: {path}:{len(samples) + 1}: id is 1" in printed and f"\n{FILTER} " in printed
    assert "faults found: " in printed and "http://x/" in printed and "\x1b" not in printed and "\u202e" not in printed
    assert command.main([str(tmp_path / "none.jsonl"), *options]) == 1
    assert "none.jsonl" in capsys.readouterr().err


def test_without_samples_there_are_no_pages_and_marks_say_why(
    capsys: pytest.CaptureFixture[str], complete: Path, samples: list[dict[str, Any]], tmp_path: Path
) -> None:
    tree = config_with("report.inspect.samples", 0)
    assert planned(complete, tree) == {steps.REPORT_STEP}
    config = tmp_path / "off.yaml"
    config.write_text(json.dumps(tree), encoding="utf-8")
    path = marks(tmp_path / "marks.jsonl", samples[:3])
    assert command.main([str(path), "--directory", str(complete), "--configfile", str(config)]) == 1
    assert "report.inspect.samples is 0" in capsys.readouterr().err
