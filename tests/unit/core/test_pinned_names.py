"""The digest of a folder is the one that a person gets by sha256sum, and says what the files are and what they are called."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.chain.config_schema import named_files
from crawl2llm.core import pinned_names
from crawl2llm.core.errors import InputError
from crawl2llm.workflow.config_checks import check_config
from tests.unit.making import folder_digest

KEY = "quality.transformers.models: edu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the Hub's cache has one: links to files elsewhere, hidden files, folders."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/1").write_text("weights")
    made = tmp_path / "a model's"
    (made / "deep").mkdir(parents=True)
    (made / ".cache").mkdir()
    for name in ("config.json", "deep/b", "deep.txt", "é 1", "B", ".cache/metadata", ".gitattributes"):
        (made / name).write_text(name)
    (made / "model.safetensors").symlink_to(tmp_path / "blobs/1")
    return made


def test_a_folder_has_the_digest_that_the_command_prints(folder: Path) -> None:
    digest = folder_digest(folder)
    assert pinned_names.verified_path(f"{folder}#sha256={digest.upper()}", KEY) == str(folder)
    (folder / ".cache/metadata").write_text("fetched at another time")
    assert pinned_names.verified_path(f"{folder}#sha256={digest}", KEY) == str(folder)


@pytest.mark.parametrize("change", ["content", "name", "more", "less", "elsewhere"])
def test_another_folder_is_refused(folder: Path, change: str) -> None:
    digest = folder_digest(folder)
    if change == "content":
        (folder / "config.json").write_text("other")
    elif change == "name":
        (folder / "B").rename(folder / "C")
    elif change == "more":
        (folder / "deep/tokenizer.json").write_text("")
    elif change == "less":
        (folder / "deep/b").unlink()
    else:
        (folder.parent / "blobs/1").write_text("other weights")
    with pytest.raises(
        InputError, match=f"{folder_digest(folder)}, and {digest} is named: it is another folder"
    ) as error:
        pinned_names.verified_path(f"{folder}#sha256={digest}", KEY)
    assert str(error.value).startswith(KEY)


def test_an_error_says_how_the_digest_is_computed(folder: Path) -> None:
    with pytest.raises(InputError) as error:
        pinned_names.verified_path(f"{folder}#sha256=12ab", KEY)
    assert pinned_names.folder_command(str(folder)) in str(error.value)


def test_a_name_that_could_pass_for_two_files_is_refused(folder: Path) -> None:
    (folder / f"x\n{hashlib.sha256().hexdigest()}  y").write_text("")
    with pytest.raises(InputError, match="no name has a line end or a backslash"):
        pinned_names.verified_path(f"{folder}#sha256={'0' * 64}", KEY)


@pytest.mark.parametrize("target", ["deep", ".", "..", ".cache"])
def test_links_are_counted_as_the_command_does_or_refused(folder: Path, target: str) -> None:
    """A folder has its own name and that of a link; a hidden one is counted by the link alone."""
    (folder / "deep/link").symlink_to(folder / target)
    named = f"{folder}#sha256={folder_digest(folder)}"
    if target == ".cache":
        assert pinned_names.verified_path(named, KEY) == str(folder)
    elif target == "..":
        (folder / "deep/link").unlink()
        (folder / "deep/link").symlink_to(folder.parent / "blobs")
        assert pinned_names.verified_path(f"{folder}#sha256={folder_digest(folder)}", KEY) == str(folder)
    else:
        first = folder / "deep" if target == "deep" else folder
        with pytest.raises(InputError, match=re.escape(f"{first} and {folder / 'deep/link'} are the same folder")):
            pinned_names.verified_path(named, KEY)


def test_what_is_no_file_is_not_counted(folder: Path) -> None:
    digest = folder_digest(folder)
    (folder / "broken").symlink_to("nothing")
    os.mkfifo(folder / "pipe")
    assert folder_digest(folder) == digest
    assert pinned_names.verified_path(f"{folder}#sha256={digest}", KEY) == str(folder)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"language": {"score": {"model": "{}"}}}, "language.score.model"),
        ({"language": {"compare": {"models": ["a", "{}"]}}}, "language.compare.models"),
        ({"quality": {"kenlm": {"models": [{"name": "a", "path": "{}"}]}}}, "quality.kenlm.models"),
    ],
)
@pytest.mark.parametrize("digest", ["", "abc", "0" * 65, "g" * 64])
def test_a_digest_that_is_none_is_refused_before_a_run(changes: dict[str, Any], key: str, digest: str) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        return [filled(each) for each in value] if isinstance(value, list) else value.format(f"lm#sha256={digest}")

    with pytest.raises(InputError, match=f"^{re.escape(key)} is 'lm#sha256={digest}'; after #sha256= stand the 64 hex"):
        check_config(validate(filled(changes)))


@pytest.mark.parametrize("step", ["quality.transformers", "quality.kenlm"])
def test_a_folder_is_tracked_by_its_content_with_a_digest_too(step: str) -> None:
    models = [{"name": "edu", "path": "models/edu#sha256=" + "0" * 64}]
    config = validate({"quality": {step.partition(".")[2]: {"models": models}}})
    assert list(named_files(config, step)) == [(f"{step}.models", "models/edu", "any")]
