"""finetune.train on real pairs and a small random model: it learns, repeats itself, and resumes after a kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from scripts.finetune import loss, pairs, sft, train
from scripts.finetune.template import Template
from scripts.models.load import load
from scripts.training.processes import RESUBMIT
from scripts.training.sealed import seal, synced
from scripts.workflow import cli
from scripts.workflow.config import ROOT
from scripts.workflow.manifest import Manifest, checksum

pytestmark = pytest.mark.slow  # starts trainings

CONFIG = {"max_length": tiny.CONTEXT, "epochs": 2, "batch_size": 16, "micro_batch": 16, "learning_rate": 3e-3}


def arguments(base: Path, pairs: Path, out: Path, **changes: object) -> list[str]:
    config = tiny.config("finetune.train", **{**CONFIG, **changes})
    manifest = out / "sft.manifest.json"
    given = ["--model", str(base), "--pairs", str(pairs), "--manifest", str(manifest)]
    return ["--config", config, *given, "--checkpoints", str(out / "checkpoints")]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, base_model: Path, pairs_manifest: Path) -> Path:
    """The folder of an uninterrupted run."""
    out = tmp_path_factory.mktemp("tuned")
    assert train.main(arguments(base_model, pairs_manifest, out)) == 0
    return out


def test_it_lowers_the_heldout_loss(tuned: Path) -> None:
    manifest = Manifest.read(tuned / "sft.manifest.json")
    summary = manifest.summary
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"] - 1
    assert summary["steps"] == 2 * -(-300 // 16) == len((tuned / "sft/losses.jsonl").read_text().splitlines())
    assert not [name for name in manifest.files if name.endswith((".bin", ".pt", ".pth"))]
    assert not list((tuned / "checkpoints").iterdir())
    model, tokenizer = load(tuned / "sft/model")
    assert tokenizer.eos_token_id == 0
    assert sum(p.numel() for p in model.parameters()) == summary["parameters"]


def place(options: list[str]) -> Path:
    """The folder of checkpoints of a program with these options."""
    made = cli.parser("finetune.train", "", "")
    for name in ("model", "pairs", "checkpoints"):
        made.add_argument(f"--{name}", type=Path)
    args, _ = made.parse_known_args(options)
    return cli.checkpoints(args, cli.settings("finetune.train", args.config)[0])


def broken_off(folder: Path, options: list[str], checkpoints: Path, number: signal.Signals) -> int:
    """The exit status of a program that gets a signal when its first checkpoint is there."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "scripts.finetune.train", *options]
    running = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, cwd=folder)
    end = time.monotonic() + 300  # a busy machine needs minutes to start
    while not list(checkpoints.glob(f"*/{sft.MARK}")) and running.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    running.send_signal(number)
    return running.wait()


def test_a_model_is_made_from_a_fine_tuned_one_too(
    tuned: Path, pairs_manifest: Path, tmp_path: Path, base_model: Path
) -> None:
    """Its files are those of its own name, and its manifest says which model it is made from."""
    options = arguments(tuned / "sft.manifest.json", pairs_manifest, tmp_path, epochs=0.5)
    other = [
        word.replace("sft.manifest.json", "sft2.manifest.json") if str(tmp_path) in word else word for word in options
    ]
    assert place(other) != place([*options[:2], "--model", str(base_model), *options[4:]])
    assert train.main(other) == 0
    manifest = Manifest.read(tmp_path / "sft2.manifest.json")
    assert {name.split("/")[0] for name in manifest.files} == {"sft2"} and "finetune.train sft" in manifest.inputs
    before = Manifest.read(tuned / "sft.manifest.json").summary["heldout_loss_after"]
    assert manifest.summary["heldout_loss_before"] == before


def test_two_models_of_the_same_settings_have_checkpoints_of_their_own(
    base_model: Path, pairs_manifest: Path, tmp_path: Path
) -> None:
    options = arguments(base_model, pairs_manifest, tmp_path)
    assert place(options) != place([word.replace("sft.manifest", "other.manifest") for word in options])


