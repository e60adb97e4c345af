"""How tools are compiled: what is lacking is named, what a build says, and with how many compilers."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from crawl2llm.chain import tool_builds
from crawl2llm.core import free_memory
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError


def test_a_missing_compiler_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no C compiler \(cc, gcc, clang\): install one .*build-essential.*module load gcc"
    ):
        tool_builds.check_compilers({"PATH": str(tmp_path)}, "make it")
    (tmp_path / "cc").touch(mode=0o755)
    with pytest.raises(InputError, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\)"):
        tool_builds.check_compilers({"PATH": str(tmp_path)}, "make it")
    with pytest.raises(InputError, match=r"no C\+\+ compiler \(icpx\): .* or name it in CXX"):
        tool_builds.check_compilers({"PATH": str(tmp_path), "CXX": "icpx -O3"}, "make it")
    (tmp_path / "c++").touch(mode=0o755)
    tool_builds.check_compilers({"PATH": str(tmp_path)}, "make it")


def test_a_build_says_how_far_it_is_and_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Into(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    monkeypatch.setattr(log, "handlers", [Into()])
    monkeypatch.setattr(log, "level", logging.INFO)
    monkeypatch.setattr(tool_builds, "PROGRESS_SECONDS", 0.0)
    lines = [
        "[3/12] Building CXX object a.o",
        "x.cpp:7:1: error: no such thing",
        "[ 50%] Building C object b.o",
        "done",
    ]
    code = f"import sys; print({chr(10).join(lines)!r}); sys.exit(2)"
    with pytest.raises(InputError, match=r"failed, status 2:\n  x.cpp:7:1: error: no such thing$"):
        tool_builds.run_command([sys.executable, "-c", code], os.environ)
    assert [line.partition(",")[0] for line in said] == ["compiling: 25 %", "compiling: 50 %"]
    with pytest.raises(InputError, match=r"status 1:\n  nothing more$"):
        tool_builds.run_command([sys.executable, "-c", "print('nothing more'); exit(1)"], os.environ)


def test_flags_of_the_caller_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-march=native would be an illegal instruction on another node."""
    monkeypatch.setenv("CXXFLAGS", "-march=native")
    for name in ("cmake", "make"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = tool_builds.build_environment(tmp_path / "programs")
    assert "CXXFLAGS" not in found and "CMAKE_GENERATOR" not in found
    (tmp_path / "ninja").touch(mode=0o755)
    assert tool_builds.build_environment(tmp_path / "programs")["CMAKE_GENERATOR"] == "Ninja"
    assert 1 <= int(found["CMAKE_BUILD_PARALLEL_LEVEL"]) <= tool_builds.JOBS


def test_as_many_compilers_as_the_memory_of_this_process_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its control group, not of the machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    for free, jobs in ((3 * tool_builds.MEMORY + 1, 3), (0, 1), (99 * tool_builds.MEMORY, 8)):
        monkeypatch.setattr(free_memory, "available_bytes", lambda free=free: free)
        assert tool_builds.compiler_count() == jobs
