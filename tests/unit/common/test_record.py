"""The record beside a manifest: the whole fingerprint, the versions that were loaded, the machine."""

from __future__ import annotations

from pathlib import Path

from scripts.common import record


def test_where_it_lies() -> None:
    assert record.beside(Path("a/00003.manifest.json")) == Path("a/00003.run.json")
    assert record.beside(Path("a/manifest.json")) == Path("a/run.json")


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
