"""The training loop in docs/architecture.md is the code's, and fits one screen."""

from __future__ import annotations

from tools import loop_quote


def test_the_quote_is_up_to_date() -> None:
    page = loop_quote.PAGE.read_text(encoding="utf-8")
    assert page == loop_quote.with_quote(page), "run `make docs`"


def test_the_loop_fits_one_screen() -> None:
    lines = loop_quote.loop_text().splitlines()
    assert "def take_steps" in lines[1] and len(lines) <= 40
