"""lines: C4's rules, as true removals, which later filters read through."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.lines import rules, score, select
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.formats import spans, surviving_texts
from crawl2llm.formats.documents import rows
from crawl2llm.text import c4_lines
from tests.unit import making

DEFAULT = ScoreSettings()
C4 = ScoreSettings(terminal_punctuation=True, words_min=5)


@pytest.mark.parametrize(
    ("line", "settings", "rule"),
    [
        ("This line ends as it should.", C4, None),
        ('She said "that is enough for me now"', C4, None),
        ("This line has no mark", C4, "terminal_punctuation"),
        ("It rained for five whole days.[1]", C4, None),
        (
            "It rained for five whole days.[1]",
            ScoreSettings(terminal_punctuation=True, words_min=5, citations=False),
            None,
        ),
        ("昨天下了一整天的雨。", ScoreSettings(terminal_punctuation=True), None),
        ("菜单", DEFAULT, "words_min"),
        ("This line goes on and on...", C4, "terminal_punctuation"),
        ("This line has no mark", DEFAULT, None),
        ("Too short.", DEFAULT, "words_min"),
        ("Four words are here.", C4, "words_min"),
        ("One two " + "x" * 1001, DEFAULT, "word_length_max"),
        ("Please enable JavaScript to go on.", DEFAULT, "javascript"),
        ("Read our Privacy Policy and be happy.", DEFAULT, "policy"),
        ("", C4, None),
        ("   ", C4, None),
    ],
)
def test_a_line(line: str, settings: ScoreSettings, rule: str | None) -> None:
    assert rules.rule_removing(line, settings) == rule


def test_citations_go_and_the_line_stays() -> None:
    text = "A fact that is known[1][citation needed] to all.\nMenu\nAnother[edit] one of them.\n"
    assert (
        spans.EditedText(text, rules.removed_spans(text, DEFAULT)).text
        == "A fact that is known to all.\nAnother one of them.\n"
    )


@given(st.text(alphabet="ab.\n\r\u2028 ", max_size=60))
def test_what_is_left_are_whole_lines_that_no_rule_takes(text: str) -> None:
    left = spans.EditedText(text, rules.removed_spans(text, C4)).text
    lines = c4_lines.LINE.findall(text)
    assert "".join(lines) == text
    kept = "".join(line for line in lines if rules.rule_removing(line, C4) is None)
    ends_open = bool(lines) and not lines[-1].endswith("\n")
    assert left == kept or (ends_open and kept.startswith(left) and not kept[len(left) :].strip())


def test_without_its_last_line_a_text_is_the_text_that_ended_there() -> None:
    """Else it would be no exact duplicate of it."""
    text = "The first sentence of a page."
    for tail in ("\nMenu", "\r\nMenu", "\nMenu\nHome"):
        assert spans.EditedText(text + tail, rules.removed_spans(text + tail, C4)).text == text
    assert spans.EditedText(f"{text}\nMenu\n", rules.removed_spans(f"{text}\nMenu\n", C4)).text == f"{text}\n"
    assert spans.EditedText("Menu", rules.removed_spans("Menu", C4)).text == ""


@given(st.lists(st.sampled_from(["A line that stays as it is.", "Menu", "", "We use cookies here.", " "]), max_size=8))
def test_no_two_spans_share_a_character_and_each_rule_counts_its_own(lines: list[str]) -> None:
    for text in ("\n".join(lines), "\r\n".join(lines) + "\r\n"):
        found = list(rules.removed_spans(text, C4))
        assert all(one.end <= two.start for one, two in pairwise(found))
        taken = [rule for line in lines if (rule := rules.rule_removing(line, C4))]
        assert [span.rule for span in found] == taken
        counted = spans.count_spans(found, text)
        assert sum(one["spans"] for one in counted.values()) == len(taken)


def test_sentences() -> None:
    assert rules.count_sentences('One. Two! "Three?" Four') == 4
    assert rules.count_sentences("3.14 is no end.") == 1
    assert rules.count_sentences("A line.\nAnother") == 2
    assert rules.count_sentences("") == 0


PAGE = "Menu\nThe first sentence of a page. And the second.\nWe use cookies on this site.\n"


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Path]:
    """Both steps over three documents."""
    given = [
        making.document("page", PAGE),
        making.document("menu", "Menu\nHome\n"),
        making.document("curated", "Menu\nHome\n", curated=True),
    ]
    documents = making.documents(tmp_path / "documents", given)
    verdicts = making.checked(tmp_path / "check", documents)
    out = tmp_path / "score/00000.manifest.json"
    argv = ["--config", making.config("lines.score"), "--documents", str(documents), "--verdicts", str(verdicts)]
    assert score.main([*argv, "--manifest", str(out)]) == 0
    argv = ["--config", making.config("lines.select", sentences_min=2), "--signals", str(out)]
    assert select.main([*argv, "--manifest", str(tmp_path / "select/00000.manifest.json")]) == 0
    return {"documents": documents, "edits": out, "verdicts": tmp_path / "select/00000.manifest.json"}


def test_both_steps(made: dict[str, Path]) -> None:
    manifest = Manifest.read(made["edits"])
    found = list(rows(manifest.file("spans/00000.parquet")))
    assert [(row["id"], PAGE[row["start"] : row["end"]], row["rule"]) for row in found[:2]] == [
        ("page", "Menu\n", "words_min"),
        ("page", "We use cookies on this site.\n", "policy"),
    ]
    assert manifest.summary == {"taken": {"words_min": 3, "policy": 1}}
    verdicts = Manifest.read(made["verdicts"])
    assert verdicts.counts == {"in": 3, "kept": 2, "dropped": {"characters_min": 1}}
    dropped = next(row for row in rows(verdicts.file("00000.parquet")) if not row["kept"])
    assert (dropped["id"], dropped["value"], dropped["threshold"]) == ("menu", 0, 1)
    assert dropped["rules"] == ["characters_min", "sentences_min"]


def test_a_later_filter_reads_what_is_left_and_turns_its_places_back(made: dict[str, Path]) -> None:
    texts = list(surviving_texts.texts(made["documents"], made["verdicts"], [made["edits"]], [], originals=True))
    assert [row["id"] for row in texts] == ["page", "curated"]
    text = texts[0]["text"]
    assert text == "The first sentence of a page. And the second.\n"
    place = text.index("And")
    start, end = texts[0]["original"](place, place + 3)
    assert PAGE[start:end] == "And"
    assert texts[1]["text"] == "Menu\nHome\n"


def test_a_source_that_skips_it_keeps_its_texts(tmp_path: Path) -> None:
    given = [making.document(name, "Menu\nHome\n", source=name) for name in ("books", "web")]
    documents = making.documents(tmp_path / "documents", given)
    verdicts = making.checked(tmp_path / "check", documents)
    edits, out = (tmp_path / name / "00000.manifest.json" for name in ("score", "select"))
    argv = ["--documents", str(documents), "--verdicts", str(verdicts), "--manifest", str(edits)]
    assert score.main(["--config", making.config("lines.score", ["books"]), *argv]) == 0
    argv = ["--config", making.config("lines.select", ["books"]), "--signals", str(edits), "--manifest", str(out)]
    assert select.main(argv) == 0
    assert {row["id"] for row in rows(Manifest.read(edits).file("spans/00000.parquet"))} == {"web"}
    assert Manifest.read(out).counts == {"in": 2, "kept": 1, "dropped": {"characters_min": 1}}
    assert Manifest.read(out).summary["source_exempt"] == 1
    assert [row["text"] for row in surviving_texts.texts(documents, out, [edits], [])] == ["Menu\nHome\n"]
    (spared, _) = rows(Manifest.read(out).file("00000.parquet"))
    assert spared["kept"] and spared["rules"] == ["sentences_min"] and spared["value"] is None


def test_once_more_after_itself_it_finds_nothing(made: dict[str, Path], tmp_path: Path) -> None:
    """As a second filter that edits would: through the spans of the first."""
    out = tmp_path / "again/00000.manifest.json"
    argv = ["--config", making.config("lines.score"), "--documents", str(made["documents"]), "--manifest", str(out)]
    assert score.main([*argv, "--verdicts", str(made["verdicts"]), "--edits", str(made["edits"])]) == 0
    assert list(rows(Manifest.read(out).file("spans/00000.parquet"))) == []
