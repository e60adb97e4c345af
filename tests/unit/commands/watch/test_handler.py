"""What a person sees of Snakemake's own words."""

from __future__ import annotations

import io
import logging
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawl2llm.commands.watch.handler import Handler, plain_error

SMK = "/x y/rules/common.smk"
MISSING = "MissingRuleException:\nNo rule to produce {} (if you use input functions make sure that they don't raise unexpected exceptions)."

NEITHER = "is neither a rule nor a file that a rule makes"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'WorkflowError in file "{SMK}", line 31:\na is wrong\n  File "{SMK}", line 31, in <module>', "error: a is wrong"),
        (
            f'RunInProgressError in file "{SMK}", line 9:\nanother run\n  File "{SMK}", line 3, in __onstart\n  File "b.py", line 1, in f',
            "error: another run",
        ),
        ("WorkflowError:\nnot this\nnor that", "error: not this\nnor that"),
        ('WorkflowError in rule a in file "x.smk", line 3:\nodd', 'WorkflowError in rule a in file "x.smk", line 3:\nodd'),
        ("MissingRuleException:\nNo rule to produce x", "MissingRuleException:\nNo rule to produce x"),
        (MISSING.format("pretrain_trian"), f"error: pretrain_trian {NEITHER} (did you mean pretrain_train?)"),
        (MISSING.format("pretrain.train"), f"error: pretrain.train {NEITHER} (did you mean pretrain_train?)"),
        (MISSING.format("results/x.json"), f"error: results/x.json {NEITHER}"),
    ],
)  # fmt: skip
def test_refusals_are_plain_and_everything_else_is_as_it_was(text: str, shown: str) -> None:
    assert plain_error(text) == shown


def test_a_run_ends_with_its_page_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path("results/main/report/render/report.html")
    page.parent.mkdir(parents=True)
    page.touch()
    monkeypatch.delenv("CRAWL2LLM_SUMMARY", raising=False)
    workflow = SimpleNamespace(overwrite_workdir=None)
    handler = Handler(workflow, None, io.StringIO(), "lines", quiet=False)
    handler.has_begun = True
    assert handler.last_words() == [], "it was not said that nothing was to do"
    nothing = "Nothing to be done (all requested files are present and up to date)."
    handler.emit(logging.makeLogRecord({"msg": nothing, "levelno": logging.INFO}))
    assert handler.last_words() == [f"report: {page}"]
    handler.run.set_plan({"report_render": 1})
    handler.thread = threading.Thread()
    done, *named = handler.last_words()
    assert done.startswith("0 of 1 task done in ") and named == [f"report: {page}"]
    workflow.overwrite_workdir = str(tmp_path)  # --directory
    assert handler.last_words()[1:] == [f"report: {tmp_path / page}"]
    monkeypatch.setenv("CRAWL2LLM_SUMMARY", "1")  # make demo, whose summary names it
    assert handler.last_words() == [done]
    monkeypatch.delenv("CRAWL2LLM_SUMMARY")
    handler.errors = ["it broke"]
    assert handler.last_words() == ["it broke"]
