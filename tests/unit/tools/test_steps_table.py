"""The table of steps is what the step table and the modules' docstrings make."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.chain.steps import STEPS
from crawl2llm.core.root import ROOT
from tools import steps_table

MODULES = [path for name in ("scripts", "tools") for path in (ROOT / name).rglob("*.py") if path.name != "__init__.py"]


def test_the_table_of_steps_is_up_to_date() -> None:
    page = steps_table.PAGE.read_text(encoding="utf-8")
    assert page == steps_table.with_table(page), "run `make docs`"


def test_every_step_says_what_it_writes() -> None:
    assert set(steps_table.step_outputs()) == set(STEPS)


def test_every_module_opens_with_a_sentence() -> None:
    assert not [path for path in MODULES if not steps_table.module_summary(path).endswith(".")]


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
    assert steps_table.module_summary(path) == sentence
