"""The table of public tasks: what each model was asked stands beside what it reached."""

from __future__ import annotations

from crawl2llm.stages.report.public import tasks_note

ASKED = {"items": 200, "rows": 500, "shots": 5, "cut_to_context": 0, "left_out_too_long": 0}


def test_what_each_model_was_asked_is_said_where_it_differs() -> None:
    """Another tokenizer, or a shorter context, cuts and leaves out other items."""
    short = {**ASKED, "items": 180, "cut_to_context": 12, "left_out_too_long": 20}
    assert tasks_note({"untrained": ASKED, "base": ASKED, "sft": None}) == "200 of 500 items, 5 examples"
    assert tasks_note({"base": short, "smollm": ASKED}) == (
        "base: 180 of 500 items, 5 examples; 12 cut to the context; 20 left out, too long · smollm: 200 of 500 items, 5 examples"
    )
