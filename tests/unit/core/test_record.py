"""The record beside a manifest: the whole fingerprint, the versions that were loaded, the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawl2llm.core import record
from crawl2llm.core.manifest import digest


def test_where_it_lies() -> None:
    assert record.path_of(Path("a/00003.manifest.json")) == Path("a/00003.run.json")
    assert record.path_of(Path("a/manifest.json")) == Path("a/run.json")


def test_what_it_holds(tmp_path: Path) -> None:
    import pyarrow

    manifest = tmp_path / "manifest.json"
    record.write(manifest, '{"config": {"a": 1}}', {"device": "cpu"})
    found = record.read(manifest)
    assert found["fingerprint"] == {"config": {"a": 1}} and found["device"] == "cpu"
    assert found["versions"]["pyarrow"] == pyarrow.__version__
    assert set(found["machine"]) == {"host", "processor", "system"}


def test_no_record_and_a_damaged_one_say_nothing(tmp_path: Path) -> None:
    assert record.read(tmp_path / "manifest.json") == {}
    (tmp_path / "run.json").write_text("[")
    assert record.read(tmp_path / "manifest.json") == {}


@pytest.mark.parametrize(("used", "device"), [(True, "cuda"), (False, "cpu")])
def test_the_device_is_the_one_that_was_computed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: bool, device: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: used)))
    record.write(tmp_path / "manifest.json", "{}", {})
    assert record.read(tmp_path / "manifest.json")["device"] == device


def test_a_step_without_torch_names_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    record.write(tmp_path / "manifest.json", "{}", {})
    assert "device" not in record.read(tmp_path / "manifest.json")


def test_a_start_without_work_keeps_who_worked(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    record.write(path, '{"step": "a.b", "code": {"x": "1"}}', {"device": "cuda", "accepted": [{"to": "1"}]})
    before = record.read(path)
    record.update_fingerprint(path, '{"step": "a.b", "code": {"x": "2"}}')
    assert record.read(path) == {**before, "fingerprint": {"step": "a.b", "code": {"x": "2"}}}


def test_an_acceptance_that_was_killed_half_way_is_none(tmp_path: Path) -> None:
    """The record is written before the manifest; after a kill in between, it alone tells of something that never happened."""
    path, marks = tmp_path / "manifest.json", ['{"code":"1"}', '{"code":"2"}', '{"code":"3"}']
    record.write(path, marks[0], {})
    entries = [{"to": digest(mark)} for mark in marks[1:]]
    for mark, entry in zip(marks[1:], entries, strict=True):
        record.accept_fingerprint(path, mark, entry)
    assert record.accepted_entries(path, digest(marks[2])) == entries
    assert record.accepted_entries(path, digest(marks[1])) == entries[:1]
