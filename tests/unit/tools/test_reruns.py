"""`python -m tools.reruns` names the steps that an edit of a module reruns."""

from __future__ import annotations

import pytest
import yaml

from crawl2llm.chain.steps import STEPS
from crawl2llm.core.root import ROOT
from tools import reruns

PACKAGE = "scripts/crawl2llm"


def test_it_names_the_steps_that_edits_rerun() -> None:
    """modules.yaml was compared with edits (tests/unit/chain/test_unhashed.py)."""
    table = yaml.safe_load((ROOT / "tests/unit/chain/modules.yaml").read_text(encoding="utf-8"))
    for name, steps in table.items():
        assert reruns.steps_by_module()[name] == (list(STEPS) if steps == "all" else steps)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("filters/dedup/verify.py", "dedup.verify"),
        ("core/manifest.py", "nothing"),
        ("commands/plan/command.py", "nothing"),
    ],
)
def test_a_module(path: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reruns.main([str(ROOT / PACKAGE / path)]) == 0
    assert capsys.readouterr().out == f"{PACKAGE}/{path}: {text}\n"


def test_a_folder_has_a_line_for_each_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert reruns.main([str(ROOT / PACKAGE / "filters" / "url")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list((ROOT / PACKAGE / "filters" / "url").rglob("*.py")))
    assert f"{PACKAGE}/filters/url/select.py: url.select, report.whatif, report.inspect" in lines


@pytest.mark.parametrize(
    ("path", "words"),
    [("README.md", "README.md is not in scripts/crawl2llm"), (f"{PACKAGE}/gone.py", "gone.py is no module")],
)
def test_what_is_no_module_is_refused(path: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reruns.main([str(ROOT / path)]) == 1
    assert words in capsys.readouterr().err
