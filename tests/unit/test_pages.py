"""The pages for people lead to what is there, and name one version."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from crawl2llm.core.root import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = ROOT / "scripts" / "crawl2llm"
# Names in backticks: `module.name`, and those beside the file that has them: `NAME` in `file.py`, `file.py`, `NAME`.
MODULE_NAME = re.compile(r"`([a-z_]+)\.([A-Za-z_]+)(?:\([^`]*\))?`")
NAMES_IN_FILE = re.compile(r"`(\w+)`(?: and `(\w+)`)? (?:of|in) `([\w/]+\.py)`")
FILE_AND_NAME = re.compile(r"`([\w/]+\.py)`, `(\w+)`")
IDENTIFIER = re.compile(r"`([A-Z][A-Z_]{2,}|[a-z]+(?:_[a-z]+)+)`")
ENDINGS = {"md", "py", "smk", "yaml", "json", "toml", "txt"}
LINK = re.compile(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)")


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in headings(target), f"{path}#{anchor}"


def test_the_packages_of_the_tour_are_there() -> None:
    page = (ROOT / "docs/change.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `([a-z]+)/(?:<\w+>/)?` \|", page, re.MULTILINE)
    assert set(names) == {path.parent.name for path in CODE.glob("*/__init__.py")} | {"stages", "filters"}


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs/README.md"
    links = {(index.parent / path).resolve() for path, _ in LINK.findall(index.read_text(encoding="utf-8")) if path}
    assert {path for path in (ROOT / "docs").rglob("*.md")} - {index} <= links


def test_the_docs_stay_short() -> None:
    """Words have a letter or a digit; signs of tables are none."""
    words = sum(any(map(str.isalnum, word)) for page in PAGES for word in page.read_text(encoding="utf-8").split())
    assert words <= 70_000
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[(\d[^]]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert newest.groups() == (citation["version"], citation["date-released"])
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"] == "Apache-2.0"


def names_of(files: Iterable[Path]) -> set[str]:
    """The functions, classes, methods, variables and attributes that these modules define."""
    names = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def test_names_in_the_guides_for_contributors_exist() -> None:
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "change.md"]
    text = " ".join(" ".join(page.read_text(encoding="utf-8") for page in pages).split())
    packages = {path.parent.name for path in CODE.rglob("__init__.py")}
    beside = [(name, place) for *names, place in NAMES_IN_FILE.findall(text) for name in names if name]
    beside += [(name, place) for place, name in FILE_AND_NAME.findall(text)]
    in_module = [pair for pair in MODULE_NAME.findall(text) if pair[1] not in ENDINGS and pair[0] not in packages]
    of_module = [(name, f"{module}.py") for module, name in in_module if any(CODE.rglob(f"{module}.py"))]
    assert len(beside) > 10 and len(of_module) > 2
    lacking = []
    for name, place in beside + of_module:
        files = [ROOT / place] if "/" in place else CODE.rglob(place)
        if name not in names_of(files):
            lacking.append(f"{place}: {name}")
    assert not lacking
    words = set()
    for path in [*CODE.rglob("*.py"), ROOT / "pyproject.toml"]:
        words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    assert not set(IDENTIFIER.findall(text)) - words
