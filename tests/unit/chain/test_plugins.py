"""Filters of plug-ins: what a config says of them, faults, and which steps an edit of their file concerns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain import plugins, steps
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.fingerprint import fingerprint, fingerprint_for_program, step_code
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.chain.stage_names import FILTER_NAMES, KNOWN_FILTERS
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.report.state import expected_counts
from tests.plugin_example import EXAMPLE

CONFIG = {"plugins": ["my_filters/"], "filters": ["language", "exclaim"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the example of the docs, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_filters").mkdir()
    write(EXAMPLE)
    yield tmp_path / "my_filters"
    plugins.unload()


def write(text: str, name: str = "exclaim.py") -> None:
    Path("my_filters", name).write_text(text, encoding="utf-8")


def edit(old: str, new: str) -> None:
    assert old in EXAMPLE
    write(EXAMPLE.replace(old, new))


def complete(**more: Any) -> dict[str, Any]:
    plugins.unload()
    return configuration.validate({**CONFIG, **more})


def error_of(**more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        complete(**more)
    return str(caught.value)


def test_it_is_a_filter_like_ours() -> None:
    config = complete()
    assert config["exclaim"] == {"score": {}, "select": {"exclamations_max": 0.01}}
    assert list(steps.STEPS).index("decontaminate.select") + 1 == list(steps.STEPS).index("exclaim.score")
    assert steps.needed_steps("exclaim.score", config) == ("ingest.extract", "language.select")
    assert "exclaim.score" in steps.needed_steps("report.whatif", config)
    assert settings_class("exclaim.select").model_fields.keys() == {"exclamations_max"}


def test_a_config_without_plug_ins_knows_none_of_them() -> None:
    before = list(steps.STEPS)
    complete()
    configuration.validate({"filters": ["language"]})
    assert list(steps.STEPS) == [step for step in before if not step.startswith("exclaim.")]
    assert tuple(FILTERS) == tuple(KNOWN_FILTERS) == FILTER_NAMES
    assert "'exclaim'; allowed are 'url', " in error_of(plugins=[])


def test_only_what_the_config_names_is_run(folder: Path) -> None:
    write("raise SystemExit(1)\ndef rules(settings): ...", "draft.py")
    write("raise SystemExit(1)", "words.py")
    complete()
    assert list(plugins.LOADED) == ["exclaim"]
    assert "filters.1 is 'exclam'; allowed are 'url', " in (text := error_of(filters=["language", "exclam"]))
    assert "'decontaminate', 'draft', 'exclaim' (did you mean 'exclaim'?)" in text and "words" not in text


@pytest.mark.parametrize(
    "section, words",
    [
        ({"exclamations_max": 2}, "exclaim.select.exclamations_max is 2, out of range; allowed: number from 0 to 1 or null (default 0.01)"),
        ({"exclamation_max": 0}, "exclaim.select.exclamation_max is not a known key (did you mean exclaim.select.exclamations_max?)"),
        ({"exclamations_max": "0"}, "exclaim.select.exclamations_max is '0', which is not of type number or null"),
    ],
)  # fmt: skip
def test_its_settings_are_checked_as_ours(section: dict[str, Any], words: str) -> None:
    assert words in error_of(exclaim={"select": section})


def test_variants_have_the_plug_ins_of_main() -> None:
    overlay = {"exclaim": {"select": {"exclamations_max": 0.5}}}
    config = complete(filters=["language"], variants={"loud": {**overlay, "filters": ["exclaim"]}})
    assert configuration.complete_variant(config, "loud")["exclaim"] == {"score": {}, **overlay["exclaim"]}
    assert "variants.x: plugins is ['other/'], and main has ['my_filters/']" in error_of(
        variants={"x": {"plugins": ["other/"]}}
    )


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("import pyarrow as pa", "import pyarow as pa", "my_filters/exclaim.py:3: the filter exclaim failed: ModuleNotFoundError: "),
        ("def rules(settings):", "def rules(settings)", "my_filters/exclaim.py:24: the filter exclaim failed: SyntaxError: expect"),
        ("def rules", "def ruled", "my_filters/exclaim.py: the filter exclaim needs a function rules(settings)"),
        ("(Measuring[Settings])", "", "my_filters/exclaim.py: the filter exclaim needs one class that measures"),
        ("MEASURES = signal_schema", "MEASURES = dict", "needs one list of its measures (signal_schema"),
        ('"exclamations", ">"', '"exclamation", ">"', "the rule 'exclamations_max' compares 'exclamation'; its measures are exclamations"),
        ('">", "exclamations_max"', '">", "most"', "has the threshold 'most'; the keys of SelectSettings are exclamations_max"),
        ("setting(0.01, ", "setting(..., ", "my_filters/exclaim.py: SelectSettings: every key needs a type and a default"),
        ('0.01, "Most exclamation marks by characters; null: any."', "0.01", "SelectSettings.exclamations_max has no meaning"),
        ("MEASURES = ", "AFTER = ('words',)\nMEASURES = ", "the filter exclaim names 'words' in AFTER; allowed are url, "),
        ("    return [Rule", "    return [1 / 0, Rule", "my_filters/exclaim.py:25: the filter exclaim failed: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_faults_name_the_file_the_line_and_the_filter(old: str, new: str, words: str) -> None:
    edit(old, new)
    assert words in error_of()
    assert not plugins.LOADED and "exclaim.score" not in steps.STEPS


def test_names(folder: Path) -> None:
    write(EXAMPLE, "language.py")
    assert "my_filters/language.py: a stage, a filter or a key of the config is called 'language' already" in error_of()
    (folder / "language.py").rename(folder / "shout_loud.py")
    assert "shout_loud.py: a filter is called by its file, in small letters and digits" in error_of(
        filters=["language", "shout_loud"]
    )
    (folder.parent / "more").mkdir()
    Path("more/exclaim.py").write_text(EXAMPLE)
    assert "more/exclaim.py: my_filters/exclaim.py also defines the filter 'exclaim'" in error_of(
        plugins=["my_filters/", "more"]
    )
    assert "plugins has 'nothing/', which is neither a folder here nor an installed package" in error_of(
        plugins=["nothing/"]
    )


def test_an_installed_package_imports_its_own_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, or by dots; what it imports of itself is in the fingerprint."""
    package = folder.parent / "site" / "shouting_filters"
    (package / "lists").mkdir(parents=True)
    (package / "__init__.py").write_text("LOADED = True\n")
    (package / "lists/marks.py").write_text('MARK = "!"\n')
    text = (
        "from shouting_filters.lists.marks import MARK\nfrom .lists import marks\nassert marks.MARK == MARK\n" + EXAMPLE
    )
    (package / "exclaim.py").write_text(text.replace('count("!")', "count(MARK)"))
    monkeypatch.syspath_prepend(package.parent)
    config = complete(plugins=["shouting_filters"])
    code = step_code("exclaim.score", [])
    assert {
        "plugins/exclaim/exclaim.py",
        "plugins/exclaim/__init__.py",
        "plugins/exclaim/lists/marks.py",
    } <= code.keys()
    assert plugins.LOADED["exclaim"].measuring({}).measure({"text": "no!!"}) == {"exclamations": 0.5}
    assert config["plugins"] == ["shouting_filters"]


