"""`crawl2llm new`: what it finds in files of every kind, what it writes, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.commands.new.command import digits_note, languages_to_keep, main, run_command, yaml_text
from crawl2llm.commands.new.estimate import (
    TASK_SECONDS,
    task_starts,
    validation_fraction,
    validation_operations,
)
from crawl2llm.commands.new.places import Source, find_sources
from crawl2llm.commands.new.sample import read_sample, sampled_files
from crawl2llm.core import root
from crawl2llm.core.errors import InputError
from crawl2llm.stages.ingest.files import File
from crawl2llm.training import auto, checks
from crawl2llm.training.cost_estimate import PREDICTED_MFU
from crawl2llm.training.pretraining_settings import TrainSettings
from tools import node_mfu

SHARED = Path(os.environ.get("CRAWL2LLM_DATA", root.ROOT.parent / "shared" / "data"))
ENGLISH = (
    "The river bends twice before it meets the sea, and the town lies between the two bends. "
    "Nobody in the village remembered when the mill had stopped, but they knew who had owned it. "
    "She kept the letters in a drawer that she had not opened for a very long time. "
    "Most of the houses were built of grey stone, with small windows that looked to the south. "
    "In the winter the road was closed for weeks, and people lived on what they had in the cellar. "
    "That is why the bridge, when it came at last, was called the best thing in a hundred years. "
)
GERMAN = "Der Fluss macht zwei Bögen, bevor er das Meer erreicht, und die Stadt liegt zwischen den beiden. " * 6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with JSON Lines (under `content`), plain text and a WARC file."""
    monkeypatch.chdir(tmp_path)
    rows = [{"content": f"{ENGLISH} Page {n}.", "url": f"https://a.example/{n}"} for n in range(8)] + [
        {"content": GERMAN, "url": "https://a.example/de"}
    ]
    with gzip.open("rows.jsonl.gz", "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    Path("book.txt").write_text(ENGLISH * 3, encoding="utf-8")
    body = f"<html><title>A town</title><body><main><p>{ENGLISH}</p></main></body></html>".encode()
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    with gzip.open("a.warc.gz", "wb") as warc:
        warc.write(
            b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\nWARC-Record-ID: <urn:uuid:1>\r\n"
            b"Content-Type: application/http\r\nContent-Length: %d\r\n\r\n" % len(http) + http + b"\r\n\r\n"
        )
    return tmp_path


def test_the_kind_is_what_the_file_holds(folder: Path) -> None:
    found = {source.kind: source for source in find_sources(["*.warc.gz", "rows.*", "book.txt"])}
    assert set(found) == {"warc", "jsonl", "text"}
    assert found["jsonl"].config_entry() == {
        "name": "records",
        "kind": "jsonl",
        "paths": ["rows.*"],
        "text_key": "content",
    }
    Path("renamed").write_bytes(Path("a.warc.gz").read_bytes())
    assert find_sources(["renamed"])[0].kind == "warc"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a.png is neither WARC"),
        ("a.jsonl", b'{"id": 1, "words": 3}\n', "no text under text, content"),
        ("a.jsonl.gz", b"\x1f\x8b\x08\x00damaged", "a.jsonl.gz: cannot be read"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(folder: Path, name: str, content: bytes, message: str) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        find_sources([name])


def test_a_pattern_without_files_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"--from 'no/\*\.warc': no file matches"):
        find_sources(["no/*.warc"])
    Path("list.txt").write_text("gone.warc.gz\n")
    with pytest.raises(InputError, match=r"no such file 'gone\.warc\.gz'"):
        find_sources(["@list.txt"])


def test_a_sample_counts_documents_and_text_by_language(folder: Path) -> None:
    seen = read_sample(find_sources(["rows.*"])[0])
    assert seen.documents == {"en": 8, "de": 1}
    assert seen.kept_documents["en"] == 8
    assert seen.text_bytes["de"] == len(GERMAN.strip().encode())


def test_books_are_cut_into_pieces(folder: Path) -> None:
    Path("long.txt").write_text(f"{ENGLISH}\n\n" * 300, encoding="utf-8")
    source = find_sources(["long.txt"])[0]
    assert source.config_entry() == {
        "name": "texts",
        "kind": "text",
        "paths": ["long.txt"],
        "unwrap": True,
        "chunk_words": 1000,
    }
    assert read_sample(source).documents["en"] > 10


def test_a_sample_is_bounded(folder: Path) -> None:
    names: list[File] = [Path(f"{number:03d}.txt") for number in range(40)]
    for number in range(40):
        Path(f"{number:03d}.txt").write_text(ENGLISH)
    assert sampled_files(names, 16)[0] == names[0] and sampled_files(names, 16)[-1] == names[-1]
    source = Source("text", ["*.txt"], names)
    assert read_sample(source).files == 16
    assert read_sample(source, seconds=0).files == 1


def test_the_languages_are_those_with_a_good_share() -> None:
    found = {"en": 0.6, "unsure": 0.2, "no": 0.15, "de": 0.05}
    assert languages_to_keep(found, [], found) == ["en", "no"]
    assert languages_to_keep({"unsure": 0.9, "de": 0.05}, [], ["de"]) == ["de"]
    assert yaml.safe_load(yaml_text(["no"])) == ["no"]
    assert languages_to_keep(found, ["sw", "no"], found) == ["no"]
    with pytest.raises(InputError, match=r"no text of any of them; it held en 60%, unsure 20%, no 15%"):
        languages_to_keep(found, ["sw"], found)


def test_a_language_of_which_the_filters_leave_nothing_is_not_chosen_but_may_be_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"en": 0.6, "no": 0.4}
    assert languages_to_keep(found, [], ["no"]) == ["no"]
    assert languages_to_keep(found, [], []) == ["en", "no"]  # nothing is better than the other
    assert languages_to_keep(found, ["en"], ["no"]) == ["en"]
    Path("bad.jsonl").write_text(json.dumps({"content": "Der Hund läuft schnell über die Straße. {" * 40}) + "\n")
    assert main(["mine.yaml", "--from", "rows.*", "bad.jsonl"]) == 0
    assert yaml.safe_load(Path("mine.yaml").read_text())["language"]["select"]["languages"] == ["en"]
    assert "NOTHING" not in capsys.readouterr().out
    assert main(["mine.yaml", "--force", "--from", "rows.*", "bad.jsonl", "--languages", "en", "de"]) == 0
    assert "The filters left NOTHING of de in the sample" in capsys.readouterr().out


