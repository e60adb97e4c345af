"""Tasks that own several shards: who owns which, and how a program does them in turn."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import command_line, config, steps
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.filters.language import score
from crawl2llm.formats.documents import parquet_file
from tests.unit import making


@given(st.integers(1, 4096))
def test_every_shard_is_owned_once(number: int) -> None:
    complete = config.validate({"ingest": {"extract": {"shards": number}}})
    leads = steps.task_ids("language.score", complete)
    assert len(leads) == min(ceil(number / steps.AT_ONCE), steps.TASKS)
    owned = [steps.result_ids_of_task("language.score", lead, complete) for lead in leads]
    assert sorted(shard for found in owned for shard in found) == steps.shards(complete)
    assert [found[0] for found in owned] == leads


@pytest.fixture
def ingested(tmp_path: Path) -> list[Path]:
    """Three shards of documents."""
    texts = [
        "The first page is in English, as one can read.",
        "Die zweite Seite ist auf Deutsch geschrieben.",
        "Third.",
    ]
    return [
        making.documents(tmp_path / "extract", [making.document(str(number), text)], shard=f"{number:05d}")
        for number, text in enumerate(texts)
    ]


def scored(documents: Path, folder: Path, *also: str) -> Path:
    manifest = folder / documents.name
    settings = making.config("language.score")
    verdicts = str(making.checked(documents.parent / "check", *documents.parent.glob("*.manifest.json")))
    options = ["--config", settings, "--documents", str(documents), "--verdicts", verdicts, "--manifest", str(manifest)]
    assert score.main([*options, "--also", *also]) == 0
    return manifest


def test_one_task_writes_what_three_would(ingested: list[Path], tmp_path: Path) -> None:
    scored(ingested[0], tmp_path / "one", "00001", "00002")
    for path in ingested:
        alone = scored(path, tmp_path / "three")
        assert (tmp_path / "one" / path.name).read_bytes() == alone.read_bytes()
        assert parquet_file(tmp_path / "one" / path.name).read_bytes() == parquet_file(alone).read_bytes()


def test_a_task_cut_off_goes_on_after_the_shards_it_finished(ingested: list[Path], tmp_path: Path) -> None:
    scored(ingested[1], tmp_path)
    before = (tmp_path / "00001.parquet").stat().st_mtime_ns
    scored(ingested[0], tmp_path, "00001", "00002")
    assert (tmp_path / "00001.parquet").stat().st_mtime_ns == before
    # One that is damaged is done again.
    (tmp_path / "00001.parquet").write_bytes(b"x")
    with pytest.raises(ManifestError):
        Manifest.read(tmp_path / "00001.manifest.json")
    scored(ingested[0], tmp_path, "00001", "00002")
    assert Manifest.read(tmp_path / "00001.manifest.json")


def test_a_shard_whose_data_are_half_replaced_is_not_done(
    ingested: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the data and before the manifest, with other input; then the old input comes back."""
    scored(ingested[1], tmp_path)
    right = (tmp_path / "00001.parquet").read_bytes()

    def killed(args: Namespace, _: object, __: object) -> list[Path]:
        (args.manifest.with_name("00001.parquet")).write_bytes(right[:-1] + b"x")  # as many bytes
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    with monkeypatch.context() as patched, pytest.raises(AssertionError):
        patched.setattr(score, "main", replace(score.main, body=killed))
        making.documents(tmp_path / "extract", [making.document("1", "Replaced.")], shard="00001")
        command_line._read_input.cache_clear()  # another program
        scored(ingested[0], tmp_path, "00001")
    making.documents(
        tmp_path / "extract", [making.document("1", "Die zweite Seite ist auf Deutsch geschrieben.")], shard="00001"
    )
    command_line._read_input.cache_clear()  # another program
    scored(ingested[0], tmp_path, "00001")
    assert (tmp_path / "00001.parquet").read_bytes() == right


def test_a_task_whose_manifest_was_removed_works_only_where_something_changed(
    ingested: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Snakemake removes it before it starts a task; what the task would make may be there already."""
    manifest = scored(ingested[0], tmp_path)
    before, file = manifest.read_bytes(), parquet_file(manifest)
    stamp = file.stat().st_mtime_ns

    def again() -> bool:
        """Whether the file was made again; its bytes and the manifest are as before."""
        nonlocal stamp
        manifest.unlink(missing_ok=True)
        command_line._read_input.cache_clear()
        scored(ingested[0], tmp_path)
        assert manifest.read_bytes() == before
        old, stamp = stamp, file.stat().st_mtime_ns
        return old != stamp

    assert not again()
    assert "nothing to do: settings, code and input are as before" in capfd.readouterr().err
    right = file.read_bytes()
    file.write_bytes(right[:-1] + b"x")  # a damage of which only the checksum tells
    os.utime(file, ns=(stamp, stamp))
    assert again() and file.read_bytes() == right
    Manifest.remove_with_copy(manifest)
    assert again()
    making.documents(tmp_path / "extract", [making.document("1", "Replaced.")], shard="00000")
    manifest.unlink()
    command_line._read_input.cache_clear()
    scored(ingested[0], tmp_path)
    assert file.read_bytes() != right


def test_a_task_that_is_given_another_manifest_too_works(tmp_path: Path) -> None:
    """Whether it would read it, nobody knows before."""
    given = [making.documents(tmp_path / "in", [making.document("1", "x")], shard=f"0000{n}") for n in range(2)]
    mark = "{}"

    def args(number: int) -> Namespace:
        manifest = tmp_path / "out/manifest.json"
        return Namespace(step="some.step", manifest=manifest, documents=given[:number], also=[])

    def body(_: Namespace, __: object, ___: Manifest) -> list[Path]:
        return [] if Manifest.read(given[0]).counts else [Path()]

    (tmp_path / "out").mkdir()
    made = command_line.run_and_write(args(1), {}, mark, body)
    assert command_line.is_done(args(1), mark) and not command_line.is_done(args(2), mark)
    made = command_line.run_and_write(args(2), {}, mark, body)
    assert command_line.is_done(args(2), mark) and made.inputs["ingest.extract 00001"] == {}


def test_ranges() -> None:
    assert command_line.expand_ranges([Path("a/{08..10}.json"), Path("b.json")]) == [
        Path("a/08.json"), Path("a/09.json"), Path("a/10.json"), Path("b.json"),
    ]  # fmt: skip


def test_what_names_the_own_shard_names_the_other_one() -> None:
    own, lone = Path("x/00000.manifest.json"), Path("y/manifest.json")
    every = [Path(f"z/0000{number}.manifest.json") for number in range(2)]
    args = Namespace(
        manifest=own, documents=Path("d") / own.name, split=lone, verdicts=[lone, Path("v") / own.name], every=every
    )
    found = command_line.arguments_for_shard(args, "00001")
    assert found.manifest == Path("x/00001.manifest.json") and found.documents == Path("d/00001.manifest.json")
    assert found.split == lone and found.every == every
    assert found.verdicts == [lone, Path("v/00001.manifest.json")]
