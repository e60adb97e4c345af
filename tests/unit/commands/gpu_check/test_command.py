"""What gpu-check makes of processes that work, die and hang."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crawl2llm.commands.gpu_check import checks, command
from crawl2llm.commands.gpu_check.lines import OK, SKIPPED, WRONG, Line
from crawl2llm.core.root import CODE_FOLDER, ROOT

Run = Callable[..., list[Line]]
WORKS = {"line": {"check": "products", "what": "bf16", "measured": "1 TFLOP/s"}}


def test_the_table_is_not_cut_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far it is goes to a terminal alone."""
    monkeypatch.setattr(command, "check_machine", lambda *_: iter([Line("products", "bf16")]))
    args = command.argument_parser().parse_args(["--folder", str(tmp_path)])
    command.run_checks(args, ["products"], command.Start(1))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command.run_checks(args, ["products"], command.Start(1))
    assert " s of at most 600, 1 line, " in capsys.readouterr().err


@pytest.fixture
def run_worker(tmp_path: Path) -> Run:
    """What comes of a process that writes these events and then runs `last`, and began `age` seconds ago; and the checks that are left."""

    def run(
        events: list[dict[str, object]], last: str, left: list[str], seconds: float = 60, age: float = 0
    ) -> list[Line]:
        path, log = tmp_path / "events", tmp_path / "log"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        with log.open("wb") as stream:
            process = subprocess.Popen([sys.executable, "-c", last], stderr=stream)
        group = command.Group([process], [log], path, began=time.monotonic() - age)
        return list(command.run_group(group, left, time.monotonic() + seconds, tmp_path / "kept"))

    return run


def test_lines_come_as_they_are_written(run_worker: Run) -> None:
    left = ["products"]
    lines = run_worker([{"begin": "products"}, WORKS, {"end": "products"}], "pass", left)
    assert lines == [Line("products", "bf16", "1 TFLOP/s")] and left == []


def test_a_check_that_dies_is_wrong_and_the_next_are_left(run_worker: Run, tmp_path: Path) -> None:
    left = ["products", "memory"]
    (line,) = run_worker([{"begin": "products"}], "raise SystemExit('no memory')", left)
    assert (line.check, line.verdict) == ("products", WRONG) and line.note.endswith("status 1: no memory")
    assert left == ["memory"] and "no memory" in (tmp_path / "kept").read_text()


def test_a_check_that_is_to_die_is_not_wrong(run_worker: Run) -> None:
    left = ["save", "load"]
    assert run_worker([{"begin": "save"}], "import os; os.kill(os.getpid(), 9)", left) == []
    assert left == ["load"]


def test_a_check_that_hangs_is_ended(run_worker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.CHECKS, "products", replace(checks.CHECKS["products"], seconds=0))
    (line,) = run_worker([{"begin": "products"}], "import time; time.sleep(60)", ["products"])
    assert line.verdict == WRONG and "hangs" in line.note


def test_the_end_of_a_long_check_is_no_hang(run_worker: Run) -> None:
    """A process has time to end after its last check, however long that took."""
    assert run_worker([{"end": "steps"}], "import time; time.sleep(0.3)", [], age=400) == []


def test_what_there_is_no_time_for_is_skipped(run_worker: Run) -> None:
    (line,) = run_worker([{"begin": "products"}], "import time; time.sleep(60)", ["products"], seconds=0)
    assert line.verdict == SKIPPED


def test_processes_that_cannot_start_are_not_started_again(run_worker: Run) -> None:
    left = ["products", "memory"]
    (line,) = run_worker([], "raise SystemExit('no torch')", left)
    assert line.verdict == WRONG and "no torch" in line.note and left == []


def test_the_last_words_are_not_those_of_srun(run_worker: Run) -> None:
    last = r"raise SystemExit('no memory\nsrun: error: n1: task 0: Exited with exit code 1')"
    (line,) = run_worker([{"begin": "products"}], last, ["products"])
    assert line.note.endswith("status 1: no memory")


