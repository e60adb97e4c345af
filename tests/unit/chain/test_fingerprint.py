"""Fingerprints: what counts as code and settings of a step, and what does not. On a copy of the real code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import command_line
from crawl2llm.chain import config as configuration
from crawl2llm.chain import fingerprint as module
from crawl2llm.chain.config import lookup, validate
from crawl2llm.chain.config_schema import schema_leaves, schema_validator
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.fingerprint import (
    canonical_json,
    code_hashes,
    digest,
    fingerprint,
    import_closure,
    tracked_settings,
)
from crawl2llm.chain.project import Project
from crawl2llm.chain.steps import (
    COMPARE_ALL,
    STEPS,
    needed_steps,
    needed_steps_of_main,
    program_of,
    task_models,
    used_steps,
)
from crawl2llm.core.errors import InputError
from crawl2llm.core.plan_cache import Cache
from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest import compiled


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def written() -> list[str]:
    """The steps whose program is there."""
    return [step for step in STEPS if (ROOT / f"scripts/{program_of(step).replace('.', '/')}.py").is_file()]


# Parsing is what takes time here: the steps of four stages show it all.
SOME = [step for step in STEPS if step.split(".")[0] in {"ingest", "language", "quality", "corpus"}]


def codes(root: Path) -> dict[str, str]:
    """The code hash of these steps, read afresh."""
    module._meaning_and_imports.cache_clear()
    module._cached = Cache(module.CACHE)
    code_hashes.cache_clear()
    return {step: code_hashes(program_of(step), root) for step in SOME}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path} lacks {old!r}"
    path.write_text(text.replace(old, new))


def test_copy_has_the_same_code(copy: Path) -> None:
    assert codes(copy) == codes(ROOT)


def test_comments_docstrings_and_layout_do_not_count(copy: Path) -> None:
    before = codes(copy)
    path = copy / "scripts/crawl2llm/filters/language/select.py"
    edit(path, '"""Keep the documents whose', '"""Hold the documents whose')
    edit(path, '    """The rules under the settings', '    """What is compared under the settings')
    edit(path, "    return [\n", "    # A comment.\n\n    return [  # another\n")
    edit(path, '"score", "<", "threshold"', '"score", "<", ("threshold")')
    assert codes(copy) == before


def test_code_counts_for_those_that_import_it_and_no_others(copy: Path) -> None:
    before = codes(copy)
    edit(copy / "scripts/crawl2llm/filters/language/select.py", '"score", "<",', '"score", "<=",')
    changed = {step for step, found in codes(copy).items() if found != before[step]}
    assert changed == {"language.select"}

    before = codes(copy)
    edit(copy / "scripts/crawl2llm/stages/ingest/http.py", "len(out) > limit", "len(out) >= limit")
    changed = {step for step, found in codes(copy).items() if found != before[step]}
    importing = {s for s in SOME if "scripts/crawl2llm/stages/ingest/http.py" in import_closure(program_of(s), copy)}
    assert "ingest.extract" in changed == importing

    before = codes(copy)
    edit(copy / "scripts/crawl2llm/formats/documents.py", "BATCH = 1024", "BATCH = 512")
    changed = {step for step, found in codes(copy).items() if found != before[step]}
    importing = {s for s in SOME if "scripts/crawl2llm/formats/documents.py" in import_closure(program_of(s), copy)}
    assert {"language.score", "corpus.write"} <= changed == importing


def test_code_of_a_package_counts(copy: Path) -> None:
    before = codes(copy)
    (copy / "scripts/crawl2llm/filters/quality/__init__.py").write_text("import os\n")
    changed = {step for step, found in codes(copy).items() if found != before[step]}
    assert {"quality.train", "quality.score", "quality.select"} <= changed
    assert "language.score" not in changed


def test_pages_and_templates_beside_a_program_count_for_its_stage(copy: Path) -> None:
    (copy / "scripts/crawl2llm/filters/quality/page.html").write_text("<p>")
    before = codes(copy)
    (copy / "scripts/crawl2llm/filters/quality/page.html").write_text("<p>.")
    changed = {step for step, found in codes(copy).items() if found != before[step]}
    assert changed == {step for step in STEPS if step.startswith("quality.")}


def test_what_is_beside_programs_counts_for_those_that_name_it(copy: Path) -> None:
    """What is compiled for the extraction reruns no list of remote files. What no module names counts for the whole folder."""
    before = {step: code_hashes(program_of(step), copy) for step in ("ingest.extract", "ingest.list", "ingest.check")}
    native = {f"scripts/crawl2llm/stages/ingest/native/{name}" for name in compiled.NAMES}
    assert native <= set(before["ingest.extract"])
    assert "scripts/crawl2llm/stages/ingest/blocks.json" in before["ingest.extract"]
    for step in ("ingest.list", "ingest.check"):
        assert not any(Path(name).suffix in (".json", ".pyx", ".pxi", ".toml") for name in before[step])


def test_modules_that_only_show_do_not_count(copy: Path) -> None:
    before = codes(copy)
    edit(copy / "scripts/crawl2llm/core/console.py", "interval: float = 5.0, done", "interval: float = 9.0, done")
    assert codes(copy) == before


@pytest.mark.parametrize(
    "line",
    [
        "from crawl2llm.shared import other",
        "import crawl2llm.shared.other",
        "import crawl2llm.shared.other as short",
        "from crawl2llm.shared.other import VALUE",
        "def late():\n    from crawl2llm.shared.other import VALUE",
        "if True:\n    import crawl2llm.shared.other",
        'import importlib\nimportlib.import_module(f"crawl2llm.{folder}.other")',
        'from importlib import import_module\ndef late(name):\n    import_module(f"crawl2llm.shared.oth{name}")',
    ],
)
def test_closure_follows_every_way_to_import(tmp_path: Path, line: str) -> None:
    (tmp_path / "scripts/crawl2llm/shared").mkdir(parents=True)
    (tmp_path / "scripts/crawl2llm/shared/other.py").write_text("import crawl2llm.shared.third\nVALUE = 1\n")
    (tmp_path / "scripts/crawl2llm/shared/third.py").write_text("import os\n")
    (tmp_path / "scripts/crawl2llm/shared/bystander.py").write_text("VALUE = 2\n")
    (tmp_path / "scripts/crawl2llm/step.py").write_text(f"{line}\n")
    names = [Path(name).name for name in import_closure("crawl2llm.step", tmp_path)]
    assert names == ["other.py", "third.py", "step.py"]


@pytest.mark.parametrize("line", ["from . import other", "from .other import VALUE", "from ..shared import other"])
def test_relative_imports_are_refused_as_nothing_would_follow_them(tmp_path: Path, line: str) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/step.py").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"step.py:1: .*relative imports are not followed"):
        import_closure("step", tmp_path)


def test_every_step_is_hashed_with_what_decides_its_bytes() -> None:
    for step in written():
        assert f"scripts/{program_of(step).replace('.', '/')}.py" in import_closure(program_of(step))


def above(step: str, config: dict[str, Any]) -> set[str]:
    """The steps that a step reads from, in its own variant and of main."""
    return {*needed_steps(step, config), *needed_steps_of_main(step, config)}


def test_fingerprint_is_of_its_own_settings_and_of_everything_upstream() -> None:
    base = validate({})
    edited = validate({"language": {"select": {"threshold": 0.5}}})
    changed = {step for step in written() if fingerprint(step, base) != fingerprint(step, edited)}

    def reached(step: str) -> bool:
        return step == "language.select" or any(map(reached, above(step, base)))

    assert changed == {step for step in written() if reached(step)}
    assert "language.score" not in changed


def skipping(*filters: str, **more: Any) -> dict[str, Any]:
    """The default config, the demo's pages with `skip_filters`."""
    sources = [{"name": "demo", "kind": "crawl", "skip_filters": [*filters]}, {"name": "reference", "kind": "crawl"}]
    return validate({"ingest": {"extract": {"sources": sources}}, **more})


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_that_a_source_skips_is_told_and_no_step_above_it(name: str) -> None:
    order = {"filters": list(FILTERS)}
    base, edited = skipping(**order), skipping(name, **order)
    told = {f"{name}.{step}" for step, facts in FILTERS[name].steps.items() if facts.exempts}
    before, after = all_of(base, written()), all_of(edited, written())
    config = {step: json.loads(found)["config"] for step, found in after.items()}
    assert {step for step in config if config[step].get("skipped_by")} == told
    assert all(config[step]["skipped_by"] == ["demo"] for step in told)

    @cache
    def reached(step: str) -> bool:
        return step in told or any(map(reached, above(step, base)))

    changed = {step for step in written() if before[step] != after[step]}
    assert changed == {step for step in written() if reached(step)}
    unused = {"filters": [other for other in FILTERS if name not in (other, *FILTERS[other].after)]}
    there, skipped = skipping(**unused), skipping(name, **unused)
    assert all_of(there, used_steps(there)) == all_of(skipped, used_steps(there))


