"""A cache outlives a plan; one that is damaged, or that cannot be written, costs time and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.core.plan_cache import Cache


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    first = Cache(tmp_path / "below" / "cache.json")
    first.keep_value("a", [1, "x"])
    first.save()
    assert Cache(first.path).values == {"a": [1, "x"]}


def test_saving_what_was_never_asked_for_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text('{"a": 1}')
    Cache(path).save()
    assert Cache(path).values == {"a": 1}


def test_a_damaged_cache_is_empty_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text('{"a": ')
    cache = Cache(path)
    assert cache.values == {}
    cache.keep_value("b", 2)
    cache.save()
    assert Cache(path).values == {"b": 2}


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache.json")
    cache.keep_value("a", 1)
    cache.save()
    assert cache.values == {"a": 1}


def test_what_is_forgotten_is_read_again_where_it_could_be_written(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache.json")
    cache.keep_value("a", 1)
    cache.save_and_forget()
    assert cache.values == {"a": 1}
    cache.path.unlink()
    assert cache.values == {"a": 1}, "held since it was asked for"
    (tmp_path / "file").write_text("")
    lost = Cache(tmp_path / "file" / "cache.json")
    lost.keep_value("a", 1)
    lost.save_and_forget()
    assert lost.values == {"a": 1}, "there is no other place for it"


def test_a_shared_file_serves_other_folders_and_fills_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    shared = tmp_path / "code" / "cache.json"
    first = Cache(tmp_path / "one" / "cache.json", shared)
    first.keep_value("a", 1)
    first.save()
    other = Cache(tmp_path / "two" / "cache.json", shared)
    assert other.values == {"a": 1}
    other.save()  # a job in this folder has a copy of the code, without the shared file
    assert Cache(other.path).values == {"a": 1} and [path.name for path in shared.parent.iterdir()] == [shared.name]


@pytest.mark.parametrize("damaged", ["", "[1]", "null", '{"a"'])
def test_a_damaged_shared_file_holds_nothing_and_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (shared := tmp_path / "shared.json").write_text(damaged)
    cache = Cache(tmp_path / "cache.json", shared)
    assert cache.values == {}
    cache.keep_value("b", 2)
    cache.save()
    assert Cache(tmp_path / "other.json", shared).values == {"b": 2}
