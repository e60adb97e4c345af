"""KenLM's programs as they are called: one that hangs is ended, with the program and the file in the error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.filters.quality import tools


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a program of each name writes its process id down and hangs: no input makes KenLM's own do that at will."""
    for name in tools.PROGRAMS:
        (tmp_path / name).write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / tools.VERSION_FILE).write_text(tools.VERSION)
    monkeypatch.setenv(tools.KENLM.variable, str(tmp_path))
    return tmp_path


def test_a_program_that_hangs_is_ended(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SECONDS", 1)
    text, model = programs / "lines.txt", programs / "de.arpa.bin"
    text.write_text("a line\n")
    model.write_bytes(b"no model")
    with pytest.raises(InputError, match=r"KenLM's query did not come to an end in 1 seconds with .*de\.arpa\.bin"):
        next(tools.line_log_probabilities(model, text, programs / "out"))
    with pytest.raises(InputError, match=r"KenLM's lmplz did not come to an end in 1 seconds with .*lines\.txt"):
        tools.train_model(text, programs / "model.bin", 3, [], 100)
    with pytest.raises(ProcessLookupError):
        os.kill(int((programs / "pid").read_text()), 0)


def test_a_large_file_has_more_time(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SECONDS", 0)
    text, model = programs / "lines.txt", programs / "de.arpa.bin"
    text.write_text("")
    model.write_bytes(bytes(2 * tools.BYTES_PER_SECOND))
    with pytest.raises(InputError, match="in 2 seconds"):
        next(tools.line_log_probabilities(model, text, programs / "out"))
