"""The pages for people lead to what is there, and name one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from crawl2llm.core.root import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
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


def test_the_tree_of_the_readme_is_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"^config\.yaml {2,}.*?(?=^```)", readme, re.MULTILINE | re.DOTALL)
    assert tree
    lines = [line.replace("<stage>", "corpus").replace("<filter>", "url") for line in tree[0].splitlines()]
    names = [("scripts/crawl2llm/" if line.startswith(" ") else "") + line.split()[0] for line in lines]
    assert len(names) > 10
    assert all((ROOT / name).exists() for name in names)


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[(\d[^]]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert newest.groups() == (citation["version"], citation["date-released"])
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"] == "Apache-2.0"
