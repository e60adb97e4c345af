"""licence: what a document says of its licence, and which are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.licence import names, score, select
from crawl2llm.formats.documents import rows
from tests.unit import making


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"licence": "cc-by-4.0", "licence_from": "rel"}, ("cc-by-4.0", "rel", 0)),
        ({"licence": "cc-by-4.0", "licence_from": "link", "licences_beside": 2}, ("cc-by-4.0", "link", 2)),
        ({"license": "CC BY-SA 3.0"}, ("cc-by-sa-3.0", "metadata", 0)),
        ({"license": "https://creativecommons.org/licenses/by-sa/3.0/"}, ("cc-by-sa-3.0", "metadata", 0)),
        ({"licence": ["MIT", "Apache-2.0", "mit"]}, ("mit", "metadata", 1)),
        ({"fields": {"meta.license": "mit"}}, ("mit", "metadata", 0)),
        ({"licence": []}, (None, None, 0)),
        ({"licence": None, "title": "x"}, (None, None, 0)),
        ({}, (None, None, 0)),
    ],
)
def test_what_metadata_says(metadata: dict[str, Any], found: tuple[str | None, str | None, int]) -> None:
    assert names.licence_of(metadata) == found


@pytest.mark.parametrize(
    ("name", "wanted", "kept"),
    [
        ("cc-by-4.0", ["cc-by"], True),
        ("cc-by", ["cc-by"], True),
        ("cc-by-sa-4.0", ["cc-by"], False),
        ("cc-by-nc-4.0", ["cc-by", "cc-by-sa"], False),
        ("cc-by-4.0", ["cc-by-3.0"], False),
        ("cc0-1.0", ["cc0"], True),
        ("gpl-3.0-only", ["gpl"], True),
        ("gpl-3.0-only", ["lgpl"], False),
        ("ogl-uk-3", ["ogl-uk"], True),
        ("cc-by-4.0", ["CC-BY"], True),
        ("cc-by-sa-3.0", ["CC BY-SA 3.0"], True),
        ("cc-by-nc-4.0", ["CC-BY"], False),
    ],
)
def test_allowed(name: str, wanted: list[str], kept: bool) -> None:
    assert names.is_allowed(name, wanted) is kept


def made(tmp_path: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    """Verdicts by id."""
    given = [
        making.document("by", "x", metadata=json.dumps({"licence": "cc-by-4.0", "licence_from": "rel"})),
        making.document("link", "x", metadata=json.dumps({"licence": "cc-by-4.0", "licence_from": "link"})),
        making.document("nc", "x", metadata=json.dumps({"licence": "cc-by-nc-4.0", "licence_from": "rel"})),
        making.document(
            "two", "x", metadata=json.dumps({"licence": "cc0-1.0", "licence_from": "rel", "licences_beside": 1})
        ),
        making.document("none", "x"),
        making.document("wiki", "x", source="wiki"),
        making.document("book", "x", curated=True),
        making.document("skips", "x", source="free"),
    ]
    documents = making.documents(tmp_path / "documents", given)
    verdicts = making.checked(tmp_path / "check", documents)
    signals, out = (tmp_path / name / "00000.manifest.json" for name in ("score", "select"))
    config = making.config("licence.score", sources={"wiki": "CC BY-SA 4.0"})
    argv = ["--config", config, "--documents", str(documents), "--verdicts", str(verdicts), "--manifest", str(signals)]
    assert score.main(argv) == 0
    assert Manifest.read(signals).summary["unknown"] == 3
    config = making.config("licence.select", ["free"], **settings)
    assert select.main(["--config", config, "--signals", str(signals), "--manifest", str(out)]) == 0
    return {row["id"]: row for row in rows(Manifest.read(out).file("00000.parquet"))}


def test_both_steps(tmp_path: Path) -> None:
    found = made(tmp_path)
    assert {name for name, row in found.items() if row["kept"]} == {"by", "wiki", "book", "skips"}
    assert {name: (row["rule"], row["detail"]) for name, row in found.items() if not row["kept"]} == {
        "link": ("said", "link"),
        "nc": ("licence", "cc-by-nc-4.0"),
        "two": ("beside", None),
        "none": ("unknown", "no licence is known"),
    }
    assert (found["two"]["value"], found["two"]["threshold"]) == (1, 0)
    assert found["book"]["rules"] == ["unknown"]


def test_keys(tmp_path: Path) -> None:
    found = made(tmp_path, unknown="keep", beside_max=None, said=["rel", "link"], allowed=["cc-by", "cc0"])
    assert {name for name, row in found.items() if not row["kept"]} == {"nc", "wiki"}