def test_killed_and_resumed_gives_the_same_bytes(
    tuned: Path, base_model: Path, pairs_manifest: Path, tmp_path: Path
) -> None:
    options = [*arguments(base_model, pairs_manifest, tmp_path), "--checkpoint-every", "8"]
    folder = place(options)
    assert broken_off(tmp_path, options, folder, signal.SIGKILL) == -signal.SIGKILL
    torn = folder / "checkpoint-9999"  # as a kill in the middle of a save leaves one
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half")
    whole = sft.newest(folder)
    assert whole is not None and not torn.exists()
    shutil.copytree(whole, torn)  # as a power cut leaves one: every name is there, a file's bytes are not
    (torn / "optimizer.pt").write_bytes(b"")
    assert sft.newest(folder) == whole
    assert not torn.exists()
    assert train.main([*options, "--log", str(tmp_path / "log")]) == 0
    assert "resuming from" in (tmp_path / "log").read_text()
    for name in ("sft.manifest.json", "sft/losses.jsonl", "sft/model/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tuned / name).read_bytes(), name


def test_what_other_code_finished_is_no_work_of_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the last checkpoint and the manifest, then an edit. What is not finished goes on, and says so."""

    def sealed(step: int) -> Path:
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes(b"weights")
        facts = {"code": {"scripts/a.py": "1"}, "changed": [], "step": step, "of": 20}
        seal(place, sft.MARK, facts, synced(place))
        return place

    monkeypatch.setattr(train, "code", lambda _: {"scripts/a.py": "2"})
    assert train.taking_part(tmp_path) == []
    sealed(10)
    assert train.taking_part(tmp_path) == [{"step": 10, "modules": {"scripts/a.py": ["1", "2"]}}]
    sealed(20)
    assert train.taking_part(tmp_path) == [] and sft.newest(tmp_path) is None


def test_a_gradient_that_is_not_finite_is_skipped(
    base_model: Path,
    pairs_manifest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of one process of two.

    A pair whose embedding gets an infinite gradient: the steps with it are skipped and it is named; its number is bounded.
    """
    more = ["--checkpoint-every", "8", "--processes", "2"]
    options = [*arguments(base_model, pairs_manifest, tmp_path, epochs=0.6), *more]
    supervise = train.supervise

    def poisoned(commands: Any, *rest: Any, **named: Any) -> int:
        module = {"scripts.finetune.sft": "tests.unit.finetune.poisoned"}
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "POISON": "3,10"}
        return supervise(
            [([module.get(word, word) for word in command], env | own) for command, env in commands], *rest, **named
        )

    monkeypatch.setattr(train, "supervise", poisoned)
    assert train.main([*options, "--max-skipped-steps", "1"]) == 1
    said = capfd.readouterr().err
    assert "not finite in 2 steps, the last is step 10" in said and "Traceback" not in said
    status = train.main([*options, "--max-skipped-steps", "2"])  # resumes from step 8, and knows of step 3
    said = capfd.readouterr().err
    assert status == 0 and "resuming from" in said, said
    assert "step 10: the gradient is not finite, its update is skipped (2 of at most 2); its 16 pairs" in said
    manifest = Manifest.read(tmp_path / "sft.manifest.json")
    assert manifest.summary["skipped_steps"] == [3, 10] and "2 of 12 steps" in manifest.summary["notes"][0]
    assert manifest.summary["heldout_loss_after"] < manifest.summary["heldout_loss_before"] - 0.5
    rows = [json.loads(line) for line in (tmp_path / "sft/losses.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    known = {json.loads(line)["id"] for line in (pairs_manifest.parent / "train.jsonl").read_text().splitlines()}
    for row in (rows[2], rows[9]):
        assert "loss" not in row and len(row["pairs"]) == 16 and set(row["pairs"]) <= known


@pytest.mark.parametrize(
    "processes", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)]
)
def test_warned_and_resumed_gives_the_same_bytes(
    tuned: Path, base_model: Path, pairs_manifest: Path, tmp_path: Path, processes: int
) -> None:
    """It ends with status 85 after a checkpoint of the very step, and its log is continued."""
    whole, parts = tuned, tmp_path / "parts"
    if processes > 1:  # sums differ in their last digits
        whole = tmp_path / "whole"
        assert train.main([*arguments(base_model, pairs_manifest, whole), "--processes", str(processes)]) == 0
    parts.mkdir()
    more = ["--processes", str(processes), "--checkpoint-every", "8", "--log", str(parts / "log")]
    options = [*arguments(base_model, pairs_manifest, parts), *more]
    folder = place(options)
    assert broken_off(parts, options, folder, signal.SIGUSR1) == RESUBMIT
    log = (parts / "log").read_text()
    stopped = re.search(r"stopped by a signal after step (\d+);", log)
    assert stopped and (folder / f"checkpoint-{stopped[1]}" / sft.MARK).is_file()
    assert train.main(options) == 0
    assert (parts / "log").read_text().startswith(log)
    assert f"resuming from {folder}/checkpoint-{stopped[1]}" in (parts / "log").read_text()
    for name in ("sft.manifest.json", "sft/losses.jsonl", "sft/model/model.safetensors"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name


def test_what_does_not_fit(
    base_model: Path, pairs_manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = arguments(base_model, pairs_manifest, tmp_path)
    assert train.main(arguments(base_model, pairs_manifest, tmp_path, max_length=65)) == 1
    assert "finetune.train.max_length is 65; the model's context is 64" in capsys.readouterr().err
    assert train.main([*options, "--processes", "3"]) == 1
    assert "batch_size 16 is not a multiple" in capsys.readouterr().err
    wrong = [str(base_model) if value == str(pairs_manifest) else value for value in options]
    assert train.main(wrong) == 1
    assert "must be one of 'finetune.pairs'" in capsys.readouterr().err


def derived(corpus: list[Path], folder: Path, **settings: object) -> Path:
    """The manifest of finetune.pairs under these settings."""
    out = folder / "pairs" / "manifest.json"
    config = tiny.config("finetune.pairs", **settings)
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    return out


def test_without_enough_pairs_the_base_model_is_passed_on(base_model: Path, corpus: list[Path], tmp_path: Path) -> None:
    assert train.main(arguments(base_model, derived(corpus, tmp_path, min_train=50_000), tmp_path / "out")) == 0
    manifest = Manifest.read(tmp_path / "out/sft.manifest.json")
    assert manifest.summary["trained"] is False and manifest.summary["steps"] == 0
    assert "sft was not fine-tuned, it is the model base" in manifest.summary["notes"][0]
    for path in (base_model.parent / "model").iterdir():
        assert manifest.file(f"sft/model/{path.name}").read_bytes() == path.read_bytes()
    assert manifest.file("sft/losses.jsonl").read_bytes() == b""


def test_without_heldout_pairs_it_trains_and_measures_no_loss(
    base_model: Path, corpus: list[Path], tmp_path: Path
) -> None:
    made = derived(corpus, tmp_path, max_train=60, min_train=10)
    (made.parent / "heldout.jsonl").write_text("")
    read = json.loads(made.read_text())
    read["files"]["heldout.jsonl"] = {"bytes": 0, "xxh3": checksum(made.parent / "heldout.jsonl")}
    made.write_text(json.dumps(read))
    assert train.main(arguments(base_model, made, tmp_path / "out", epochs=1)) == 0
    summary = Manifest.read(tmp_path / "out/sft.manifest.json").summary
    assert summary["trained"] is True and summary["steps"] == 4
    assert summary["heldout_loss_before"] is None and summary["heldout_loss_after"] is None


def test_prompt_and_answer_are_cut_as_trl_cuts_them(base_model: Path) -> None:
    _, tokenizer = load(base_model.parent / "model")
    template = Template.parse("Question: {question}\nAnswer: {answer}")
    prompt, answer = template.prompt("What does heapify do?"), template.completion("Transform list into a heap.")
    ids, shared = loss.tokens(tokenizer, prompt, answer, 64)
    assert tokenizer.decode(ids[:shared]) == prompt
    assert tokenizer.decode(ids[shared:]) == answer + tokenizer.eos_token
    assert loss.tokens(tokenizer, prompt, answer, 5) == (ids[:5], 5)


def test_loss_does_not_depend_on_the_batch(base_model: Path, pairs_manifest: Path) -> None:
    model, tokenizer = load(base_model.parent / "model")
    rows = [json.loads(line) for line in (pairs_manifest.parent / "heldout.jsonl").read_text().splitlines()]
    template = Template.parse("Question: {question}\nAnswer: {answer}")
    one = loss.completion_loss(model, tokenizer, rows, template, 64, batch=1)
    many = loss.completion_loss(model, tokenizer, rows, template, 64, batch=7)
    assert one[1] == many[1]
    assert one[0] == pytest.approx(many[0], abs=1e-5)


class Shape:
    class config:
        max_position_embeddings = 64


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 8))
def test_micro_batches_fill_the_batch(share: int, micro: int, processes: int) -> None:
    settings = {"batch_size": share * processes, "max_length": 64, "micro_batch": micro}
    size = train.check(settings, processes, Shape)
    assert 1 <= size <= micro
    assert share % size == 0
