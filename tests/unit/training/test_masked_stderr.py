"""What processes print to stderr reaches terminal and logs without secrets, also from libraries, threads and other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm.core import console, secret_masking
from crawl2llm.core.root import ROOT

VALUE = "planted-S3cret-value-42"
URL = "https://user:pass@example.org/x?session=abcdef1234"
# A rank: a program of another language, then Python's own traceback, that a library's error brings the secret to.
RANK = """
import os
os.write(2, f"raw: {os.environ['JUDGE_TOKEN']} \\xff\\n".encode("latin-1"))
raise RuntimeError(f"401 for {os.environ['JUDGE_TOKEN']} at " + os.environ["AT"])
"""
TASK = """
import logging, sys, threading, warnings
from crawl2llm.core import console, secret_masking
console.set_up_logging("a.step")
value = secret_masking.environment_secret("NAMED_ODDLY", "here")
warnings.warn(f"a library warns of {value}")
logging.getLogger("aiohttp").error("a library logs %s", value)
thread = threading.Thread(target=lambda: 1 / 0 if value else 0, name=value)
thread.start(); thread.join()
print("half a line " + value[:12], end="", file=sys.stderr); sys.stderr.flush()
print(value, file=sys.stderr)
print("last", value, end="", file=sys.stderr)
"""


def of(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_rank_of_a_training(tmp_path: Path) -> None:
    """Its lines, and what the launcher says of its end on the terminal and in the log."""
    log = tmp_path / "train.log"
    code = f"""
import os, sys
from crawl2llm.training import launch, processes
say = launch.failure_reporter("crawl2llm.stages.pretrain.train", ["--log", {str(log)!r}])
raise SystemExit(processes.supervise([([sys.executable, "-c", {RANK!r}], dict(os.environ))], say=say))
"""
    said = of(code, JUDGE_TOKEN=VALUE, AT=URL)
    for text in (said, log.read_text()):
        assert VALUE not in text and "abcdef1234" not in text and "user:pass" not in text
        assert "RuntimeError: 401 for *** at https://***@example.org/x?session=***" in text
    assert "raw: *** " in said


def test_what_libraries_and_threads_print() -> None:
    said = of(TASK, NAMED_ODDLY=VALUE)
    assert VALUE[:12] not in said
    for text in ("warns of ***", "a library logs ***", "ZeroDivisionError", "half a line ***", "last ***"):
        assert text in said


def test_a_stream_is_what_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(secret_masking, "_known_secrets", {VALUE})
    with (tmp_path / "out").open("w+") as file:
        stream = console.MaskedStream(file)
        assert stream.fileno() == file.fileno() and not stream.isatty()
        assert stream.write("a\nb") == 3
        stream.writelines(["c\n", "d"])
        assert (tmp_path / "out").read_text() in ("", "a\nbc\n")
        stream.flush()
        assert (tmp_path / "out").read_text() == "a\nbc\nd"