def code_of_steps() -> dict[str, dict[str, str]]:
    plugins.unload()
    config = configuration.validate({**CONFIG, "exclaim": {"select": {"exclamations_max": 0.02}}})
    return {
        step: step_code(step, config["filters"])
        for step in ("exclaim.score", "exclaim.select", "report.whatif", "language.score", "corpus.write")
    }


SELECT = {"exclaim.select", "report.whatif"}
BOTH = {"exclaim.score", *SELECT}
USES = (
    EXAMPLE.replace('count("!")', "count(MARK)")
    .replace("class Exclamations", 'MARK = "!"\nclass Exclamations')
    .replace("def rules(settings):\n", "def key():\n    return 'a'\n\ndef rules(settings):\n    key()\n")
)


@pytest.mark.parametrize(
    "text, old, new, again",
    [
        (EXAMPLE, 'count("!")', 'count("?")', {"exclaim.score"}),
        (USES, 'MARK = "!"', 'MARK = "?"', {"exclaim.score"}),
        (EXAMPLE, 'exclamations", ">",', 'exclamations", ">=",', SELECT),
        (USES, "return 'a'", "return 'b'", SELECT),
        (EXAMPLE, "setting(0.01, ", "setting(0.03, ", set()),
        (EXAMPLE, "Most exclamation marks", "The most marks", set()),
        (EXAMPLE, "le=1)", "le=1)\n    level: int = setting(1, 'Of no rule.')", set()),
        (EXAMPLE, '"""Drop documents that shout."""', "# No docstring.", set()),
        (EXAMPLE, "MEASURES = signal_schema(", "MEASURES = signal_schema(words=pa.int64(), ", {"exclaim.score"}),
        (EXAMPLE, "MEASURES = ", "OTHER = 1\nMEASURES = ", BOTH),
        (EXAMPLE, "MEASURES = ", "import json\nMEASURES = ", BOTH),
        (EXAMPLE, "MEASURES = ", "if pa:\n    OTHER = 1\nMEASURES = ", BOTH),
        (EXAMPLE, "MEASURES = ", "from .words import A\nMEASURES = ", BOTH),
    ],
)
def test_an_edit_concerns_the_steps_that_run_it(text: str, old: str, new: str, again: set[str]) -> None:
    write("A = 1", "words.py")
    write(text)
    before = code_of_steps()
    assert old in text
    write(text.replace(old, new))
    now = code_of_steps()
    assert {step for step in before if before[step] != now[step]} == again


