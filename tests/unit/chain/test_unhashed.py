"""Where the line runs between code that decides bytes and plumbing: every module is edited once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from crawl2llm.chain import fingerprint as module
from crawl2llm.chain.fingerprint import code_hashes, import_closure
from crawl2llm.chain.steps import STEPS, program_of
from crawl2llm.chain.unhashed import PLUMBING, is_plumbing
from crawl2llm.core.plan_cache import Cache
from crawl2llm.core.root import ROOT

TABLE = yaml.safe_load(Path(__file__).with_name("modules.yaml").read_text(encoding="utf-8"))
MODULES = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "scripts").rglob("*.py") if "__pycache__" not in path.parts
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def codes(root: Path) -> dict[str, dict[str, str]]:
    module._meaning_and_imports.cache_clear()
    code_hashes.cache_clear()
    return {step: code_hashes(program_of(step), root) for step in STEPS}


@pytest.fixture(scope="module")
def before(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    module._cached = Cache(tmp_path_factory.mktemp("cache") / "meanings.json")
    return codes(copy)


def codes_after_edits(copy: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """The code of every step after an edit of these modules, which is taken back."""
    held = {copy / name: (copy / name).read_text(encoding="utf-8") for name in names}
    try:
        for path, text in held.items():
            path.write_text(f"{text}\nEDITED = 1\n", encoding="utf-8")
        return codes(copy)
    finally:
        for path, text in held.items():
            path.write_text(text, encoding="utf-8")


HASHED = [name for name in MODULES if not is_plumbing(name)]


@pytest.fixture(scope="module")
def after(copy: Path, before: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """After an edit of all modules that are hashed: a step's code names each with a hash, so the edits can be told apart."""
    return codes_after_edits(copy, HASHED)


@pytest.mark.parametrize("name", HASHED)
def test_an_edit_reruns_exactly_the_steps_that_the_table_names(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]], name: str
) -> None:
    changed = {step for step in STEPS if after[step].get(name) != before[step].get(name)}
    assert name in TABLE, f"modules.yaml lacks {name}: {sorted(changed)}"
    assert changed == (set(STEPS) if TABLE[name] == "all" else set(TABLE[name]))


def test_an_edit_of_all_plumbing_reruns_nothing(copy: Path, before: dict[str, dict[str, str]]) -> None:
    assert codes_after_edits(copy, [name for name in MODULES if is_plumbing(name)]) == before


def test_the_lists_name_what_is_there_and_give_reasons() -> None:
    assert all(list(ROOT.glob(name)) for name in [*TABLE, *PLUMBING])
    assert not [name for name in TABLE if is_plumbing(name)]
    assert all(PLUMBING.values())


def test_what_computes_bytes_is_not_plumbing() -> None:
    for step in STEPS:
        assert f"scripts/{program_of(step).replace('.', '/')}.py" in import_closure(program_of(step))


def test_the_number_raised_by_hand_reruns_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    code_hashes.cache_clear()
    old = {step: code_hashes(program_of(step)) for step in STEPS}
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    code_hashes.cache_clear()
    assert all(code_hashes(program_of(step)) != old[step] for step in STEPS)
    code_hashes.cache_clear()
