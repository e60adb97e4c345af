"""Manifests: counts that add up, files that are there, and nothing half written."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest, ManifestError, checksum, consumed_inputs, record_inputs, write_atomically


def made(folder: Path, **fields: Any) -> Path:
    (folder / "a.bin").write_bytes(b"abc")
    Manifest("some.step", "f", **fields).write(folder / "manifest.json", [folder / "a.bin"])
    return folder / "manifest.json"


def test_round_trip(tmp_path: Path) -> None:
    path = made(tmp_path, counts={"in": 3, "kept": 1, "dropped": {"x": 2}}, summary={"ü": [1.5, None]})
    read = Manifest.read(path)
    assert (read.step, read.fingerprint, read.summary) == ("some.step", "f", {"ü": [1.5, None]})
    assert read.counts == {"in": 3, "kept": 1, "dropped": {"x": 2}}
    assert read.file("a.bin").read_bytes() == b"abc"
    assert read.files == {"a.bin": {"bytes": 3, "xxh3": "06b05ab6733a618578af5f94892f3950"}}
    assert made(tmp_path / "..", counts=read.counts, summary=read.summary).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("counts", [{"in": 3, "kept": 1, "dropped": {"x": 1}}, {"in": 0, "kept": 1, "dropped": {}}])
def test_counts_must_add_up(tmp_path: Path, counts: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="in = kept \\+ dropped does not hold"):
        made(tmp_path, counts=counts)
    assert not (tmp_path / "manifest.json").exists()


def test_missing_file_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    (tmp_path / "a.bin").unlink()
    with pytest.raises(ManifestError, match=r"a\.bin is missing"):
        Manifest.read(path)


def test_resized_file_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"abcd")
    with pytest.raises(ManifestError, match=r"a\.bin has 4 bytes, not 3"):
        Manifest.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "[]", "3", '"x"', "{}", '{"step": "a"}', '{"step": "a", "fingerprint": "b", "more": 1}', "\x00",
        '{"step": "a", "fingerprint": "b", "files": [1]}', '{"step": "a", "fingerprint": "b", "files": {"x": 3}}',
        '{"step": "a", "fingerprint": "b", "files": {"x": {}}}',
    ],
)  # fmt: skip
def test_garbage_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "00001.manifest.json"
    path.write_text(text)
    with pytest.raises(ManifestError, match=r"00001\.manifest\.json: not a readable manifest"):
        Manifest.read(path)


def test_no_manifest_and_binary_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    for name in ("absent", "b"):
        with pytest.raises(ManifestError, match=name):
            Manifest.read(tmp_path / name)


def test_file_that_it_does_not_list(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"no file 'b\.bin' .* it lists a\.bin"):
        Manifest.read(made(tmp_path)).file("b.bin")
    with pytest.raises(ManifestError, match="no folder"):
        _ = Manifest("s", "f").folder


def test_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.json"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new" * 1000)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.json"]


def test_manifest_is_written_after_its_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Manifest("s", "f").write(tmp_path / "manifest.json", [tmp_path / "absent"])
    assert list(tmp_path.iterdir()) == []


def test_files_in_folders_below(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "0.bin").write_bytes(b"")
    Manifest("s", "f").write(tmp_path / "manifest.json", [tmp_path / "train" / "0.bin"])
    body = json.loads((tmp_path / "manifest.json").read_text())
    assert body["files"] == {"train/0.bin": {"bytes": 0, "xxh3": checksum(tmp_path / "train" / "0.bin")}}
    assert checksum(tmp_path / "train" / "0.bin") == "99aa06d3014798d86001c324468d497f"


def test_weights_are_compared_with_their_checksums_and_that_consumes_nothing(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_bytes(b"1234")
    Manifest("some.step", "0").write(tmp_path / "manifest.json", [tmp_path / "model/weights"])
    read = Manifest.read(tmp_path / "manifest.json")
    assert read.verify_files("model/") is read and not read.used
    (tmp_path / "model/weights").write_bytes(b"1235")
    with pytest.raises(ManifestError, match="weights does not have the checksum"):
        read.verify_files("model/")


def test_files_are_on_the_disk_before_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    (tmp_path / "model").mkdir()
    files = [tmp_path / "a.parquet", tmp_path / "model/weights"]
    for file in files:
        file.write_bytes(b"1")
    monkeypatch.setattr(os, "fsync", spy)
    Manifest("some.step", "0").write(tmp_path / "x.manifest.json", files)
    copy, manifest = (order.index(f".{name}.partial") for name in (".x.manifest.copy", "x.manifest.json"))
    assert set(order[:copy]) == {"a.parquet", "weights", "model", tmp_path.name} and copy < manifest


def test_who_is_after_one_file_depends_on_that_one(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    for path in files:
        path.write_text(path.name)
    Manifest("some.step", "x").write(tmp_path / "manifest.json", files)
    (tmp_path / "b").unlink()
    assert Manifest.read(tmp_path / "manifest.json", only="a").file("a").read_text() == "a"
    for only in ("b", None):
        with pytest.raises(ManifestError, match="b is missing"):
            Manifest.read(tmp_path / "manifest.json", only=only)


@pytest.mark.parametrize("name", ["../a.bin", "/etc/passwd", "x/../../a.bin", "..", ""])
def test_a_file_outside_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = made(tmp_path)
    body = json.loads(path.read_text())
    body["files"] = {name: body["files"]["a.bin"]}
    path.write_text(json.dumps(body))
    with pytest.raises(ManifestError, match="not a readable manifest"):
        Manifest.read(path)


@pytest.mark.parametrize("name", ["a.bin", "model/a.bin", "model"])
def test_a_link_is_no_way_out(tmp_path: Path, name: str) -> None:
    """Of a file, or of the folder that it is in; one within the folder, and a link to the whole folder, are ways in."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    file = here / ("model/a.bin" if name == "model" else name)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"abc")
    Manifest("some.step", "f").write(here / "manifest.json", [file])
    elsewhere.mkdir()
    target = elsewhere / Path(name).name
    (here / name).rename(target)
    (here / name).symlink_to(target)
    (tmp_path / "linked").symlink_to(here)
    for path in (here / "manifest.json", tmp_path / "linked/manifest.json"):
        with pytest.raises(ManifestError, match=r"a\.bin leads out of its folder by a symbolic link"):
            Manifest.read(path)
    (here / name).unlink()
    target.rename(here / "within")
    (here / name).symlink_to(here / "within")
    for path in (here / "manifest.json", tmp_path / "linked/manifest.json"):
        assert Manifest.read(path).folder == path.parent
    (here / name).unlink()
    (here / name).symlink_to(here / "nowhere")
    with pytest.raises(ManifestError, match=r"a\.bin is missing"):
        Manifest.read(here / "manifest.json")


