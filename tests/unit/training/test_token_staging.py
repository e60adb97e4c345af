"""Token files on a node's own disk: the same bytes, copied once, whatever is wrong with the disk."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, ManifestError, consumed_inputs, record_inputs
from crawl2llm.core.root import ROOT
from crawl2llm.training import data, heldout, token_staging


def test_copies_are_read_as_the_files_themselves(shards: list[Path], tmp_path: Path) -> None:
    copies = token_staging.stage_tokens(shards, str(tmp_path))
    assert len(copies) == len(shards) and all(copy.is_relative_to(tmp_path) for copy in copies)
    ours, theirs = data.open_split(copies, "train"), data.open_split(shards, "train")
    assert len(ours) == len(theirs) > 0
    assert (ours.read(0, len(ours)) == theirs.read(0, len(theirs))).all()
    read = [
        [list(ids) for ids, *_ in heldout.scoring_pieces(heldout.choose_documents(found, 1000, 0)[0], 0, 32, 0.5)]
        for found in (copies, shards)
    ]
    assert read[0] == read[1]


def test_a_training_consumes_the_same_by_copies(shards: list[Path], tmp_path: Path) -> None:
    """A manifest says what its task read: where the bytes lay is no part of it."""
    found = []
    for folder in ("", str(tmp_path)):
        with record_inputs() as opened:
            data.open_split(token_staging.stage_tokens(shards, folder), "train")
        found.append(consumed_inputs(opened))
    assert found[0] == found[1] != {}


def test_the_processes_of_a_node_copy_once(shards: list[Path], tmp_path: Path) -> None:
    code = """if True:
        import pathlib, sys
        from crawl2llm.training import token_staging
        moved, replace = [], pathlib.Path.replace
        pathlib.Path.replace = lambda self, target: moved.append(self) or replace(self, target)
        token_staging.stage_tokens([*map(pathlib.Path, sys.argv[2:])], sys.argv[1])
        print(len(moved))
    """
    command = [sys.executable, "-c", code, str(tmp_path), *map(str, shards)]
    together = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    copied = sorted(int(process.communicate()[0]) for process in together)
    assert copied == [0, 0, sum(1 for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock")]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.bin")}
    cut = next(iter(before))
    cut.write_bytes(b"cut off")
    copies = token_staging.stage_tokens(shards, str(tmp_path))
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.bin")}
    assert [path for path in before if after[path] != before[path]] == [cut]
    assert len(data.open_split(copies, "train")) == len(data.open_split(shards, "train"))


def test_packed_windows_and_a_mix_are_copied_too(shards: list[Path], tmp_path: Path) -> None:
    written = {name: tmp_path / name / "manifest.json" for name in ("packs", "mix")}
    for name, path in written.items():
        path.parent.mkdir()
        (path.parent / "8.windows").write_bytes(name.encode())
        Manifest(f"pretrain.{name}", "test").write(path, [path.parent / "8.windows"])
    args = argparse.Namespace(tokens=shards, packs=[written["packs"]], mix=[written["mix"]])
    token_staging.stage_inputs(args, str(tmp_path / "node"))
    for name, path in written.items():
        (copy,) = getattr(args, name)
        assert copy.is_relative_to(tmp_path / "node") and Manifest.read(copy).key == Manifest.read(path).key
        assert (copy.parent / "8.windows").read_bytes() == name.encode()
    without = argparse.Namespace(tokens=shards, packs=[], mix=[])
    token_staging.stage_inputs(without, str(tmp_path / "node"))
    assert (without.tokens, without.packs, without.mix) == (args.tokens, [], [])


def test_without_a_folder_nothing_is_copied(shards: list[Path]) -> None:
    assert token_staging.stage_tokens(shards, "") == shards


def test_a_disk_without_space_is_a_warning(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_staging, "SPARE", 1 << 60)
    monkeypatch.setattr(logging.getLogger("crawl2llm"), "propagate", True)
    assert token_staging.stage_tokens(shards, str(tmp_path)) == shards
    assert "read where they lie" in caplog.text and "GB free" in caplog.text


def test_a_variable_that_is_not_set_is_named(shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    with pytest.raises(InputError, match=r"stage_to is '\$SLURM_TMPDIR/x', and \$SLURM_TMPDIR is not set"):
        token_staging.stage_tokens(shards, "$SLURM_TMPDIR/x")


def test_a_file_that_does_not_have_its_checksum_is_not_copied(shards: list[Path], tmp_path: Path) -> None:
    source = shutil.copytree(shards[0].parent, tmp_path / "source")
    manifest = source / shards[0].name
    name = next(name for name in Manifest.read(manifest).files if name.endswith(".bin"))
    (source / name).write_bytes(bytes((source / name).stat().st_size))
    with pytest.raises(ManifestError, match=r"\.bin does not have the checksum that its manifest says"):
        token_staging.stage_tokens([manifest], str(tmp_path / "node"))
    assert not list((tmp_path / "node").rglob("*.bin"))


@pytest.mark.parametrize("planted", ["link", "open", "lock"])
def test_what_others_may_have_put_into_a_shared_folder_is_not_used(
    shards: list[Path],
    tmp_path: Path,
    planted: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(logging.getLogger("crawl2llm"), "propagate", True)
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    private = shared / f"crawl2llm-tokens-{os.geteuid()}"
    if planted == "link":
        victim.mkdir()
        private.symlink_to(victim)
    elif planted == "open":
        private.mkdir()
        private.chmod(0o777)
    else:
        lock = token_staging.stage_tokens(shards, str(shared))[0].parents[1] / ".lock"
        victim.write_text("precious")
        lock.unlink()
        lock.symlink_to(victim)
    with caplog.at_level(logging.WARNING):
        assert token_staging.stage_tokens(shards, str(shared)) == shards
    assert "read where they lie" in caplog.text
    assert not victim.exists() or (planted == "link" and not any(victim.iterdir())) or victim.read_text() == "precious"


def test_copies_are_of_this_user_alone(shards: list[Path], tmp_path: Path) -> None:
    folder = token_staging.stage_tokens(shards, str(tmp_path))[0].parents[2]
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["planted", "a flipped bit", "link", "folders"])
def test_a_copy_that_somebody_changed_is_copied_again(shards: list[Path], tmp_path: Path, how: str) -> None:
    """It has the size and the times of the copy."""
    copies = token_staging.stage_tokens(shards, str(tmp_path))
    copy = next(copies[0].parent.rglob("*.bin"))
    content, about = copy.read_bytes(), copy.stat()
    if how == "planted":
        copy.unlink()
        copy.write_bytes(bytes(len(content)))
    elif how == "a flipped bit":
        copy.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif how == "link":
        copy.rename(tmp_path / "elsewhere")
        copy.symlink_to(tmp_path / "elsewhere")
    else:
        shutil.rmtree(copy.parent)
        shutil.copytree(copies[1].parent, copy.parent)
    if how in ("planted", "a flipped bit"):
        os.utime(copy, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert token_staging.stage_tokens(shards, str(tmp_path)) == copies
    assert copy.read_bytes() == content and not copy.is_symlink()
    assert copies[0].read_bytes() == min(shards).read_bytes()


def test_copies_are_read_for_their_checksums_once(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_staging.stage_tokens(shards, str(tmp_path))
    read: list[Path] = []
    own = token_staging.checksum
    monkeypatch.setattr(token_staging, "checksum", lambda path: read.append(path) or own(path))
    token_staging.stage_tokens(shards, str(tmp_path))
    assert set(read) == set(shards), "the manifests alone"
