"""Frozen runs: a whole copy of the workflow's own files, by content, and the config beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import crawl2llm_native
import pytest

from crawl2llm.core import code_snapshot
from crawl2llm.core.root import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "project"
    for name in (
        "rules/a.smk",
        "scripts/a.py",
        "scripts/__pycache__/a.pyc",
        "envs/s.yaml",
        "docs/a.md",
        "Snakefile",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_a_copy_holds_what_jobs_read_and_nothing_else(project: Path) -> None:
    copy = code_snapshot.copy_code(project)
    names = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    built = Path(crawl2llm_native.__file__).name
    assert names == ["Snakefile", "envs/s.yaml", "home", "rules/a.smk", "scripts/a.py", f"scripts/{built}"]
    assert code_snapshot.project_folder(copy) == project == code_snapshot.project_folder(project)


def test_a_run_keeps_the_compiled_part_that_it_was_started_with(project: Path) -> None:
    """`make install` meanwhile replaces the installed one."""
    copy = code_snapshot.copy_code(ROOT)
    command = [
        sys.executable,
        "-c",
        "from crawl2llm.stages.ingest import compiled; print(compiled.crawl2llm_native.__file__)",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(copy / "scripts")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).parent == copy / "scripts" and copy == code_snapshot.copy_code(copy)


def test_another_environment_has_a_compiled_part_of_its_own(project: Path) -> None:
    """What is installed here may be older than an image."""
    assert not list(code_snapshot.copy_code(ROOT, with_compiled=False).rglob("crawl2llm_native.*.so"))


def test_the_same_code_is_the_same_copy_and_an_edit_is_another(project: Path) -> None:
    first = code_snapshot.copy_code(project)
    assert code_snapshot.copy_code(project) == first
    assert code_snapshot.project_folder(code_snapshot.copy_code(first)) == project  # a run that is started from a copy
    (project / "scripts/a.py").write_text("edited")
    second = code_snapshot.copy_code(project)
    assert second != first
    assert (first / "scripts/a.py").read_text() == "scripts/a.py"
    code_snapshot.forget_others(second)
    assert [path.name for path in code_snapshot.FOLDER.iterdir()] == [second.name]


def test_every_file_of_the_project_that_a_job_needs_is_in_a_copy() -> None:
    names = {str(path.relative_to(ROOT)) for path in code_snapshot.workflow_files(ROOT)}
    assert {
        "Snakefile",
        "rules/common.smk",
        "scripts/crawl2llm/chain/command_line.py",
        "scripts/crawl2llm/filters/language/settings.py",
    } <= names
    assert {"envs/data.yaml", "scripts/crawl2llm/stages/report/style.css", "rules/report/page.rst"} <= names


def test_a_config_with_its_sources(project: Path) -> None:
    path = code_snapshot.write_config({"a": 1}, [{"main": {"00000": ["web=x"]}}, {}])
    assert json.loads(path.read_text()) == {"a": 1}
    assert path == code_snapshot.config_path({"a": 1}, [{"main": {"00000": ["web=x"]}}, {}]).absolute()
    assert code_snapshot.read_sources(code_snapshot.sources_path(path)) == [{"main": {"00000": ["web=x"]}}, {}]
    assert code_snapshot.write_config({"a": 1}, [{"main": {"00000": ["web=y"]}}, {}]) != path


@pytest.mark.parametrize("where", ["edit", "more", "compiled", "link", "lacks", "instead"])
def test_a_copy_that_came_with_the_folder_is_not_run_as_it_is(project: Path, tmp_path: Path, where: str) -> None:
    """A run's folder that somebody else gave has a copy of the right name, with other code in it."""
    folder = code_snapshot.copy_code(project)
    whole = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if where == "edit":
        (folder / "scripts/a.py").write_text("planted")
    elif where == "more":
        (folder / "sitecustomize.py").write_text("planted")
    elif where == "compiled":
        (folder / "scripts/__pycache__").mkdir()
        (folder / "scripts/__pycache__/a.cpython-311.pyc").write_bytes(b"planted")
    elif where == "link":
        (tmp_path / "a.py").write_text("scripts/a.py")
        (folder / "scripts/a.py").unlink()
        (folder / "scripts/a.py").symlink_to(tmp_path / "a.py")
    elif where == "lacks":
        (folder / "Snakefile").unlink()
    else:
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    assert code_snapshot.copy_code(project) == folder and not folder.is_symlink()
    there = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in there.items()} == whole
    assert not any(path.is_symlink() for path in there.values())