def test_a_name_with_dots_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "a..b").write_bytes(b"abc")
    Manifest("some.step", "f").write(tmp_path / "manifest.json", [tmp_path / "a..b"])
    assert Manifest.read(tmp_path / "manifest.json").file("a..b").read_bytes() == b"abc"


READS: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "a key": (lambda made: made.summary["train"]["bytes"], {"summary:train"}),
    "a key that is asked for": (lambda made: made.summary.get("train"), {"summary:train"}),
    "whether there is a key": (lambda made: "train" in made.summary, {"summary:train"}),
    "a key that is not there": (lambda made: made.summary.get("other"), {"*"}),
    "a key with a slash": (lambda made: made.summary["a/b"], {"*"}),
    "all keys": (lambda made: sorted(made.summary), {"*"}),
    "a copy": (lambda made: {**made.summary}, {"*"}),
    "another copy": (lambda made: copy.deepcopy(made.summary), {"*"}),
    "a dictionary": (lambda made: dict(made.summary), {"*"}),
    "JSON": (lambda made: json.dumps(made.summary), {"*"}),
    "a comparison": (lambda made: made.summary == {}, {"*"}),
    "a union": (lambda made: made.summary | {"x": 1}, {"*"}),
    "a union from the right": (lambda made: {"x": 1} | made.summary, {"*"}),
    "arguments": (lambda made: dict(**made.summary), {"*"}),
    "another process": (lambda made: pickle.dumps(made.summary), {"*"}),
    "a truth": (lambda made: bool(made.summary), {"*"}),
    "text": (lambda made: f"{made.summary}", {"*"}),
    "a loop": (lambda made: [value for value in made.summary.values()], {"*"}),
    "counts": (lambda made: made.counts, {"*"}),
    "the folder": (lambda made: made.folder, {"*"}),
    "the files below a prefix": (lambda made: made.subfolder("o"), {"files:", "one.txt"}),
    "a file by a part of the summary": (lambda made: made.file("one.txt", ("train", "bytes")), {"summary:train/bytes"}),
    "a file by a part that is not there": (lambda made: made.file("one.txt", ("train", "other")), {"one.txt"}),
    "names of files": (lambda made: sorted(made.files), {"files:"}),
    "a file of those": (lambda made: [made.file(name) for name in made.files], {"files:", "one.txt", "two.txt"}),
    "facts of a file": (lambda made: made.files["one.txt"]["bytes"], {"one.txt"}),
    "facts of all files": (lambda made: list(made.files.items()), {"*"}),
    "a copy of the files": (lambda made: {**made.files}, {"files:", "one.txt", "two.txt"}),
    "nothing": (lambda made: None, {"*"}),
}


@pytest.mark.parametrize("what", READS)
def test_what_a_task_consumes_of_its_input(tmp_path: Path, what: str) -> None:
    """A reader of one part depends on it alone, and one that does anything else on everything."""
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for file in files:
        file.write_text(file.name)
    Manifest(
        "a.b", "f" * 16, {"in": 1, "kept": 1, "dropped": {}}, {"train": {"bytes": 3}, "a/b": 1, "seconds": 1}
    ).write(tmp_path / "manifest.json", files)
    read, parts = READS[what]
    with record_inputs() as opened:
        read(Manifest.read(tmp_path / "manifest.json"))
    found = consumed_inputs(opened)["a.b"]
    assert found.keys() == parts
    there = Manifest.read_unchecked(tmp_path / "manifest.json")
    assert found == {part: there.digest_of(part) for part in parts}
    there.summary["seconds"] = 2
    assert (there.digest_of("*") != found.get("*")) and all(
        there.digest_of(part) == mark for part, mark in found.items() if part != "*"
    )


def test_an_empty_summary_that_is_read_is_read_whole(tmp_path: Path) -> None:
    Manifest("a.b", "f" * 16).write(tmp_path / "manifest.json", [])
    with record_inputs() as opened:
        json.dumps(Manifest.read(tmp_path / "manifest.json").summary)
    assert consumed_inputs(opened)["a.b"].keys() == {"*"}


def test_processes_that_write_the_same_file_at_the_same_time(tmp_path: Path) -> None:
    """As tasks of two models do that get the same answer of a judge."""
    path = tmp_path / "cache" / "answer.json"
    children = []
    for _ in range(3):
        if not (child := os.fork()):
            try:
                for _ in range(150):
                    write_atomically(path, "the answer", shared=True)
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert path.read_text() == "the answer" and [each.name for each in path.parent.iterdir()] == ["answer.json"]
