"""Sealed folders: complete with every file at its size and on the disk before the seal, or not complete."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from crawl2llm.core import atomic_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/weights").write_bytes(b"12345678")
    (tmp_path / "optimizer").write_bytes(b"123")
    return tmp_path


def test_every_file_is_on_the_disk_before_the_seal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    files = atomic_folder.sync_folder(folder)
    assert files == {"optimizer": 3, "part/weights": 8}
    atomic_folder.seal_folder(folder, "seal.json", {"step": 4}, files)
    assert {"weights", "optimizer", "part"} <= set(order[: order.index(".seal.json.partial")])
    assert order[-1] == folder.name  # the seal's own name
    assert atomic_folder.read_sealed_facts(folder, "seal.json") == {"step": 4}


@pytest.mark.parametrize("content", [b"1234567", b"123456789", None])
def test_a_file_of_another_size_is_named(folder: Path, content: bytes | None) -> None:
    atomic_folder.seal_folder(folder, "seal.json", {}, atomic_folder.sync_folder(folder))
    (folder / "part/weights").unlink()
    if content is not None:
        (folder / "part/weights").write_bytes(content)
    with pytest.raises(ValueError, match="part/weights changed size or is missing"):
        atomic_folder.read_sealed_facts(folder, "seal.json")


def test_a_folder_without_a_whole_seal(folder: Path) -> None:
    with pytest.raises(OSError, match=r"seal\.json"):
        atomic_folder.read_sealed_facts(folder, "seal.json")
    for text in ("", "{", "[]", json.dumps({"step": 1})):
        (folder / "seal.json").write_text(text)
        with pytest.raises(ValueError, match=r"."):
            atomic_folder.read_sealed_facts(folder, "seal.json")


def test_a_file_that_shows_late_is_waited_for_and_one_that_never_does_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**atomic_folder.sync_folder(folder), "of-another-node": 5}
    late = threading.Timer(0.5, lambda: (folder / "of-another-node").write_bytes(b"12345"))
    late.start()
    atomic_folder.seal_folder(folder, "seal.json", {}, files)
    late.join()
    monkeypatch.setattr(atomic_folder, "PATIENCE", 0.3)
    with pytest.raises(OSError, match="never cannot be seen"):
        atomic_folder.seal_folder(folder, "other.json", {}, {**files, "never": 1})
    assert not (folder / "other.json").exists()
