"""The command line that steps share, on a small step of its own."""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm import __main__
from crawl2llm.chain import command_line
from crawl2llm.chain.config import validate
from crawl2llm.chain.config_schema import schema_leaves as leaves_of_schema
from crawl2llm.chain.fingerprint import digest, fingerprint
from crawl2llm.core import console
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.manifest import Manifest, ManifestError, links_out
from tests.unit import making

STEP = "language.select"


def run(folder: Path, config: str, body: Any = None) -> int:
    def keep_two(_: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
        (folder / "out.txt").write_text(str(settings["threshold"]))
        manifest.counts = {"in": 3, "kept": 2, "dropped": {"score": 1, "language": 0}}
        return [folder / "out.txt"]

    argv = ["--config", config, "--manifest", str(folder / "manifest.json"), "--log", str(folder / "logs/a.log")]
    return command_line.run_step(
        command_line.step_parser(STEP, "What it does.", "--config config.yaml"), body or keep_two, argv
    )


def test_run_with_a_fingerprint(tmp_path: Path) -> None:
    mark = making.config(STEP, threshold=0.25)
    before = gc.get_freeze_count()
    assert run(tmp_path, mark) == 0
    assert gc.get_freeze_count() == before, "what others hold can no more be collected"
    assert (tmp_path / "out.txt").read_text() == "0.25"
    assert Manifest.read(tmp_path / "manifest.json").fingerprint == digest(mark)
    assert "in 3, kept 2; dropped: score 1\n" in (tmp_path / "logs/a.log").read_text()


def test_run_with_a_config_file_is_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("language: {select: {threshold: 0.25}}\n")
    assert command_line.verified_settings(STEP, str(file)) == command_line.verified_settings(
        STEP, making.config(STEP, threshold=0.25)
    )
    file.write_text("")
    assert command_line.verified_settings(STEP, str(file))[1] == fingerprint(STEP, validate({}))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A file that no step may write."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/profile").write_text("mine")
    return tmp_path / "home/profile"


PLANTED = (
    "out.txt",
    "manifest.json",
    ".manifest.json.partial",
    ".manifest.copy",
    "run.json",
    ".run.json.partial",
    "deep/er/a.bin",
)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_link_is_not_written_through(tmp_path: Path, elsewhere: Path, name: str) -> None:
    folder = tmp_path / "results/main/language/select"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/inner").symlink_to("../../notes.txt")
    (folder / "theirs").symlink_to(elsewhere.parent)
    (folder / name).symlink_to(elsewhere)

    def body(_: argparse.Namespace, __: dict[str, Any], manifest: Manifest) -> list[Path]:
        for path in (folder / "out.txt", folder / "deep/er/a.bin"):
            path.write_text("result")
        manifest.counts = {"in": 0, "kept": 0, "dropped": {}}
        return [folder / "out.txt", folder / "deep/er/a.bin"]

    assert run(folder, making.config(STEP), body) == 0
    assert elsewhere.read_text() == "mine" and not (folder / "theirs").exists()
    assert (folder / "deep/er/inner").is_symlink(), "a link to a file of the task is none"
    assert Manifest.read(folder / "manifest.json").file_problems(deep=True) == []


