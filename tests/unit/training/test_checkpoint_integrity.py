"""Checkpoints of both engines with a file of which some bytes are zeros: a run goes on from the one before, a branch is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core import atomic_folder
from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint, checkpoint_integrity
from crawl2llm.training.export import export_checkpoint
from tests.unit.stages.pretrain.runs import finish, same

pytestmark = pytest.mark.slow  # starts trainings
ENGINES = {"deepspeed": {"zero_stage": 1}, "torch": {"engine": "torch", "zero_stage": 3}}
STEPS = 12  # with checkpoints after 5 and 10 too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture
def whole(start: Any, folder: Path) -> Callable[[str], Path]:
    """The folder of a run by an engine on two processes, which kept its checkpoints."""

    def of(name: str) -> Path:
        if not (made := folder / name).exists():
            finish(start(made, 2, {**ENGINES[name], "steps": STEPS}, "--keep-checkpoints", "9"))
        return made

    return of


def at(folder: Path, step: int) -> Path:
    (found,) = folder.glob(f"checkpoints/*/step-{step:06d}")
    return found


def last(path: Path) -> Path:
    """The file of the last process, which process 0 reads no tensor of."""
    return max([*path.glob("*optim_states.pt"), *path.glob("*.safetensors")])


def zeros(file: Path, begins: int = 0, ends: int | None = None) -> Path:
    """A file with zeros in the place of these bytes; all by default."""
    held = bytearray(file.read_bytes())
    part = slice(*slice(begins, ends).indices(len(held)))
    held[part] = bytes(part.stop - part.start)
    file.write_bytes(held)
    return file


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_goes_on_from_the_checkpoint_before(
    start: Any, whole: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Both later ones have a file of zeros. The same bytes in the end, and what is damaged is there for a person."""
    made = shutil.copytree(whole(name), tmp_path / "again")
    shutil.rmtree(made / "out")
    files = [zeros(last(at(made, step))) for step in (10, STEPS)]
    errors = finish(start(made, 2, {**ENGINES[name], "steps": STEPS}, "--keep-checkpoints", "9"))
    assert "resuming after step 5 of" in errors and "Traceback" not in errors
    for file in files:
        assert f"{file.parent.relative_to(made)} is not used: {file.relative_to(made)} cannot be read" in errors
        assert (file.parent.with_name(f"damaged-{file.parent.name}") / file.name).is_file()
    assert "2 of 3 checkpoints cannot be read: training goes on after step 5" in errors
    same(whole(name), made)
    assert [one.step for one in checkpoint.complete_checkpoints(at(made, 5).parent)] == [5, 10, STEPS]
    assert not any(checkpoint_integrity.damage_text(at(made, step)) for step in (5, 10, STEPS))