def test_the_estimate_counts_the_start_of_every_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number, seconds = task_starts(16, 1)
    assert number == 10 * 2 + 8 + 2 + 7 and seconds == TASK_SECONDS * number  # steps by shard; bands; parts; lone steps
    assert task_starts(16, 2) == (number, TASK_SECONDS * (10 + 4 + 1 + 7))
    assert main(["mine.yaml", "--from", "rows.*"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"Here: \S+ for the data on all cores \(\S+ of it to start 19 tasks\)", said)
    assert "Assumed, not measured: all of these documents stay in the corpus" in said


def test_hours_on_gpus_are_by_a_prediction_for_each_model_that_auto_chooses() -> None:
    assert list(PREDICTED_MFU) == [(row.hidden_size, row.layers) for row in auto.TABLE]
    row = auto.TABLE[4]
    assert node_mfu.predicted_mfu(row, 1) == PREDICTED_MFU[row.hidden_size, row.layers][0], "python -m tools.node_mfu"


def test_validations_take_a_third_of_a_training_s_operations() -> None:
    settings = auto.resolve(TrainSettings(), 100_000, 2048)
    settings = settings.model_copy(update={"steps": 25, "validate_every": 10, "validation_tokens": 1000})
    per_token = auto.training_flops_per_token(settings.model, 2048)
    assert validation_operations(settings, 2048, 5000) == pytest.approx(3 * 1000 * per_token / 3)
    assert validation_operations(settings, 2048, 10) == pytest.approx(3 * 10 * per_token / 3)


@pytest.mark.parametrize(("options", "digits"), [([], 3), (["--digits", "1"], 1)])
def test_what_an_export_needs_of_the_tokenizer_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], digits: int
) -> None:
    assert main(["mine.yaml", "--from", "rows.*", *options]) == 0
    assert yaml.safe_load(Path("mine.yaml").read_text())["tokenize"]["train"]["digits"] == digits
    said = capsys.readouterr().out
    assert ("set tokenize.train.digits to 0 or 1 before the training" in said) == (digits == 3)
    assert ("an export as GGUF is possible" in said) == (digits == 1)


def test_files_of_which_the_filters_leave_nothing_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.jsonl").write_text('{"text": "This is one short line of English text."}\n')
    assert main(["mine.yaml", "--from", "short.jsonl"]) == 1
    said = capsys.readouterr().err
    assert "1 document with text" in said and "the corpus would be empty" in said and "--languages" in said
    assert not Path("mine.yaml").exists()


