"""What pages, files and servers call themselves is shown without what a terminal obeys, whatever shows it."""

from __future__ import annotations

import argparse
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from crawl2llm.chain import command_line
from crawl2llm.commands.log_tail import Tail
from crawl2llm.commands.plan import command as plan
from crawl2llm.commands.trace.words import answer_lines
from crawl2llm.commands.watch.lines import Lines
from crawl2llm.commands.watch.run import Run
from crawl2llm.commands.watch.screen import Screen
from crawl2llm.core import console
from crawl2llm.core.root import ROOT
from crawl2llm.stages.report import page, whatif_figures

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202eevil\u2066\x00\x7f"
SHOWN = "\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u000d\\u202eevil\\u2066\\u0000\\u007f"
URL = f"https://a.org/{EVIL}"


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    shown = console.escape_controls(text)
    assert not console.CONTROL_CHARACTERS.search(shown) and console.escape_controls(shown) == shown
    shown.encode()  # no half of a surrogate pair, at which print would fail
    assert all(sign in shown for sign in set(text) if sign.isalpha() and sign.isprintable())


def test_text_stays_what_it_is() -> None:
    text = "Grüße,\tمرحبا 你好 👩‍💻\n{'a': \"b\\n\"}"
    assert console.escape_controls(text) == text


def journey() -> dict[str, object]:
    first = {
        "step": "ingest.extract",
        "url": URL,
        "shard": "00000",
        "row": 1,
        "source": EVIL,
        "characters": 3,
        "date": EVIL,
    }
    kept = {"step": "url.select", "kept": False, "rule": EVIL, "detail": EVIL, "keeper": {"id": "b", "url": URL}}
    dropped = {"shard": "00000", "reason": EVIL, "detail": EVIL, "record_id": EVIL, "file": EVIL}
    return {"dropped": [dropped], "documents": [{"id": "a", "steps": [first, kept]}], "stale": []}


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_command_answers(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = journey()
    command_line.print_findings(argparse.Namespace(json=as_json), found, lambda: answer_lines(found))
    said = capsys.readouterr().out
    assert not console.CONTROL_CHARACTERS.search(said) and "evil" in said
    if as_json:
        assert json.loads(said) == found, "the JSON says the same"


def test_what_an_error_and_a_plan_say(capsys: pytest.CaptureFixture[str]) -> None:
    command_line.print_error(f"no document {URL}")
    plan.print_plan([f"auto: {EVIL}", f"error: no file matches '{EVIL}'"])
    said = capsys.readouterr()
    assert f"error: no document https://a.org/{SHOWN}" in said.err and SHOWN in said.out
    assert not console.CONTROL_CHARACTERS.search(said.out + said.err)


def test_what_a_run_shows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"10:00:00 ingest.extract 00000: warning: {EVIL}\n", encoding="utf-8")
    tail = Tail(log)
    tail.old_size = 0
    (said,) = tail.read_warnings()
    assert not console.CONTROL_CHARACTERS.search(said + tail.message)
    drawn = io.StringIO()
    run = Run(tmp_path, 0.0)
    Screen(run, drawn, color=False).print_above(EVIL)
    assert SHOWN in drawn.getvalue().replace("\n", "")
    written: list[str] = []
    Lines(run, written.append).write_timed("x")
    assert written


def test_what_a_page_shows() -> None:
    template = page.template_environment().from_string("<td>{{ a }}</td>{{ a|e|replace('_', '<wbr>'|safe) }}{{ b }}")
    made = template.render(a=EVIL, b=Markup("<b>&lt;" + EVIL))  # noqa: S704 - of this test
    assert not console.CONTROL_CHARACTERS.search(made) and made.count("evil") == 3 and "<b>&lt;" in made


def test_an_id_of_a_figure_is_an_id() -> None:
    name = f'x" onload="alert(1)" {EVIL}'
    found = {
        "dropped": 2,
        "rules": [{"rule": name, "documents": 2, "alone": 2}],
        "combinations": [{"rules": [name], "documents": 2}],
    }
    step = {"step": name, "in": {"documents": {"all": 9}}}
    rule = {"key": name, "kept": {"documents": {"all": [9, 1]}}, "points": [1.0, 2.0], "now": None}
    for made in (whatif_figures.upset_plot(name, found), whatif_figures.rule_curve(step, rule, str)["svg"]):
        assert not console.CONTROL_CHARACTERS.search(made)
        names = [key for one in ElementTree.fromstring(made).iter() for key in one.attrib]  # noqa: S314 - of this test
        ids = re.findall(r' (?:id|aria-labelledby|aria-describedby)="([^"]*)"', made)
        assert len(ids) == 4 and all(re.fullmatch(r"[A-Za-z0-9_-]+", one) for one in ids) and "onload" not in names


def test_commands_print_by_one_function() -> None:
    """`print` elsewhere is refused by ruff (T20)."""
    other = [
        str(path)
        for path in (ROOT / "scripts").rglob("*.py")
        if re.search(r"\bstd(out|err)\.write\(", path.read_text(encoding="utf-8"))
    ]
    assert other == []
