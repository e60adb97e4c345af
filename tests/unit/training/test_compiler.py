"""A compiler that torch.compile needs: the one here works, and each thing that can be missing is named."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.training import compiler


def has_headers() -> bool:
    return Path(sysconfig.get_path("include"), "Python.h").is_file()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.skipif(not has_headers(), reason="no Python.h")
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_compiler_here_will_do(plain: None, device: str) -> None:
    compiler.check_compiler(device)


@pytest.mark.parametrize(("device", "expected"), [("cuda", "gcc, clang; CC is not set"), ("cpu", r"g\+\+; CXX is not")])
def test_no_compiler(plain: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, expected: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"pretrain.train.compile_layers is true, and on .* no compiler .{expected}"):
        compiler.check_compiler(device)


def test_a_compiler_that_is_named_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -O2")
    with pytest.raises(InputError, match="CC is 'no-such-cc', which is not there"):
        compiler.check_compiler("cuda")


def test_no_headers(plain: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(InputError, match=f"Python's headers are missing .{tmp_path}/Python.h"):
        compiler.check_compiler("cpu")


def test_a_compiler_that_fails(plain: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It lacks a header of the C library, as gcc without libc6-dev does."""
    (tmp_path / "Python.h").write_text("#include <no-such-header.h>\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(InputError, match=r"does not compile a program with Python.h: .*no-such-header"):
        compiler.check_compiler("cpu")


def test_jobs_share_what_was_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the run's folder, apart for each kind of processor; unless a person has a place for it."""
    monkeypatch.delenv(compiler.CACHE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiler, "PROCESSOR", tmp_path / "cpuinfo")
    places = []
    for text in (
        "model name: A\nflags: sse avx2\nMHz: 1",
        "model name: A\nflags: sse avx2\nMHz: 2",
        "model name: B\nflags: sse",
    ):
        compiler.PROCESSOR.write_text(text)
        (place,) = compiler.cache_variables().values()
        places.append(Path(place))
    compiler.PROCESSOR.unlink()  # no Linux
    places.append(Path(compiler.cache_variables()[compiler.CACHE_VARIABLE]))
    assert places[0] == places[1] and len(set(places)) == 3
    assert {place.parent for place in places} == {tmp_path / ".cache/compiled"}
    monkeypatch.setenv(compiler.CACHE_VARIABLE, "elsewhere")
    assert compiler.cache_variables() == {}