def test_a_planted_log_is_not_written_through(tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    for folder in (tmp_path, Path()):
        (tmp_path / "logs/a.log").unlink(missing_ok=True)
        (tmp_path / "logs/a.log").symlink_to(elsewhere)
        assert run(folder, making.config(STEP)) == 0 and elsewhere.read_text() == "mine"


def test_a_log_elsewhere_may_be_a_link(tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /dev/stderr is."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").symlink_to(elsewhere)
    assert run(tmp_path, making.config(STEP)) == 0 and (tmp_path / "logs/a.log").is_symlink()
    assert "in 3, kept 2" in elsewhere.read_text()


@pytest.mark.parametrize(
    ("step", "name", "stays"),
    [
        ("pii/score", "found/.00000.parquet.partial", False),
        ("pii/score", "found/00000.parquet", False),
        ("pii/score", "found/.00001.parquet.partial", True),
        ("corpus/write", "train/.00000.parquet.partial", False),
        ("tokenize/encode", "train/web/.00000.bin.partial", False),
        ("tokenize/encode", "train/web/00001.bin", True),
        ("tokenize/encode", "00001/web/00000.bin", True),  # whose folder is another task's
        ("dedup/band", "wanted/00000.parquet", False),
        ("corpus/write", "notes.txt", True),
    ],
)
def test_links_in_folders_that_shards_share(tmp_path: Path, elsewhere: Path, step: str, name: str, stays: bool) -> None:
    link = tmp_path / "results/main" / step / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    assert list(links_out(tmp_path / "results/main" / step / "00000.manifest.json")) == ([] if stays else [link])


@pytest.mark.parametrize(
    ("task", "name", "stays"),
    [
        ("00000", "validation", False),
        ("00000", "train/web", False),
        ("00000", "00001", True),
        ("00000", ".00001.work", True),
        ("sft", "sft", False),
        ("sft", "sft/model", False),
        ("sft", "sft2", True),
        ("sft", "notes", True),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_linked_folders(tmp_path: Path, elsewhere: Path, task: str, name: str, stays: bool, there: bool) -> None:
    """A task makes files below a linked folder, or fails at a link that leads nowhere."""
    link = tmp_path / "disk/results/main/tokenize/encode" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere.parent if there else tmp_path / "nowhere")
    (tmp_path / "results").symlink_to("disk/results")  # the user's choice
    left = [path.resolve().name for path in links_out(link.parents[name.count("/")] / f"{task}.manifest.json")]
    assert left == ([] if stays else [link.resolve().name])
    assert not list(links_out(tmp_path / f"results/main/tokenize/none/{task}.manifest.json"))


def test_links_of_others_stay(tmp_path: Path, elsewhere: Path) -> None:
    """Of other shards, and in a folder that is none of results: a person may write beside what is theirs."""
    results = tmp_path / "results/main/language/score"
    for folder, name, stays in (
        (results, "00000.parquet", False), (results, ".00000.parquet.partial", False), (results, "00001.parquet", True),
        (results, "000001.parquet", True), (results, "00000", False),
    ):  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(elsewhere)
        left = list(links_out(folder / "00000.manifest.json"))
        assert left == ([] if stays else [folder / name])
        (folder / name).unlink()
    (tmp_path / "a.txt").symlink_to(elsewhere)
    assert run(tmp_path, making.config(STEP)) == 0 and (tmp_path / "a.txt").is_symlink()
    linked = tmp_path / "linked"
    linked.mkdir()
    (tmp_path / "results/main/language/select").symlink_to(linked)
    assert run(tmp_path / "results/main/language/select", making.config(STEP)) == 0 and (linked / "out.txt").is_file()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("language: {select: {treshold: 1}}", "language.select.treshold is not a known key"),
        ("a: [", "line 1, column 5: expected the node content"),
        ("- a", "holds a list, not keys with values"),
        (None, "No such file"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
    ],
)
def test_bad_config_file_is_one_line_not_a_traceback(
    tmp_path: Path, text: str | bytes | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my.yaml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run(tmp_path, str(file)) == 1
    shown = capsys.readouterr().err
    assert "my.yaml" in shown and words in shown and "Traceback" not in shown
    assert not (tmp_path / "manifest.json").exists()


def test_fingerprint_of_another_step_or_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, making.config("language.score")) == 1
    assert "is the fingerprint of 'language.score'; this program is 'language.select'" in capsys.readouterr().err
    assert run(tmp_path, '{"step": ') == 1
    assert "neither a file nor a fingerprint" in capsys.readouterr().err


def test_errors_that_the_user_can_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def body(*_: Any) -> list[Path]:
        raise command_line.InputError("source 'web': no such file x.warc")

    assert run(tmp_path, making.config(STEP), body) == 1
    assert "error: source 'web': no such file x.warc" in capsys.readouterr().err
    assert "no such file" in (tmp_path / "logs/a.log").read_text()


def test_counts_that_do_not_add_up_fail_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def body(_: Any, __: Any, manifest: Manifest) -> list[Path]:
        manifest.counts = {"in": 2, "kept": 2, "dropped": {"x": 1}}
        return []

    assert run(tmp_path, making.config(STEP), body) == 1
    assert "in = kept + dropped does not hold" in capsys.readouterr().err
    assert not (tmp_path / "manifest.json").exists()


def test_an_error_of_the_program_itself_is_not_hidden(tmp_path: Path) -> None:
    def body(*_: Any) -> list[Path]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(tmp_path, making.config(STEP), body)


def test_help_shows_what_it_does_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line.step_parser(STEP, "What it does.", "--config config.yaml").parse_args(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "What it does." in shown and "python -m crawl2llm.filters.language.select --config config.yaml" in shown


def test_manifest_is_the_same_wherever_and_however_often(tmp_path: Path) -> None:
    texts = []
    for name in "ab":
        (tmp_path / name).mkdir()
        run(tmp_path / name, making.config(STEP))
        texts.append((tmp_path / name / "manifest.json").read_text())
    assert texts[0] == texts[1] and str(tmp_path) not in texts[0]
    assert list(json.loads(texts[0])) == ["counts", "files", "fingerprint", "inputs", "sources", "step", "summary"]


def test_fail_prints_as_a_step_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.print_error("no") == 1
    assert capsys.readouterr().err == "error: no\n"


@pytest.mark.parametrize("error", [InputError("no"), ConfigError("no"), ManifestError("no"), OSError("no")])
def test_a_command_answers_an_error_in_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def main(argv: list[str] | None = None) -> int:
        raise error

    assert command_line.report_errors(main)([]) == 1 and capsys.readouterr() == ("", "error: no\n")


def test_a_command_whose_reader_has_gone_raises() -> None:
    def main(argv: list[str] | None = None) -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        command_line.report_errors(main)([])


def test_a_command_shows_lines_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.print_findings(argparse.Namespace(json=False), {"a": "ä"}, lambda: iter(["one", "two"])) == 0
    assert command_line.print_findings(argparse.Namespace(json=True), {"a": "ä"}, lambda: []) == 0
    assert capsys.readouterr().out == 'one\ntwo\n{\n "a": "ä"\n}\n'


def test_progress_tells_rate_and_time_left() -> None:
    progress = console.Progress(100, "documents", done=20)
    progress.add(30)
    assert progress.status_line(progress.start + 10) == "50/100 documents, 3.0/s, 17s left"
    assert console.Progress(None, "records").status_line() == "0 records, 0.0/s"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0s"), (75, "1m15s"), (3600, "1h00m"), (59.6, "1m00s"), (172_740, "47h59m"), (180_000, "2d02h")],
)
def test_duration(seconds: float, words: str) -> None:
    assert console.format_duration(seconds) == words


def test_placement_options_are_those_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command_line.step_parser("finetune.train", "", "")
    command_line.add_placement_options(parser, "finetune.train")
    leaves, given = dict(leaves_of_schema()), ["--config", "x", "--manifest", "y"]
    for name, value in vars(parser.parse_args(given)).items():
        if f"finetune.train.{name}" in leaves:
            assert value == leaves[f"finetune.train.{name}"]["default"]
    for text, value in (("true", True), ("false", False)):
        assert parser.parse_args([*given, "--tensorboard", text]).tensorboard is value
    for wrong in (
        ["--tensorboard", "1"],
        ["--tensorboard", "True"],
        ["--wandb", "on"],
        ["--checkpoint-every", "often"],
    ):
        with pytest.raises(SystemExit):
            parser.parse_args([*given, *wrong])
        assert wrong[1] in capsys.readouterr().err


def test_configfile_takes_files_and_no_other_words() -> None:
    """A key, a document or a folder behind it were taken for a config."""
    made = command_line.command_parser("x", "", "")
    command_line.add_configfile_option(made, "")
    made.add_argument("words", nargs="*")
    for line, files, words in (
        ("--configfile a.yaml KEY=1", ["a.yaml"], ["KEY=1"]),
        ("KEY=1 --configfile a.yaml b.yml results/main", ["a.yaml", "b.yml"], ["KEY=1", "results/main"]),
        ("--configfile a b.yaml --configfile=c https://x/", ["a", "b.yaml", "c"], ["https://x/"]),
        ("--configfile a.yaml --", ["a.yaml"], []),
    ):
        given = made.parse_intermixed_args(line.split())
        assert (given.configfile, given.words) == (files, words), line
    with pytest.raises(SystemExit):
        made.parse_args(["--configfile"])


@pytest.mark.parametrize(
    "line",
    [
        ["whatif", "quality.select.keep_fraction=0.5"], ["trace", "https://x/"], ["who-wrote", "a text"],
        ["marks", "m.jsonl"], ["compare", "results/a", "results/b"], ["record", "results/a"], ["accept", "language.score"],
    ],
    ids=lambda line: line[0],
)  # fmt: skip
def test_every_command_leaves_words_behind_its_config(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("nonsense: 1\n")
    (tmp_path / "m.jsonl").write_text("")
    for name in "ab":
        (tmp_path / "results" / name).mkdir(parents=True)
    command, *words = line
    assert __main__.main([command, "--configfile", "mine.yaml", *words]) == 1
    said = capsys.readouterr().err
    assert "nonsense" in said and "No such file" not in said, said
