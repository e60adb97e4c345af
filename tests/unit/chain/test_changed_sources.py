"""The files that were replaced, by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl2llm.chain import changed_sources, sources


@pytest.fixture
def entries(tmp_path: Path) -> list[str]:
    for name in "abcdef":
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "00001.run.json").write_text(json.dumps({"files": sources.file_digests(of(tmp_path, "abcd"))}))
    return of(tmp_path, "abcd")


def of(folder: Path, names: str) -> list[str]:
    return [f"web={folder}/./{name}.txt" for name in names]


def ask(folder: Path, entries: list[str]) -> str:
    return changed_sources.changed_files_text(folder / "00001.manifest.json", "00001", entries)


def test_files_are_named_with_what_became_of_them(tmp_path: Path, entries: list[str]) -> None:
    (tmp_path / "b.txt").write_text("other")
    assert ask(tmp_path, entries) == "source files: b.txt replaced"
    assert ask(tmp_path, of(tmp_path, "abce")) == "source files: b.txt replaced, d.txt gone, e.txt new"


def test_three_are_named(tmp_path: Path) -> None:
    (tmp_path / "00001.run.json").write_text(json.dumps({"files": {}}))
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text(name)
    assert ask(tmp_path, of(tmp_path, "abcde")) == "source files: a.txt new, b.txt new, c.txt new and 2 more"


def test_a_record_without_files_gives_the_shard_and_what_it_has(tmp_path: Path, entries: list[str]) -> None:
    (tmp_path / "00001.run.json").write_text("{}")
    assert ask(tmp_path, entries) == "other source files in shard 00001 (a.txt, b.txt, c.txt and 1 more)"
    assert ask(tmp_path, []) == "other source files in shard 00001, which has none now"


def test_a_file_that_cannot_be_read_is_no_failure_of_the_page(tmp_path: Path, entries: list[str]) -> None:
    (tmp_path / "b.txt").unlink()
    assert ask(tmp_path, entries).startswith("other source files in shard 00001")
