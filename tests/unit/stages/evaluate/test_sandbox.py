"""Programs of models: HumanEval's own solutions pass, and nothing that a program does but the right values makes it pass, or harms."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.formats.public_tasks.presets import PRESETS, item_file_names
from crawl2llm.formats.public_tasks.rows import rows_in_layout, usable_files
from crawl2llm.formats.public_tasks.task_files import TaskFiles
from crawl2llm.stages.evaluate import sandbox
from crawl2llm.stages.evaluate.sandboxed_program import ENDED

DATA = Path(os.environ.get("CRAWL2LLM_DATA", "data"))  # see CONTRIBUTING.md
TEST = "def check(candidate):\n    assert candidate(2) == 3\n    assert candidate([1, 2]) == 3\n"


@pytest.fixture(autouse=True, scope="module")
def _works() -> None:
    try:
        sandbox.check_sandbox(("humaneval",))
    except InputError as error:
        pytest.skip(str(error))


def verdict(program: str) -> tuple[bool, str | None]:
    found = sandbox.run_tests(program, "f", "", TEST)
    return found["right"], found["error"]


def test_right_values_pass() -> None:
    assert verdict("def f(x):\n    return 3") == (True, None)
    assert verdict("import numpy\ndef f(x):\n    print('right' * 9)\n    return numpy.sum([1, 2])") == (True, None)
    assert verdict("def f(x):\n    return x + 1") == (False, "TypeError")
    assert verdict("def f(x):\n    return 4") == (False, "AssertionError")
    assert verdict("def f(x)\n    return 3") == (False, "SyntaxError")
    assert verdict("def g(x):\n    return 3") == (False, "KeyError")


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import sys\ndef f(x):\n    sys.exit(0)", "SystemExit"),
        ("import os\ndef f(x):\n    os._exit(0)", ENDED),
        ("import os\nos.kill(os.getpid(), 9)", ENDED),
        ("import ctypes\nctypes.string_at(0)", ENDED),
        ("def check(candidate):\n    pass\ndef f(x):\n    return 1", "AssertionError"),
        ("class Any(int):\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return Any(1)", "AssertionError"),
        ("class Any:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return Any()", "AssertionError"),
        (
            "import os\nfor number in range(3, 32):\n    try:\n        os.write(number, b'{\"right\": true, \"error\": null}\\n')\n"
            "    except OSError:\n        pass\ndef f(x):\n    return 1",
            "Exception",
        ),
        ("def f(x):\n    values = []\n    values.append(values)\n    return values", "RecursionError"),
        ("def f(x):\n    return 'x' * 10**7", ENDED),
    ],
)  # fmt: skip
def test_success_cannot_be_faked(program: str, error: str) -> None:
    assert verdict(program) == (False, error)


def test_nothing_outside_is_read_or_written(tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("secret")
    for path in (secret, Path("/etc/passwd"), Path("/proc/self/status"), Path.home() / ".profile"):
        assert verdict(f"open({str(path)!r})\ndef f(x):\n    return 3") == (False, "FileNotFoundError")
    folders = [str(tmp_path), "/", "/tmp", "/dev", "/usr"]  # noqa: S108
    program = (
        f"for folder in {folders}:\n    try:\n        open(folder + '/made', 'w')\n    except OSError:\n        continue\n"
        "    raise ValueError\ndef f(x):\n    return 3"
    )
    assert verdict(program) == (True, None)
    assert list(tmp_path.iterdir()) == [secret]


def test_no_network_and_no_processes() -> None:
    assert verdict("import socket\nsocket.create_connection(('192.0.2.1', 80), 5)\ndef f(x):\n    return 3")[0] is False
    for call in ("os.fork()", "os.posix_spawn('/bin/true', ['true'], {})", "subprocess.run(['true'])"):
        assert verdict(f"import os, subprocess\nwhile True:\n    {call}") == (False, "PermissionError")
    threads = "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()"
    assert verdict(threads) == (False, "RuntimeError")


def test_memory_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict("def f(x):\n    return len(bytearray(2 << 30))") == (False, "MemoryError")
    assert verdict("print('x' * (2 << 30))") == (False, "MemoryError")
    assert verdict("while True:\n    pass") == (False, ENDED)
    monkeypatch.setattr(sandbox, "SECONDS", 2)
    begin = time.monotonic()
    assert verdict("import time\ntime.sleep(600)") == (False, ENDED)
    assert time.monotonic() - begin < 30


def test_queues_of_messages_hold_no_memory_beside_the_limits() -> None:
    program = (
        "import ctypes\nif ctypes.CDLL(None).msgget(0, 0o1600) >= 0:\n    raise ValueError\ndef f(x):\n    return 3"
    )
    assert verdict(program) == (True, None)


def test_tests_that_do_not_run_are_named() -> None:
    with pytest.raises(InputError, match="the tests do not run: NameError: name 'absent' is not defined"):
        sandbox.run_tests("def f(x):\n    return 3", "f", "", "absent\ndef check(candidate):\n    pass")


def test_a_machine_without_bubblewrap_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = sandbox.check_sandbox.__wrapped__  # what it found before is not asked
    monkeypatch.setenv("PATH", str(tmp_path))
    check(())
    with pytest.raises(
        InputError, match=r"evaluate.public.presets has 'humaneval', .* has no bwrap: install it .*apt install"
    ):
        check(("humaneval",))
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(InputError, match=r"must be allowed to make user namespaces: .*No permissions to create"):
        check(("humaneval",))


@pytest.mark.slow
def test_solutions_of_humaneval_pass() -> None:
    if not (DATA / "eval").is_dir():
        pytest.skip(f"{DATA / 'eval'} is not here; set CRAWL2LLM_DATA")
    preset = PRESETS["humaneval"]
    names = item_file_names(preset)
    rows = rows_in_layout(usable_files(TaskFiles([str(DATA / "eval")], names).files_named(names), preset), preset)

    def passes(row: dict[str, str]) -> bool:
        program = row["prompt"] + row["canonical_solution"]
        return bool(sandbox.run_tests(program, row["entry_point"], row["prompt"], row["test"])["right"])

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(passes, rows)) == [True] * 164
