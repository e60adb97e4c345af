"""The command for people: every command is there, has a help with an example, and a wrong name is refused."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawl2llm import __main__
from crawl2llm.core.root import ROOT


@pytest.mark.parametrize("name", __main__.COMMANDS)
def test_every_command_has_a_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    module, _ = __main__.COMMANDS[name]
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(["--help"])
    assert ended.value.code == 0
    assert re.search(r"^examples?:$", capsys.readouterr().out, re.MULTILINE)


def test_the_list_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in __main__.COMMANDS)


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out == f"crawl2llm {written}\n"


def test_a_compiled_part_of_another_version_is_one_line(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "scripts/crawl2llm/stages/ingest/native/crawl2llm_native.pyx").open("a") as source:
        source.write("# another line\n")
    command = [sys.executable, "-m", "crawl2llm", "new", "a.yaml", "--from", "b.warc.gz"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "scripts")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.startswith("error: crawl2llm_native was built from another version")
    assert done.stderr.count("\n") == 1 and "run `make install`" in done.stderr


def test_an_unknown_command_is_refused_with_those_that_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["staus"]) == 2
    assert "allowed are" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["verify", "--help"], ["verify"]])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(words: list[str], tmp_path: object) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    options = ["--results", str(tmp_path)] if words == ["verify"] else []
    done = subprocess.run(
        [sys.executable, "-m", "crawl2llm", *words, *options],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 141 or (done.returncode == 0 and "--help" in words)  # argparse does not say
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_ctrl_c_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes: while a command is imported, too."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    for module in (interrupted, lambda _: SimpleNamespace(main=interrupted)):
        with monkeypatch.context() as patched:
            patched.setattr(__main__.importlib, "import_module", module)
            assert __main__.main(["verify"]) == 130
        assert capsys.readouterr().err == "stopped by Ctrl-C\n"