def all_of(config: dict[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Their fingerprints, each worked out once."""
    memo: dict[str, str] = {}
    return {step: fingerprint(step, config, memo) for step in names}


def test_order_of_keys_does_not_count() -> None:
    there = validate({"language": {"select": {"languages": ["en"], "threshold": 0.5}}, "data": "x"})
    back = validate({"data": "x", "language": {"select": {"threshold": 0.5, "languages": ["en"]}}})
    assert fingerprint("language.select", there) == fingerprint("language.select", back)
    assert (
        canonical_json({"b": 1, "a": [2, 1]})
        == canonical_json({"a": [2, 1], "b": 1})
        != canonical_json({"a": [1, 2], "b": 1})
    )


def another(leaf: dict[str, Any]) -> Any:
    """A value that differs from the leaf's default and that the schema accepts, for the kinds that placement keys have."""
    default = leaf["default"]
    if "enum" in leaf:
        return next(value for value in leaf["enum"] if value != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return next(
            value for value in (default + 1, default - 1, default / 2) if schema_validator(leaf).is_valid(value)
        )
    if isinstance(default, str):
        return default + "x"
    return None


def test_placement_keys_are_in_no_fingerprint() -> None:
    # `tasks` decides which tasks there are: what is read by the report.
    placement = {path: another(leaf) for path, leaf in schema_leaves() if leaf.get("placement", "tasks") != "tasks"}
    overlay: dict[str, Any] = {}
    for path, value in placement.items():
        if value is not None and path != "data":
            node = overlay
            *folders, last = path.split(".")
            for folder in folders:
                node = node.setdefault(folder, {})
            node[last] = value
    overlay["sweep"]["random"]["keys"] = {"tokenize.train.vocabulary": [700]}  # count is refused without
    base, edited = validate({}), validate({**overlay, "data": "/elsewhere"})
    assert edited != base
    for step in written():
        # sweep.seeds makes variants, and this page is about all of them.
        assert step == COMPARE_ALL or fingerprint(step, base) == fingerprint(step, edited), step


def test_fingerprint_holds_the_settings_that_the_program_gets() -> None:
    body = json.loads(fingerprint("language.score", validate({})))
    assert body["config"] == lookup(validate({}), "language.score")
    assert set(body) == {"step", "config", "code", "files", "upstream"}
    assert digest("") == "e3b0c44298fc1c14"


def test_pairs_of_a_run_that_masks_and_searches_are_told_both() -> None:
    both = {"filters": ["language", "pii", "decontaminate"], "evaluate": {"public": {"presets": ["copa"]}}}
    for step in ("finetune.pairs", "align.pairs"):
        assert {"pii", "decontaminate"} <= set(tracked_settings(step, validate(both)))


def test_a_folder_of_data_that_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What files hold counts, and not where the folder lies that `{data}` stands for; the program gets the place of today."""
    monkeypatch.chdir(tmp_path)
    files = {"words/en": "x\n", "pairs.jsonl": "{}\n", "domains": "x.com\n", "web.txt": "A text."}
    for name, text in files.items():
        Path("one", name).parent.mkdir(parents=True, exist_ok=True)
        Path("one", name).write_text(text)
    Path("two").symlink_to("one")

    def project(data: str) -> Project:
        tree = {
            "data": data,
            "filters": ["url", "language", "toxicity"],
            "url": {"score": {"domains": ["{data}/domains"]}},
            "toxicity": {"score": {"lists": ["{data}/words"]}},
            "finetune": {"pairs": {"files": [{"path": "{data}/pairs.jsonl", "question": "{data}"}]}},
            "ingest": {"extract": {"sources": [{"name": "web", "kind": "text", "paths": ["{data}/*.txt"]}]}},
        }
        return Project(configuration.validate(tree))

    def marks(data: str) -> dict[str, str]:
        made = project(data)
        config = made.variants["main"]
        return {
            f"{step} {task}": made.fingerprint("main", step, task)
            for step in used_steps(config)
            for task in task_models(step, config)
        }

    before = marks("one")
    assert before == marks("two") == marks(f"{tmp_path}/two/")
    told = module.fingerprint_for_program(before["finetune.pairs "], "two")
    settings, mark = command_line.verified_settings("finetune.pairs", told)
    assert (
        settings["files"] == [{"path": "two/pairs.jsonl", "question": "{data}"}] and mark == before["finetune.pairs "]
    )
    assert command_line.verified_settings(
        "toxicity.score", module.fingerprint_for_program(before["toxicity.score "], "two")
    )[0]["lists"] == ["two/words"]
    assert module.fingerprint_for_program(before["language.score "], "two") == before["language.score "]
    Path("one/words/en").write_text("y\n")
    with pytest.raises(InputError, match=r"not what this run was planned with: two/words/en"):
        command_line.verified_settings(
            "toxicity.score", module.fingerprint_for_program(before["toxicity.score "], "two")
        )
    assert {name for name, mark in marks("two").items() if mark != before[name]} >= {"toxicity.score "}