@pytest.mark.parametrize(
    ("documents", "fraction"),
    [(0, 0.1), (200, 0.1), (999, 0.1), (2_000, 0.05), (3_001, 0.04), (10_000, 0.01), (1e8, 0.01)],
)
def test_a_small_corpus_holds_out_a_larger_share(documents: float, fraction: float) -> None:
    assert validation_fraction(documents) == fraction


def test_few_held_out_documents_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine.yaml", "--from", "rows.*"]) == 0
    said = capsys.readouterr().out
    assert "About 1 document is held out" in said and "So FEW (less than 30) that" in said
    assert "rows.*: 1 file, " in said and "Sample: 1 file, " in said
    assert yaml.safe_load(Path("mine.yaml").read_text())["corpus"]["split"]["validation_fraction"] == 0.1


@pytest.mark.parametrize(
    ("digits", "words"), [(0, "not split, which"), (1, "single digits, which"), (2, "groups of up to 2 digits.")]
)
def test_how_numbers_are_split_is_said_in_words(digits: int, words: str) -> None:
    assert f"Numbers are {'split into ' if digits else ''}{words}" in digits_note(digits)


@pytest.mark.parametrize("activated", [True, False])
def test_the_command_at_the_end_works_as_typed(folder: Path, monkeypatch: pytest.MonkeyPatch, activated: bool) -> None:
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([*([str(programs)] if activated else []), "/usr/bin", "/bin"]))
    command = run_command(Path("mine.yaml"))
    assert command.startswith("snakemake ") == activated
    program = command.partition(" --snakefile")[0]
    version = subprocess.run(["/bin/sh", "-c", f"{program} --version"], capture_output=True, text=True, check=False)
    assert version.returncode == 0 and version.stdout[0].isdigit(), version.stderr


def test_the_config_is_valid_explicit_and_commented(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine.yaml", "--from", "*.warc.gz", "rows.*", "book.txt", "--languages", "de", "en"]) == 0
    text = Path("mine.yaml").read_text(encoding="utf-8")
    made = configuration.validate(yaml.safe_load(text))
    assert made["language"]["select"]["languages"] == ["de", "en"]
    assert [source["kind"] for source in made["ingest"]["extract"]["sources"]] == ["warc", "jsonl", "text"]
    train = made["pretrain"]["train"]
    assert "auto" not in (train["global_batch_tokens"], train["learning_rate"], *train["model"].values())
    assert train["tokens"] % train["global_batch_tokens"] == 0
    assert "# Languages, by text: en" in text and "H100" in text
    assert "parameters" in capsys.readouterr().out

    Path("mine.yaml").write_text("mine")
    assert main(["mine.yaml", "--from", "book.txt"]) == 1
    assert "mine.yaml exists already" in capsys.readouterr().err
    assert Path("mine.yaml").read_text() == "mine"


@pytest.mark.parametrize(("gpus", "stage"), [(1, 0), (8, 1)])
def test_for_gpus_the_fast_settings_are_written(folder: Path, gpus: int, stage: int) -> None:
    """Whatever this machine has, and so that they are planned."""
    assert main(["mine.yaml", "--from", "rows.*", "--languages", "en", "--gpus", str(gpus)]) == 0
    made = configuration.validate(yaml.safe_load(Path("mine.yaml").read_text(encoding="utf-8")))
    train = TrainSettings.model_validate(made["pretrain"]["train"])
    checks.check_settings(train, gpus)
    assert (train.engine, train.zero_stage, train.precision, train.save_dtype) == ("torch", stage, "bf16", "bf16")
    assert train.compile_layers and train.loss_chunk == 4096 and train.autocast == (gpus > 1)
    tuned = made["finetune"]["train"]
    assert (tuned["engine"], tuned["precision"]) == ("torch", "bf16")


def test_files_without_text_are_refused_with_the_reasons(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.jsonl").write_text('{"text": ""}\n')
    assert main(["mine.yaml", "--from", "empty.jsonl"]) == 1
    assert "held no document with text: no_text 1" in capsys.readouterr().err
    assert not Path("mine.yaml").exists()


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs real crawls in {SHARED}")
def test_real_crawls() -> None:
    seen = read_sample(find_sources([str(SHARED / "warc-real" / "sample-000*.warc.gz")])[0])
    assert seen.files == 2 and seen.documents["en"] > 5
    assert seen.rejected["type_request"] > 10


def test_json_lines_with_other_text_keys_are_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, key in (("a", "text"), ("b", "content")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"{key}": "Some text."}}\n')
    entries = [source.config_entry() for source in find_sources(["a.jsonl", "b.jsonl"])]
    assert [entry.get("text_key", "text") for entry in entries] == ["text", "content"]
    assert len({entry["name"] for entry in entries}) == 2
