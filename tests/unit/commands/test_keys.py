"""`crawl2llm keys` finds keys by their names and meanings."""

from __future__ import annotations

import pytest

from crawl2llm.commands import keys
from crawl2llm.core.root import ROOT


def test_every_key_has_a_page_that_exists() -> None:
    assert all((ROOT / key.page).is_file() for key in keys.all_keys())


@pytest.mark.parametrize(
    ("word", "paths"),
    [
        ("dedup.select.threshold", ["dedup.select.threshold"]),
        ("validation fraction", ["corpus.split.validation_fraction"]),
        ("url.select.", ["url.select.words_max"]),  # a section, before what has its name in a meaning
        ("jaccard near-duplicate", ["dedup.select.threshold"]),
        ("dedup threshold", ["dedup.select.threshold"]),
        ("validation-fraction", ["corpus.split.validation_fraction"]),  # as an option is written
        ("sources[0].first_mb", ["ingest.extract.sources[].first_mb"]),
    ],
)
def test_keys_are_found(word: str, paths: list[str]) -> None:
    matches = [key.path for key in keys.matching_keys(word, keys.all_keys())]
    assert set(paths) <= set(matches) and len(matches) < 12


def test_a_section_has_its_own_keys_alone() -> None:
    matches = keys.matching_keys("dedup", keys.all_keys())
    assert {key.section.split(".")[0] for key in matches} == {"dedup"} and len(matches) > 10


def test_a_key_is_shown_with_what_is_allowed_and_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert keys.main(["corpus.split.validation_fraction"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("corpus.split.validation_fraction\n    allowed number above 0")
    assert "docs/stages/corpus.md#keys" in text and "reruns nothing" not in text
    assert keys.main(["pretrain.train.step_timeout"]) == 0
    assert "reruns nothing" in capsys.readouterr().out


def test_without_a_word_the_sections_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert keys.main([" "]) == keys.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{len(keys.all_keys())} keys;") and lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert any(line.split()[0] == "pretrain" for line in lines[1:])


def test_near_names_help_if_nothing_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert keys.main(["treshold"]) == 1
    assert "no key has 'treshold' in its name or its meaning; near are " in (error := capsys.readouterr().err)
    assert "threshold" in error
    assert keys.main(["xyzzyxyzzy"]) == 1
    assert "`crawl2llm keys` lists the sections" in capsys.readouterr().err