@pytest.mark.parametrize("name", ENGINES)
def test_a_branch_is_told_the_file(start: Any, whole: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    source = shutil.copytree(at(whole(name), 10), tmp_path / "source")
    file = zeros(last(source))
    errors = finish(start(tmp_path / "branch", 2, {**ENGINES[name], "steps": STEPS, "start_from": str(source)}), 1)
    assert f"start_from is '{source}': {file} cannot be read" in errors and "name another checkpoint" in errors
    assert "Traceback" not in errors and source.is_dir()
    with pytest.raises(InputError, match=f"{file.name} cannot be read"):
        export_checkpoint(source, tmp_path / "exported", None)


def flipped(file: Path) -> Path:
    """A file with another bit in the middle of its largest tensor, of a number's last digits: it is read without an error."""
    held = bytearray(file.read_bytes())
    places = [0, len(held)]
    if file.suffix == ".pt":
        with zipfile.ZipFile(file) as archive:
            largest = max(archive.infolist(), key=lambda part: part.file_size)
        places = [largest.header_offset, largest.header_offset + largest.file_size]
    held[sum(places) // 2] ^= 1
    file.write_bytes(held)
    return file


@pytest.mark.parametrize("name", ENGINES)
def test_a_flipped_bit_is_not_trained_on(start: Any, whole: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """The run goes on from the checkpoint before, to the same bytes; a branch and an export are refused."""
    made = shutil.copytree(whole(name), tmp_path / "again")
    shutil.rmtree(made / "out")
    file = flipped(last(at(made, STEPS)))
    source = shutil.copytree(at(made, STEPS), tmp_path / "source")
    assert checkpoint_integrity.damage_text(source) == ""
    errors = finish(start(made, 2, {**ENGINES[name], "steps": STEPS}, "--keep-checkpoints", "9"))
    said = f"is not used: {file.relative_to(made)} does not have the checksum that it was written with. The folder is now damaged-step-"
    assert said in errors and "resuming after step 10 of" in errors and "Traceback" not in errors
    same(whole(name), made)
    with pytest.raises(InputError, match=f"{file.name} does not have the checksum"):
        export_checkpoint(source, tmp_path / "exported", None)
    settings = {**ENGINES[name], "steps": STEPS + 2, "start_from": str(source)}
    errors = finish(start(tmp_path / "branch", 2, settings), 1)
    assert (
        f"start_from is '{source}': {source / file.name} does not have the checksum" in errors
        and "Traceback" not in errors
    )


@pytest.mark.parametrize("facts", [{"digests": {}}, {}])
def test_a_checkpoint_of_before_there_were_checksums(whole: Callable[[str], Path], tmp_path: Path, facts: Any) -> None:
    source = shutil.copytree(at(whole("torch"), 5), tmp_path / "source")
    held = json.loads((source / checkpoint.FACTS).read_text())
    assert held["digests"].keys() == held["files"].keys() and f"{last(source).name}" in held["digests"]
    del held["digests"]
    (source / checkpoint.FACTS).write_text(json.dumps(held | facts))
    read = checkpoint.read(source)
    assert read and read.step == 5


def test_a_seal_names_no_file_of_another_folder(whole: Callable[[str], Path], tmp_path: Path) -> None:
    source = shutil.copytree(at(whole("torch"), 5), tmp_path / "source")
    for name in ("../x", "/etc/passwd"):
        held = json.loads((source / checkpoint.FACTS).read_text())
        (source / checkpoint.FACTS).write_text(json.dumps(held | {"files": {**held["files"], name: 1}}))
        with pytest.raises(ValueError, match="is not in its folder"):
            atomic_folder.read_sealed_facts(source, checkpoint.FACTS)


def test_what_is_seen_of_an_archive(whole: Callable[[str], Path], tmp_path: Path) -> None:
    """All that is no tensor at once; of a tensor where it begins at once, and its bytes where reading has failed."""
    source = at(whole("deepspeed"), 10)
    assert checkpoint_integrity.damage_text(source) == checkpoint_integrity.damage_text(source, tensors=True) == ""
    name = last(source).name
    with zipfile.ZipFile(last(source)) as held:
        parts = {part.filename.partition("/")[2]: part for part in held.infolist()}
        size, index = last(source).stat().st_size, held.start_dir
    largest = max((part for part in parts if part.startswith("data/")), key=lambda part: parts[part].file_size)
    begins = parts[largest].header_offset
    inside = begins + 1000  # behind what stands before the tensor, aligned to 64 bytes
    assert parts[largest].file_size > 2000
    seen = [(0, size // 2), (size // 2, size), (index, index + 40), (begins, begins + 30), (size - 22, size)]
    seen += [(parts["data.pkl"].header_offset + 200, parts["data.pkl"].header_offset + 210)]
    for number, place in enumerate(seen):
        made = shutil.copytree(source, tmp_path / str(number))
        zeros(made / name, *place)
        assert checkpoint_integrity.damage_text(made).startswith(f"{made / name} cannot be read ("), place
    made = shutil.copytree(source, tmp_path / "step-000010")
    zeros(made / name, inside, inside + 500)
    assert checkpoint_integrity.damage_text(made) == ""
    with pytest.raises(InputError, match=rf"{name} cannot be read .*CRC.*remove the folder {made} to resume"):  # noqa: SIM117
        with checkpoint_integrity.explain_damage(made, tmp_path):
            raise RuntimeError("whatever torch says")


def test_where_none_is_left_it_begins_again(
    whole: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = shutil.copytree(at(whole("torch"), 5).parent, tmp_path / "run")
    code = json.loads((run / "step-000005" / checkpoint.FACTS).read_text())["code"]
    for path in run.glob("step-*"):
        zeros(last(path), 0, 8)
    assert checkpoint.checkpoint_to_resume(run, code, "", STEPS) is None and len(list(run.glob("damaged-step-*"))) == 3
    assert "3 of 3 checkpoints cannot be read: training goes on from its beginning" in caplog.text
