"""How llama.cpp is made: a failed build leaves nothing, and what another folder holds is never removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.stages.compress import gguf_support, gguf_tools
from tests.unit.stages.compress.conftest import needs_llama


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
    (old / "__init__.py").touch()
    assert gguf_tools.main(["--folder", str(tmp_path / "gguf")]) == 1
    assert "error: pip download failed, status 1: " in capsys.readouterr().err
    assert old.is_dir() and not list(tmp_path.glob("*.part"))


@needs_llama
def test_what_is_there_is_not_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert gguf_tools.main([]) == 0
    assert (
        f"llama.cpp of llama_cpp_python {gguf_support.VERSION} is in {gguf_support.TOOLS.folder().absolute()} ("
        in capsys.readouterr().out
    )
    gguf_tools.check_library(gguf_support.TOOLS.folder())
