"""A config file that cannot be read: file, line, column, and what is wrong there, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.chain.yaml_errors import main, read_config, read_layered
from crawl2llm.commands.plan import command as plan
from crawl2llm.core.errors import ConfigError

BROKEN = {
    "a: 1\n\tb: 2\n": ", line 2, column 1: a tab, where YAML takes spaces only",
    "ingest:\n  extract:\n\t  shards: 3\n": ", line 3, column 1: a tab, where YAML takes spaces only",
    "ingest\n  extract:\n    shards: 2\n": ", line 2, column 10: a key here needs a line above that ends with `:`",
    "a: 1\nshards 2\nb: 3\n": ", line 2, column 1: a key without a `:` after it",
    "a: b: c\n": ", line 1, column 5: text with `: ` needs quotes",
    "a: [1, 2\nb: 3\n": ", line 1, column 4: the bracket that is opened here is not closed before line 2",
    'a: 1\nb: "open\nc: 2\n': ", line 2, column 4: the quote that is opened here is not closed",
    "a: @x\n": ", line 1, column 4: text that begins with '@' needs quotes",
    "a:\n    b: 1\n  c: 2\n": ", line 3, column 3: the indentation, or the text here, does not fit the lines above",
    "a: 1\nb: x\x07\n": ", line 2, column 5: the character U+0007, which YAML does not take",
    "a: *b\n": ", line 1, column 4: found undefined alias 'b'",
    "a: 1\nb: 2\na: 3\n": ", line 3, column 1: the key a is repeated, first in line 1: put both parts under one",
    "a:\n  b: 1\n  b: 2\n": ", line 3, column 3: the key b is repeated, first in line 2: put both parts under one",
    "- a\n- b\n": ": holds a list, not keys with values as in config.yaml",
    "text\n": ": holds only 'text', not keys with values as in config.yaml",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    assert str(refused.value) == f"{path}{BROKEN[text]}"


def test_what_is_no_text_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.yaml"
    with pytest.raises(ConfigError, match=r"mine\.yaml: No such file or directory$"):
        read_config(path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"/config\.yaml: No such file or directory \(without --configfile .* or of --directory\)$"
    ):
        read_config(Path("config.yaml"))
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: not text in UTF-8 \(byte 3 is 0xff\)$"):
        read_config(path)


def test_yaml_json_and_an_empty_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text, tree in (("a: {b: 1}\n", {"a": {"b": 1}}), ('{\n\t"a": 1e-8}', {"a": 1e-8}), ("# nothing\n", {})):
        path.write_text(text)
        assert read_config(path) == tree and main([str(path)]) == 0


def test_a_file_that_was_to_be_laid_over_another_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("sweep: {seeds: 2}\n")
    Path("config.yaml").write_text("ingest: {extract: {shards: 2}}\n")
    assert main(["mine.yaml"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("note: there is no ingest in mine.yaml") and "--configfile config.yaml mine.yaml" in said
    assert said.count("\n") == 1
    for whole in (["config.yaml", "mine.yaml"], ["mine.yaml", "config.yaml"], []):
        assert main(whole) == 0 and capsys.readouterr().err == ""


def test_a_plan_says_it_in_one_line_before_snakemake_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan.main(["--configfile", "mine.yaml"]) == 1
    assert capsys.readouterr() == ("", f"error: {tmp_path}/mine.yaml: No such file or directory\n")
    Path("mine.yaml").write_text("a\n  b: 1\n")
    assert plan.main(["--cores", "2", "--configfiles", "mine.yaml"]) == 1
    assert (
        capsys.readouterr().err
        == "error: mine.yaml, line 2, column 4: a key here needs a line above that ends with `:`\n"
    )


@pytest.mark.parametrize("text", ["a: 2024-13-45\n", "a: !!int x\n", "[" * 5000])
def test_what_yaml_itself_does_not_catch(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        read_config(path)


def test_a_merged_mapping_may_be_overridden(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_config(tmp_path / "x.yaml")["b"] == {"x": 1, "y": 3}


def test_several_files_are_laid_over_each_other(tmp_path: Path) -> None:
    """As Snakemake does with several files of --configfile: mappings are joined, everything else is replaced."""
    first, second = tmp_path / "run.yaml", tmp_path / "preset.yaml"
    first.write_text("filters: [language, quality]\nlanguage: {select: {languages: [en], threshold: 0.5}}\n")
    second.write_text("filters: [lines]\nlanguage: {select: {threshold: 0.9}}\n")
    assert read_layered([first, second]) == {
        "filters": ["lines"],
        "language": {"select": {"languages": ["en"], "threshold": 0.9}},
    }
    assert read_layered([]) == {}
