"""multilingual: the lines of a text in other languages are found, measured and cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language import score as language
from crawl2llm.filters.multilingual import score, select
from crawl2llm.filters.multilingual.passages import classify_lines, foreign_characters, foreign_spans
from crawl2llm.formats import spans
from crawl2llm.formats.documents import rows
from tests.unit import making

ENGLISH = "The committee met on Thursday to discuss the repair of the old bridge, and agreed that work should begin in the spring."
FRENCH = "Le comité s'est réuni jeudi pour discuter de la réparation du vieux pont, et les travaux commenceront au printemps."
RUSSIAN = "Комитет собрался в четверг вечером, чтобы обсудить ремонт старого моста, и решил, что работы должны начаться весной."


def letters(text: str) -> tuple[str, float]:
    """A language model of one letter: the first small one of a text."""
    return next(((char, 1.0) for char in text if char.islower()), ("und", 0.0))


LINES = st.lists(st.sampled_from(["aaaa", "bbbb", "cccc", "a", "b", "", "  aaaa ", "1234"]), max_size=12)


@given(LINES, st.booleans(), st.sets(st.sampled_from("abc"), min_size=1))
def test_cuts_are_whole_lines_and_leave_the_wanted_ones(lines: list[str], broken: bool, wanted: set[str]) -> None:
    text = "\n".join([*lines, ""] if broken else lines)
    found = classify_lines(text, letters, "a", 3, 0.5)
    assert "".join(text[line.start : line.end] for line in found) == text
    cut = list(foreign_spans(text, found, wanted))
    assert all(one.end <= two.start for one, two in pairwise(cut))
    left = spans.EditedText(text, cut).text
    kept = [text[line.start : line.end].rstrip("\n") for line in found if line.language in wanted]
    assert left.rstrip("\n").split("\n") == "\n".join(kept).rstrip("\n").split("\n")
    assert (foreign_characters(text, found, wanted) == 0) == (
        not any(text[span.start : span.end].strip() for span in cut)
    )


def test_a_short_line_goes_with_the_one_before() -> None:
    found = classify_lines("x\naaaa\nb\n1234\nbbbb\na", letters, "c", 3, 0.5)
    assert [line.language for line in found] == ["a", "a", "a", "a", "b", "b"]
    assert [line.language for line in classify_lines("x\ny", letters, "c", 3, 0.5)] == ["c", "c"]


def steps(folder: Path, skipped_by: tuple[str, ...] = (), **settings: object) -> tuple[Manifest, Manifest]:
    """language.score and both steps over five documents."""
    texts = {
        "plain": ENGLISH + "\n" + ENGLISH,
        "mixed": f"{ENGLISH}\n{FRENCH}\nRead on\n{ENGLISH}\n{RUSSIAN}",
        "mostly": f"{ENGLISH}\n{ENGLISH}\n{ENGLISH} {ENGLISH}\n{RUSSIAN}",
    }
    given = [making.document(name, text) for name, text in texts.items()]
    given += [
        making.document("book", texts["mixed"], curated=True),
        making.document("poem", texts["mixed"], source="poems"),
    ]
    documents = making.documents(folder / "extract", given)
    texts_of = ["--documents", str(documents), "--verdicts", str(making.checked(folder / "checked", documents))]
    out = {name: folder / name / "00000.manifest.json" for name in ("language", "score", "select")}
    assert (
        language.main(["--config", making.config("language.score"), *texts_of, "--manifest", str(out["language"])]) == 0
    )
    own = {key: value for key, value in settings.items() if key != "foreign_max"}
    argv = [
        "--config",
        making.config("multilingual.score", skipped_by, **own),
        *texts_of,
        "--languages",
        str(out["language"]),
    ]
    assert score.main([*argv, "--manifest", str(out["score"])]) == 0
    mark = making.config("multilingual.select", skipped_by, foreign_max=settings.get("foreign_max"))
    assert select.main(["--config", mark, "--signals", str(out["score"]), "--manifest", str(out["select"])]) == 0
    return Manifest.read(out["score"]), Manifest.read(out["select"])


def left(made: Manifest, name: str, text: str) -> str:
    found = [row for row in rows(made.file("spans/00000.parquet")) if row.pop("id") == name]
    return spans.EditedText(text, [spans.Span(**row) for row in found]).text


def test_lines_in_other_languages_are_cut(tmp_path: Path) -> None:
    made, judged = steps(tmp_path, ("poems",), languages=["en"])
    found = {row["id"]: row for row in rows(made.file("00000.parquet"))}
    assert found["mixed"]["languages"] == ["en", "fr", "ru"] and found["plain"]["languages"] == ["en"]
    assert found["plain"]["foreign"] == 0 and found["mixed"]["foreign"] == pytest.approx(0.5, abs=0.05)
    mixed = f"{ENGLISH}\n{FRENCH}\nRead on\n{ENGLISH}\n{RUSSIAN}"
    assert left(made, "mixed", mixed) == f"{ENGLISH}\n{ENGLISH}"
    assert left(made, "book", mixed) == left(made, "poem", mixed) == mixed
    assert made.summary == {"mixed": 4, "taken": {"fr": 1, "ru": 2}}
    assert judged.counts["kept"] == 5


def test_of_no_wanted_languages_a_document_keeps_its_own(tmp_path: Path) -> None:
    made, _ = steps(tmp_path)
    text = f"{ENGLISH}\n{ENGLISH}\n{ENGLISH} {ENGLISH}\n{RUSSIAN}"
    assert left(made, "mostly", text) == f"{ENGLISH}\n{ENGLISH}\n{ENGLISH} {ENGLISH}"


def test_languages_are_the_same_under_the_labels_of_another_model() -> None:
    """`languages: [en]` cut every line of a model that labels English eng_Latn."""
    label = {"a": "eng_Latn", "b": "fra_Latn"}
    text = "aaaa\nbbbb\naaaa"
    found = classify_lines(text, lambda line: (label[line.strip()[0]], 1.0), "en", 3, 0.5)
    languages = list(dict.fromkeys(line.language for line in found))
    assert score.languages_to_keep(languages, ["en"]) == ["eng_Latn"] and score.languages_to_keep(languages, []) == [
        "eng_Latn"
    ]
    assert score.languages_to_keep(languages, ["de"]) == []


def test_mixed_documents_are_dropped_or_kept_whole(tmp_path: Path) -> None:
    made, judged = steps(tmp_path, languages=["en"], cut=False, foreign_max=0.3)
    assert not list(rows(made.file("spans/00000.parquet")))
    found = {row["id"]: row for row in rows(judged.file("00000.parquet"))}
    assert {name for name, row in found.items() if not row["kept"]} == {"mixed", "poem"}
    assert found["mixed"]["rule"] == "foreign_max" and found["mixed"]["value"] > found["mixed"]["threshold"] == 0.3
    assert found["book"]["rules"] == ["foreign_max"] and found["book"]["kept"]
    _, judged = steps(tmp_path / "kept", languages=["en"], cut=False)
    assert judged.counts == {"in": 5, "kept": 5, "dropped": {}}
    _, judged = steps(tmp_path / "none", languages=["de"])
    assert judged.counts["dropped"] == {"characters_min": 4}


def test_twice_the_same_bytes(tmp_path: Path) -> None:
    first, second = steps(tmp_path / "a")[0], steps(tmp_path / "b")[0]
    assert first.files == second.files