def test_a_module_beside_it_counts_whole_for_both() -> None:
    write("A = 1\nB = 1", "words.py")
    write("from .words import A\n" + EXAMPLE)
    before = code_of_steps()
    write("A = 1 # a comment\nB = 1", "words.py")
    assert code_of_steps() == before
    write("A = 1\nB = 2", "words.py")
    now = code_of_steps()
    assert {step for step in before if before[step] != now[step]} == BOTH


def test_a_name_read_by_its_text_makes_the_file_one_for_both() -> None:
    write(EXAMPLE.replace('count("!")', 'count(globals()["MARK"])') + 'MARK = "!"\n')
    before = code_of_steps()
    write(Path("my_filters/exclaim.py").read_text().replace('">"', '">="'))
    now = code_of_steps()
    assert {step for step in before if before[step] != now[step]} == BOTH


def test_a_folder_that_moves_reruns_nothing(folder: Path) -> None:
    before = fingerprint("exclaim.select", complete())
    folder.rename(folder.with_name("elsewhere"))
    assert fingerprint("exclaim.select", complete(plugins=["elsewhere"])) == before


def test_programs_are_told_the_plug_ins_and_no_fingerprint_is() -> None:
    mark = fingerprint("language.score", complete())
    assert "my_filters" not in mark
    assert '"plugins":["my_filters/"]' in fingerprint_for_program(mark, ".")
    training = fingerprint("pretrain.train", configuration.validate({**CONFIG}))
    assert fingerprint_for_program(training, ".") == training, "its environment may lack what a plug-in imports"
    plugins.unload()
    assert fingerprint_for_program(mark, ".") == mark


def test_an_import_of_a_file_beside_it_without_a_dot_is_explained() -> None:
    write("A = 1", "wordlist.py")
    write("import wordlist\n" + EXAMPLE)
    assert error_of().endswith(
        "ModuleNotFoundError: No module named 'wordlist'; a file beside it is imported so: from . import wordlist"
    )


def test_future_annotations() -> None:
    write(
        textwrap.dedent("from __future__ import annotations\n")
        + EXAMPLE.replace('"""Drop documents that shout."""', "")
    )
    assert complete()["exclaim"]["select"] == {"exclamations_max": 0.01}


def test_the_page_of_a_run_whose_config_is_not_known() -> None:
    split = Manifest(step="corpus.split", fingerprint="", summary={"filters": ["language", "exclaim"]})
    assert "language.select" in expected_counts(None, {"corpus.split": [split]})
