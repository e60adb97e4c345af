"""language.select: which documents stay, and why the others go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language import score, select
from crawl2llm.filters.language.settings import SelectSettings
from crawl2llm.formats.documents import Writer, rows
from tests.unit import making

ROWS = [
    ("a", "en", 0.9),
    ("b", "en", 0.65),
    ("c", "en", 0.6499),
    ("d", "de", 0.99),
    ("e", "de", 0.1),
    ("f", "und", 0.0),
]


DEFAULT = configuration.validate({})["language"]["select"]


def judged(row: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return making.verdict("language", row, {**DEFAULT, **settings}, row["language"])


@pytest.mark.parametrize(
    ("languages", "threshold", "kept"),
    [(["en"], 0.65, "ab"), (["en", "de"], 0.65, "abd"), ([], 0.65, "abd"), ([], 0, "abcdef"), (["fr"], 0, "")],
)
def test_judge(languages: list[str], threshold: float, kept: str) -> None:
    found = [
        judged({"id": name, "language": language, "score": value}, languages=languages, threshold=threshold)
        for name, language, value in ROWS
    ]
    assert "".join(verdict["id"] for verdict in found if verdict["kept"]) == kept
    for verdict in found:
        assert (verdict["rule"] is None) == verdict["kept"] == (verdict["rules"] == [])
        assert verdict["rule"] is None or verdict["rule"] == verdict["rules"][0]


def test_all_rules_that_drop_a_document_are_named() -> None:
    assert judged({"id": "x", "language": "de", "score": 0.2}) == {
        "id": "x",
        "kept": False,
        "rule": "language",
        "value": None,
        "threshold": None,
        "detail": "de",
        "rules": ["language", "score"],
    }


def step(folder: Path, skipped_by: Sequence[str] = ()) -> list[Manifest]:
    """The manifests of both shards; documents of d and later letters are of the source `books`, others of `web`."""
    given = []
    for shard, part in (("00000", ROWS[:3]), ("00001", ROWS[3:])):
        with Writer(folder / "score" / f"{shard}.parquet", score.SIGNAL) as writer:
            for name, language, value in part:
                source = "books" if name >= "d" else "web"
                writer.add({"id": name, "source": source, "language": language, "score": value, "characters": 9})
        given.append(folder / "score" / f"{shard}.manifest.json")
        Manifest("language.score", "x").write(given[-1], [folder / "score" / f"{shard}.parquet"])
    argv = ["--config", making.config("language.select", skipped_by), "--signals", str(given[0]), "--also", "00001"]
    assert select.main([*argv, "--manifest", str(folder / "select/00000.manifest.json")]) == 0
    return [Manifest.read(folder / "select" / path.name) for path in given]


def test_a_source_that_skips_it_is_kept_in_any_language(tmp_path: Path) -> None:
    first, second = step(tmp_path, ["books"])
    assert first.counts == {"in": 3, "kept": 2, "dropped": {"score": 1}} and first.summary["source_exempt"] == 0
    assert second.counts == {"in": 3, "kept": 3, "dropped": {}} and second.summary["source_exempt"] == 3
    assert second.summary["languages"] == {"de": 2, "und": 1}, "the label stays"
    found = list(rows(second.file("00001.parquet")))
    assert [row["rules"] for row in found] == [["language"], ["language", "score"], ["language", "score"]]
    assert all(row["kept"] and row["rule"] is None and row["detail"] is None for row in found)


def test_step(tmp_path: Path) -> None:
    first, second = step(tmp_path)
    assert first.counts == {"in": 3, "kept": 2, "dropped": {"score": 1}}
    assert second.counts == {"in": 3, "kept": 0, "dropped": {"language": 3}}
    assert first.summary["languages"] == {"en": 3} and second.summary["languages"] == {"de": 2, "und": 1}
    assert [row["id"] for row in rows(second.file("00001.parquet"))] == ["d", "e", "f"]
    assert list(second.inputs) == ["language.score 00001"], "the shard's own alone"


def test_thresholds_of_languages() -> None:
    row = {"id": "x", "language": "hr", "score": 0.4}
    assert select.thresholds_by_language(SelectSettings(languages=["hr", "en"])) == {"hr": 0.3}
    assert select.thresholds_by_language(SelectSettings(languages=[], thresholds={"fi": 0.5})) == {"fi": 0.5}
    assert select.thresholds_by_language(SelectSettings(languages=["hr"], threshold=0.2)) == {}, (
        "a lower one for all holds"
    )
    assert judged(row, languages=["hr"])["kept"] and not judged({**row, "score": 0.2}, languages=["hr"])["kept"]
    assert not judged(row, languages=["hr"], thresholds={"hr": 0.65})["kept"]
    assert judged(row, languages=[], threshold=0.3, thresholds={"hr": 0.5})["threshold"] == 0.5
