"""When a result counts as that of another fingerprint, and when it never does."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import command_line
from crawl2llm.core import checkpoint_folders, record
from crawl2llm.core.manifest import Manifest, canonical_json, digest


def mark(step: str = "some.step", above: str = "a", **other: Any) -> str:
    """A fingerprint whose step above has the fingerprint `above`."""
    return canonical_json(
        {"step": step, "config": {"x": 1}, "code": {"m": "1"}, "files": {}, "upstream": {"a.b": above}, **other}
    )


class Made:
    """A task that reads one part of a manifest, and writes it into a file."""

    def __init__(self, folder: Path, step: str = "some.step", first: str | None = None) -> None:
        self.step, self.folder = step, folder
        self.given("one")
        self.args = Namespace(step=step, manifest=folder / "out/manifest.json", read=self.above, also=[])
        self.args.manifest.parent.mkdir()
        self.work(first or mark(step))

    @property
    def above(self) -> Path:
        return self.folder / "in/manifest.json"

    def given(self, text: str) -> None:
        """Make what it reads."""
        command_line._read_input.cache_clear()
        self.above.parent.mkdir(exist_ok=True)
        file = self.above.with_name("data.txt")
        file.write_text(text)
        Manifest("a.b", "0" * 16, summary={"seconds": text}).write(self.above, [file])

    def work(self, fingerprint: str) -> Manifest:
        def body(args: Namespace, _: object, __: Manifest) -> list[Path]:
            out = args.manifest.with_name("out.txt")
            out.write_bytes(Manifest.read(args.read).file("data.txt").read_bytes())
            return [out]

        return command_line.run_and_write(self.args, {}, fingerprint, body)

    def done(self, fingerprint: str) -> bool:
        return command_line.is_done(self.args, fingerprint)


def test_other_settings_above_with_the_same_input(tmp_path: Path) -> None:
    made = Made(tmp_path)
    file, before = tmp_path / "out/out.txt", json.loads((tmp_path / "out/manifest.json").read_text())
    inode, versions = file.stat().st_ino, record.read(made.args.manifest)["versions"]
    assert made.done(mark(above="b"))
    after = json.loads((tmp_path / "out/manifest.json").read_text())
    assert after == {**before, "fingerprint": digest(mark(above="b"))} and file.stat().st_ino == inode
    held = record.read(made.args.manifest)
    assert held["fingerprint"] == json.loads(mark(above="b")) and held["versions"] == versions
    assert made.done(mark(above="c")) and made.done(mark(above="c"))


@pytest.mark.parametrize(
    "other",
    [{"config": {"x": 2}}, {"config": {}}, {"code": {"m": "2"}}, {"code": {}}, {"files": {"k f": "3"}}, {"new": 1}],
)
def test_anything_of_its_own_counts(tmp_path: Path, other: dict[str, Any]) -> None:
    made = Made(tmp_path)
    assert not made.done(mark(**other)) and not made.done(mark(above="b", **other))


def test_input_that_holds_something_else(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.given("two")
    assert not made.done(mark(above="b")) and not made.done(mark())
    made.given("one")
    assert made.done(mark(above="b"))


@pytest.mark.parametrize("fault", ["absent", "damaged", "of another result", "without a fingerprint"])
def test_nobody_knows_without_the_record(tmp_path: Path, fault: str) -> None:
    made = Made(tmp_path)
    path = record.path_of(made.args.manifest)
    if fault == "absent":
        path.unlink()
    elif fault == "damaged":
        path.write_text(path.read_text()[:-9])
    elif fault == "of another result":  # which has the settings of today: the manifest was made with others
        held = json.loads(path.read_text())
        path.write_text(json.dumps({**held, "fingerprint": json.loads(mark(above="z"))}))
    else:
        path.write_text("{}")
    assert not made.done(mark(above="b"))
    assert made.done(mark())  # its manifest says so alone


@pytest.mark.parametrize("fault", ["missing", "another size"])
def test_files_that_are_not_whole(tmp_path: Path, fault: str) -> None:
    made = Made(tmp_path)
    file = tmp_path / "out/out.txt"
    file.unlink() if fault == "missing" else file.write_text("more")
    assert not made.done(mark(above="b"))


def test_a_damage_behind_a_manifest_that_was_removed(tmp_path: Path) -> None:
    made = Made(tmp_path)
    (tmp_path / "out/out.txt").write_text("on3")
    made.args.manifest.unlink()
    assert not made.done(mark(above="b"))


@pytest.mark.parametrize("step", ["compress.export", "report.render", "report.compare"])
def test_what_shows_the_steps_above_is_made_again(tmp_path: Path, step: str) -> None:
    made = Made(tmp_path, step)
    assert not made.done(mark(step, above="b")) and made.done(mark(step))


def test_a_kill_between_record_and_manifest(tmp_path: Path) -> None:
    """The record is written first: it says which fingerprint the manifest still has."""
    made = Made(tmp_path)
    before = made.args.manifest.read_bytes()
    assert made.done(mark(above="b"))
    made.args.manifest.write_bytes(before)
    Manifest.copy_of(made.args.manifest).write_bytes(before)
    assert made.done(mark(above="c"))
    assert json.loads(made.args.manifest.read_text())["fingerprint"] == digest(mark(above="c"))


def test_a_result_that_was_made_since_forgets_the_one_before(tmp_path: Path) -> None:
    made = Made(tmp_path)
    before = made.args.manifest.read_bytes()
    assert made.done(mark(above="b")) and record.read(made.args.manifest)[record.RENEWED]
    made.work(mark(above="c"))
    assert record.RENEWED not in record.read(made.args.manifest)
    made.args.manifest.write_bytes(before)
    assert not made.done(mark(above="d"))


def test_checkpoints_stay_those_of_their_training(tmp_path: Path) -> None:
    place, manifest = tmp_path / "checkpoints/1", Path("results/main/pretrain/train/manifest.json")
    place.mkdir(parents=True)
    checkpoint_folders.write_pointer(place, Path("results/other/pretrain/train/manifest.json"), "old")
    checkpoint_folders.write_pointer(place, manifest, "old")
    checkpoint_folders.replace_fingerprint(tmp_path / "checkpoints", manifest, "elsewhere", "new")
    checkpoint_folders.replace_fingerprint(tmp_path / "checkpoints", manifest, "old", "new")
    assert [(str(path), found) for _, path, found in checkpoint_folders.trainings_below(tmp_path / "checkpoints")] == [
        (str(manifest), "new"),
        ("results/other/pretrain/train/manifest.json", "old"),
    ]
