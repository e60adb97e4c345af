"""No test sees, or leaves, a file in the working directory: see tests/conftest.py and tests/__main__.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crawl2llm.core.root import ROOT
from tests.__main__ import leftovers, written

TESTS = """
import os, pytest
from pathlib import Path

@pytest.fixture(scope="session")
def entries():
    return sorted(os.listdir())

@pytest.fixture(scope="module")
def writes(entries):
    Path("of-a-fixture").mkdir()

def test_sees_nothing(entries):
    assert entries == os.listdir() == []

def test_writes(writes):
    Path("of-a-test").write_text("")

def test_sees_nothing_after_it(entries):
    assert os.listdir() == []

def test_goes_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("")

def test_is_back():
    assert os.listdir() == []

def test_removes_its_folder(tmp_path):
    os.chdir(tmp_path)
    tmp_path.rmdir()

def test_is_back_again():
    assert os.listdir() == []
"""


def test_every_test_and_fixture_starts_in_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "test_all.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "-rA",
    ]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CRAWL2LLM_TESTS_"))
    }
    done = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "base"), "test_all.py"],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "7 passed, 1 error" in done.stdout, done.stdout
    assert "test_writes wrote into the working directory: of-a-fixture, of-a-test" in done.stdout
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == []


def test_what_tests_leave_in_the_repository_is_named(tmp_path: Path) -> None:
    for name in ("results/main/a.json", "logs/x.log", "scripts/a.py", ".venv/lib", "tests/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    before = written(tmp_path)
    assert leftovers(before, written(tmp_path)) == []
    (tmp_path / ".venv/more").write_text("2")
    (tmp_path / "tests/__pycache__/b.pyc").write_text("2")
    (tmp_path / "scripts/a.py").write_text("edited meanwhile")
    assert leftovers(before, written(tmp_path)) == []
    (tmp_path / "results/main/a.json").write_text("22")
    (tmp_path / "logs/x.log").unlink()
    (tmp_path / "out.parquet").write_text("3")
    assert leftovers(before, written(tmp_path)) == ["logs/x.log", "out.parquet", "results/main/a.json"]
