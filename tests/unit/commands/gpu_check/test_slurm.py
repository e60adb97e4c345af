"""What gpu-check asks SLURM for, and how it follows the job."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from crawl2llm.commands.gpu_check import command, slurm
from crawl2llm.core.errors import InputError
from crawl2llm.core.retries import SlurmError
from crawl2llm.core.root import ROOT


def options_of(*words: str) -> list[str]:
    return slurm.sbatch_options(command.argument_parser().parse_args(["--slurm", *words]))


def test_a_job_asks_for_what_the_profile_says() -> None:
    assert options_of("--nodes", "2", "--sbatch=--qos=debug --gres=gpu:2") == [
        "--partition=h100", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=48", "--mem=480000M", "--time=15", "--gres=gpu:h100:4",
        "--job-name=gpu-check", "--qos=debug", "--gres=gpu:2",
    ]  # fmt: skip
    assert options_of("--tiny")[0] == "--partition=cpu" and not any("gres" in option for option in options_of("--tiny"))
    assert "--gres=gpu:h100:8" in options_of("--processes", "8")


def test_what_the_profile_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 9 GPUs h100 on each of 1 nodes"):
        options_of("--processes", "9")
    with pytest.raises(InputError, match=r"--profile .*nowhere.* does not exist"):
        options_of("--profile", str(tmp_path / "nowhere"))
    shutil.copytree(ROOT / "profiles/slurm", tmp_path / "site")
    path = tmp_path / "site/config.yaml"
    path.write_text(path.read_text().replace("  gpus: 4 ", "  cards: 4 "))
    with pytest.raises(InputError, match="has no gpus under __variables__"):
        options_of("--profile", str(tmp_path / "site"))


def test_the_job_runs_the_same_command_without_what_submits_it() -> None:
    line = slurm.job_command(
        ["--slurm", "--tiny", "--nodes", "2", "--sbatch=--qos=a b", "--only", "links", "--folder", "a b"]
    )
    words = shlex.split(line.split(";")[0])
    assert words[0] == f"{slurm.JOB_VARIABLE}=1"
    assert words[3:] == ["crawl2llm.commands.gpu_check.command", "--tiny", "--only", "links", "--folder", "a b"]


def test_a_job_submits_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(slurm.JOB_VARIABLE, "1")
    monkeypatch.setattr(slurm, "ask_once", None)
    monkeypatch.setattr(command, "check_machine", lambda *_: iter([]))
    assert command.main(["--slurm", "--nodes", "2", "--tiny"]) == 0


def test_the_log_is_shown_and_its_last_line_is_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("| a |\n| b |\ngpu-check ended with status 1\n")
    assert slurm.follow("7", log) == 1
    assert capsys.readouterr().out == "| a |\n| b |\n"


def test_a_job_that_is_gone_without_a_result_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: str) -> str:
        raise SlurmError("Invalid job id specified")

    monkeypatch.setattr(slurm, "ask_slurm", refuse)
    for name in ("POLL", "ASK", "LATE"):
        monkeypatch.setattr(slurm, name, 0.01)
    with pytest.raises(InputError, match="job 7 has ended without a result"):
        slurm.follow("7", tmp_path / "log")


def test_ctrl_c_cancels_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(job: str, log: Path) -> int:
        raise KeyboardInterrupt

    calls: list[tuple[str, ...]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(slurm.signal, "signal", lambda *_: None)
    monkeypatch.setattr(slurm, "ask_once", lambda *words: "7;cluster\n")
    monkeypatch.setattr(slurm, "ask_slurm", lambda *words: calls.append(words))
    monkeypatch.setattr(slurm, "follow", stop)
    assert command.main(["--slurm"]) == 130
    assert calls == [("scancel", "7")] and "job 7 is cancelled" in capsys.readouterr().err


def test_without_slurm_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYTHONPATH", "")
    assert command.main(["--slurm"]) == 1
    assert "error: SLURM does not take the job: sbatch is not installed here" in capsys.readouterr().err
