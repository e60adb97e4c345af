"""How llama.cpp is made: what is lacking is named, a failed build leaves nothing, and what another folder holds is never removed."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import gguf_support, gguf_tools
from crawl2llm.training import memory
from tests.unit.stages.compress.conftest import needs_llama


def test_a_missing_compiler_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no C compiler \(cc, gcc, clang\): install one .*build-essential.*module load gcc"
    ):
        gguf_tools.check_build(tmp_path / "new", {"PATH": str(tmp_path)})
    (tmp_path / "cc").touch(mode=0o755)
    with pytest.raises(InputError, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\)"):
        gguf_tools.check_build(tmp_path / "new", {"PATH": str(tmp_path)})
    with pytest.raises(InputError, match=r"no C\+\+ compiler \(icpx\): .* or name it in CXX"):
        gguf_tools.check_build(tmp_path / "new", {"PATH": str(tmp_path), "CXX": "icpx -O3"})
    (tmp_path / "c++").touch(mode=0o755)
    gguf_tools.check_build(tmp_path / "new", {"PATH": str(tmp_path)})


def test_a_folder_of_something_else_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").touch()
    assert gguf_tools.main(["--folder", str(tmp_path)]) == 1
    assert f"{tmp_path} is there and holds no llama.cpp: CRAWL2LLM_GGUF has to name a folder" in capsys.readouterr().err
    assert (tmp_path / "precious").exists()


def test_without_a_network_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "CONFIG_FILE": os.devnull,
        "INDEX_URL": "http://127.0.0.1:9/simple",
        "RETRIES": "0",
        "CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    old = tmp_path / "gguf/site/llama_cpp"  # of an earlier version
    old.mkdir(parents=True)
    assert gguf_tools.main(["--folder", str(tmp_path / "gguf")]) == 1
    assert "error: pip download failed, status 1: " in capsys.readouterr().err
    assert old.is_dir() and not list(tmp_path.glob("*.part"))


def test_a_build_says_how_far_it_is_and_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Into(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    monkeypatch.setattr(log, "handlers", [Into()])
    monkeypatch.setattr(log, "level", logging.INFO)
    monkeypatch.setattr(gguf_tools, "PROGRESS_SECONDS", 0.0)
    lines = [
        "[3/12] Building CXX object a.o",
        "x.cpp:7:1: error: no such thing",
        "[ 50%] Building C object b.o",
        "done",
    ]
    code = f"import sys; print({chr(10).join(lines)!r}); sys.exit(2)"
    with pytest.raises(InputError, match=r"failed, status 2:\n  x.cpp:7:1: error: no such thing$"):
        gguf_tools.run_command([sys.executable, "-c", code], os.environ)
    assert [line.partition(",")[0] for line in said] == ["compiling: 25 %", "compiling: 50 %"]
    with pytest.raises(InputError, match=r"status 1:\n  nothing more$"):
        gguf_tools.run_command([sys.executable, "-c", "print('nothing more'); exit(1)"], os.environ)


def test_flags_of_the_caller_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-march=native would be an illegal instruction on another node."""
    monkeypatch.setenv("CXXFLAGS", "-march=native")
    for name in ("cmake", "make"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = gguf_tools.build_environment(tmp_path / "programs")
    assert "CXXFLAGS" not in found and "CMAKE_GENERATOR" not in found
    (tmp_path / "ninja").touch(mode=0o755)
    assert gguf_tools.build_environment(tmp_path / "programs")["CMAKE_GENERATOR"] == "Ninja"
    assert 1 <= int(found["CMAKE_BUILD_PARALLEL_LEVEL"]) <= gguf_tools.JOBS


def test_as_many_compilers_as_the_memory_of_this_process_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its control group, not of the machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    for free, jobs in ((3 * gguf_tools.MEMORY + 1, 3), (0, 1), (99 * gguf_tools.MEMORY, 8)):
        monkeypatch.setattr(memory, "available_bytes", lambda free=free: free)
        assert gguf_tools.compiler_count() == jobs


@needs_llama
def test_what_is_there_is_not_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert gguf_tools.main([]) == 0
    assert (
        f"llama.cpp of llama_cpp_python {gguf_support.VERSION} is in {gguf_support.tools_folder().absolute()} ("
        in capsys.readouterr().out
    )
    gguf_tools.check_library(gguf_support.tools_folder())