def test_a_job_of_several_nodes_starts_its_processes_by_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "n1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    assert command.job_nodes() == 2
    ((words, _),) = command.Start(4, command.job_nodes()).commands(tmp_path, ["events"])
    assert words[:3] == ["srun", "--nodes", "2"] and "crawl2llm.commands.gpu_check.node" in words
    assert words[words.index("crawl2llm.commands.gpu_check.node") + 1 :][:3] == ["2", "4", "n1"]
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert command.job_nodes() == 1, "srun has started this: it is one of several"


def test_without_a_gpu_it_says_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.devices, "visible_gpus", lambda: [])
    assert command.main([]) == 1
    assert "--tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json", "nope/a.json"], "error: --json nope/a.json is no file that you can write"),
        (["--log", "."], "error: --log . is no file that you can write"),
        (["--folder", "nope"], "error: --folder nope is no folder that you can write to"),
        (["--slurm", "--folder", "nope"], "error: --folder nope"),
        (["--nodes", "2"], "error: --nodes is of the job that --slurm submits"),
        (["--processes", "0"], "error: argument --processes: '0' is no number from 1"),
        (["--slur"], "error: unrecognized arguments: --slur"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_starts(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("check_machine", "start_group"):
        monkeypatch.setattr(command, name, None)
    monkeypatch.setattr(command.slurm, "run_as_job", None)
    monkeypatch.chdir(tmp_path)
    try:
        status = command.main(["--tiny", *options])
    except SystemExit as ended:  # of argparse
        status = int(ended.code or 0)
    assert status == 2 and words in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_every_check_has_a_function() -> None:
    assert all(callable(checks.function_of(check)) for check in checks.CHECKS.values())


BARE = """
import importlib, sys
import torch, transformers, transformers.models.llama.modeling_llama
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pydantic", "pyarrow", "xxhash", "zstandard", "deepspeed", "psutil", "snakemake"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
for name in list(sys.modules):
    if name.split(".")[0] in ("pydantic", "xxhash", "zstandard"):
        del sys.modules[name]
from crawl2llm.commands.gpu_check import checks, command, worker
from crawl2llm.commands.gpu_check import node
for check in checks.CHECKS.values():
    checks.function_of(check)
"""


def test_it_imports_torch_and_transformers_alone() -> None:
    """So that it can be carried to a machine that has nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", BARE], cwd=ROOT / CODE_FOLDER, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_two_processes_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they exchange, and the names of both."""
    options = ["--tiny", "--folder", str(tmp_path), "--json", str(tmp_path / "a.json"), "--processes", "2"]
    assert command.main([*options, "--only", "memory", "links"]) == 0, capsys.readouterr().out
    by_name = {line["what"]: line.get("values", {}) for line in json.loads((tmp_path / "a.json").read_text())["lines"]}
    assert by_name["copy on the device"]["uuids"] == ["rank 0", "rank 1"]
    assert by_name["all-reduce within a node, 2 processes, 1 MiB"]["bus_bytes_per_second"] > 0
    assert by_name["from each process to the next within a node"]["bytes_per_second"].keys() == {"0-1"}
    assert by_name["gloo's interface"]["ways"] == ["lo 127.0.0.1"]


@pytest.mark.slow
def test_a_tiny_run_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Saving, the death of the process and loading among it."""
    status = command.main(["--tiny", "--folder", str(tmp_path), "--json", str(tmp_path / "a.json"), "--processes", "1"])
    shown, body = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    assert status == 0, shown
    by_check = {line["check"] for line in body["lines"]}
    assert by_check == {
        "machine", "products", "memory", "links", "folder", "attention", "numerics", "steps", "peers", "sampling", "save", "load",
    }  # fmt: skip
    assert all(line["verdict"] in (OK, SKIPPED) for line in body["lines"]) and body["tiny"]
    assert "| load | first loss after the load | ±0.0e+00 nats" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]  # nothing is left
