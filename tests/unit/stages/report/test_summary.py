"""report.summary: the last lines of `make demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import PUBLISHED_STEP
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import funnel, published_table, summary, tables
from crawl2llm.stages.report.models import models_of_run


def test_says_what_to_run_where_nothing_has_run(tmp_path: Path, capsys: Any) -> None:
    assert summary.main(["--results", str(tmp_path / "main")]) == 1
    assert "make demo" in capsys.readouterr().err


def test_prints_the_runs_numbers(run_folder: Path, manifests: list[Path], capsys: Any) -> None:
    (run_folder / "report/render").mkdir(parents=True)
    run = Run.read(manifests)
    counts = funnel.run_counts(run, models_of_run(run))
    funnel.write_json(run_folder / "report/render/counts.json", counts)
    # Its time is that of the tasks that the page was made from.
    inputs = {
        f"{(made := Manifest.read(path)).step} {task_of(path)}".strip(): {"all": made.fingerprint} for path in manifests
    }
    report = run_folder / "report/render/manifest.json"
    Manifest("report.render", "mark").write(report, [])
    report.write_text(json.dumps({**json.loads(report.read_text()), "inputs": inputs}))
    (run_folder / "benchmarks/crawl").mkdir(exist_ok=True)
    (run_folder / "benchmarks/crawl/other.tsv").write_text("s\n1000\n")
    assert summary.main(["--results", str(run_folder)]) == 0
    said = capsys.readouterr().out.replace("base model", "base").splitlines()
    lines = dict(line.split(maxsplit=1) for line in said if not line.startswith(" "))
    assert lines["report"].endswith("report/render/report.html")
    assert lines["trained"] == "123 k parameters on 60 k tokens, 60 steps"
    assert lines["base"] == "1.91 bits per held-out byte, questions 26.0 % ± 1.6 % right (chance 25.0 %)"
    assert "41.0 %" in lines["sft"]
    tasks = sum(1 for _ in (run_folder / "benchmarks").rglob("*.tsv")) - 1
    assert lines["time"].startswith(f"{2.5 * tasks:.1f} s")


def test_damaged_counts_are_named(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "report/render"
    folder.mkdir(parents=True)
    (folder / "counts.json").write_text("{")
    assert summary.main(["--results", str(tmp_path)]) == 1
    assert "counts.json" in capsys.readouterr().err


def test_numbers_that_are_missing_show_as_a_dash(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "report/render"
    folder.mkdir(parents=True)
    (folder / "counts.json").write_text("{}")
    assert summary.main(["--results", str(tmp_path)]) == 0
    assert "–" in capsys.readouterr().out


def model(name: str, parent: str | None) -> dict[str, Any]:
    return {"name": name, "from": parent, "step": "finetune.train", "training": {}, "evaluation": None}


def test_says_which_model_is_better_and_what_each_goes_on_with() -> None:
    one = {"measure": "heldout_text", "difference": 0.136, "verdict": "worse"}
    more = [{"measure": name, "difference": 0.02, "verdict": "unclear"} for name in ("word_order", "next_word")]
    rows = summary.summary_lines(
        {
            "models": [model("base", None), model("sft", "base"), model("other", "base")],
            "compared": [{"first": first, "second": "sft", "measures": [one, *more]} for first in ("base", "other")],
            "continued": [
                {"prompt": "The function", "outputs": [["Base model", "is  a\nfunction " * 20], ["sft", ""]]}
            ],
        },
        None,
        Path("report.html"),
    )
    said = "sft with base model: worse on bits per byte (+0.136); no significant difference on 2 measures"
    assert [words for name, words in rows if name == "compared"] == [said], (
        "two that are not made from each other stand on the page"
    )
    at = rows.index(("prompt", "The function"))
    assert (
        rows[at + 1][0] == "  base model"
        and rows[at + 1][1].startswith("… is a function is a")
        and len(rows[at + 1][1]) < 110
    )
    assert rows[at + 2] == ("  sft", "… ")


def test_a_run_that_begins_with_a_published_model_says_so() -> None:
    """In the last lines and in the page's tiles; what is not read yet has no number that was trained."""
    facts = {"name": "Tiny", "parameters": 1000, "licence": "mit", "context": 128, "trained": True}
    root = {"name": "tiny", "from": None, "step": PUBLISHED_STEP, "training": facts, "evaluation": None}
    tuned = {**model("sft", "tiny"), "training": {"pairs": 73, "steps": 8, "parameters": 1000}}
    longer = {**model("more", "sft"), "training": {"tokens": 60000, "steps": 1}}
    counts = {"models": [root, tuned, longer], "corpus": {}, "tokens": {}, "documents_read": 1, "bytes_read": 1}
    rows = summary.summary_lines(counts, None, Path("report.html"))
    assert ("begins with", "tiny, published as Tiny, 1,000 parameters") in rows
    assert [words for name, words in rows if name == "trained"] == [
        "sft from tiny, on 73 pairs in 8 steps",
        "more from sft, on 60\u00a0k tokens in 1 step",
    ]
    tuned["evaluation"] = {"step": "finetune.train"}
    tiles = {tile["name"]: (tile["value"], tile["note"]) for tile in tables.overview_tiles(counts, None)}
    assert tiles["Model"] == ("1,000", "published as Tiny")
    assert tiles["Tuned on, sft"] == ("73", "8 optimizer steps from tiny") and "Trained on" not in tiles
    shown = [row[:2] for row in published_table.published_facts(facts)]
    assert shown == [("Name", "Tiny"), ("Licence", "mit"), ("Parameters", "1,000"), ("Context", "128")]
    unread = {"models": [{**root, "training": None}], "corpus": {}, "tokens": {}, "documents_read": 0, "bytes_read": 0}
    assert ("begins with", "tiny, not read yet") in summary.summary_lines(unread, None, Path("report.html"))
    assert tables.overview_tiles(unread, None)[0]["note"] == "not measured"
