"""The table of steps and the page of the code are what the step table and the modules' docstrings make."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crawl2llm.chain.steps import STEPS
from crawl2llm.core.root import ROOT
from tools import tour

MODULES = [path for name in ("scripts", "tools") for path in (ROOT / name).rglob("*.py") if path.name != "__init__.py"]


def test_the_table_of_steps_is_up_to_date() -> None:
    page = tour.STEPS_PAGE.read_text(encoding="utf-8")
    assert page == tour.with_table(page), "run `make docs`"


def test_the_page_of_the_code_is_up_to_date() -> None:
    assert tour.CODE_PAGE.read_text(encoding="utf-8") == tour.code_page(), "run `make docs`"


def test_every_step_says_what_it_writes() -> None:
    assert set(tour.step_outputs()) == set(STEPS)


def test_every_module_opens_with_a_sentence_and_is_on_the_page() -> None:
    assert not [path for path in MODULES if not tour.module_summary(path).endswith(".")]
    rows = [line for line in tour.code_page().splitlines() if line.startswith("| `")]
    assert len([line for line in rows if "__init__.py`" not in line]) == len(MODULES)


def test_the_page_names_the_steps_that_an_edit_reruns() -> None:
    """modules.yaml was compared with edits (tests/unit/chain/test_unhashed.py)."""
    table = yaml.safe_load((ROOT / "tests/unit/chain/modules.yaml").read_text(encoding="utf-8"))
    for name, steps in table.items():
        assert tour.steps_by_module()[ROOT / name] == (list(STEPS) if steps == "all" else steps)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('"""One. Two."""', "One."),
        ('"""Reads a.b and\nc.d, all.\n\nMore."""', "Reads a.b and c.d, all."),
        ('"""No end"""', "No end"),
        ("x = 1", ""),
    ],
)
def test_the_first_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert tour.module_summary(path) == sentence
