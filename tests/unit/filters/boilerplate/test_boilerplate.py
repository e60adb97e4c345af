"""boilerplate: lines that are on many pages of their host, counted exactly over all shards, and taken out."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.boilerplate import count, frequent, keys, score, select
from crawl2llm.formats import hash_shuffle, surviving_texts
from crawl2llm.formats.documents import rows
from crawl2llm.text.blocks import compared_lines
from crawl2llm.text.group_split import url_host
from tests.conftest import LONG
from tests.unit import making

Pages = list[dict[str, Any]]
EXAMPLES = 80 if os.environ.get(LONG) else 8  # each runs all steps


def page(number: int, site: str, *lines: str, **more: Any) -> dict[str, Any]:
    return making.document(f"{number:04d}", "\n".join(lines), url=f"https://{site}/{number}", **more)


def run(folder: Path, shards: list[Pages], skipped: list[str] | None = None, parts: int = 1, **of: Any) -> list[Path]:
    """All steps over these shards; the manifests of select, by shard. of: settings of frequent and select."""
    names = [f"{number:05d}" for number in range(len(shards))]
    documents = [making.documents(folder / "d", pages, name) for pages, name in zip(shards, names, strict=True)]
    verdicts = making.checked(folder / "v", *documents)
    thresholds = {key: of[key] for key in ("documents_min", "share_min") if key in of}
    left = {key: of[key] for key in ("words_min", "removed_max") if key in of}

    def step(program: Any, name: str, task: str, config: str, *argv: str) -> Path:
        out = folder / name / f"{task}.manifest.json"
        assert program.main(["--config", config, *argv, "--manifest", str(out)]) == 0
        return out

    def read(number: int) -> list[str]:
        return ["--documents", str(documents[number]), "--verdicts", str(verdicts)]

    counts = [
        step(count, "count", name, making.config("boilerplate.count", skipped or []), *read(number))
        for number, name in enumerate(names)
    ]
    found = [
        step(frequent, "frequent", f"{part:03d}", making.config("boilerplate.frequent", **thresholds),
             "--counts", *map(str, counts))
        for part in range(parts)
    ]  # fmt: skip
    made = []
    for number, name in enumerate(names):
        argv = [*read(number), "--frequent", *map(str, found)]
        scored = step(score, "score", name, making.config("boilerplate.score", skipped or []), *argv)
        config = making.config("boilerplate.select", skipped or [], **left)
        made.append(step(select, "select", name, config, "--signals", str(scored)))
    return made


def texts(folder: Path, shards: int) -> dict[str, str]:
    """What is left of every document, by id, whatever select says."""
    return {
        row["id"]: row["text"]
        for number in range(shards)
        for row in surviving_texts.texts(
            folder / f"d/{number:05d}.manifest.json",
            folder / "v/manifest.json",
            [folder / f"score/{number:05d}.manifest.json"],
            [],
        )
    }


STORIES = [f"Story {name} of this page." for name in ("one", "two", "six", "ten")]
SITE = [page(n, "a.org", "Home | News", story, "© 2026 A") for n, story in enumerate(STORIES)]
SITE[3]["text"] = SITE[3]["text"].replace("2026", "2025")  # digits do not count
OTHER = [page(9, "b.org", "Home | News", "A page of another host.")]


def test_a_line_that_is_on_most_pages_of_its_host_goes(tmp_path: Path) -> None:
    made = run(tmp_path, [SITE[:2], SITE[2:] + OTHER], documents_min=3, share_min=0.5, words_min=3)
    found = texts(tmp_path, 2)
    assert found == {f"{n:04d}": story for n, story in enumerate(STORIES)} | {"0009": OTHER[0]["text"]}
    assert [Manifest.read(path).counts["kept"] for path in made] == [2, 3]
    spans = list(rows(Manifest.read(tmp_path / "score/00000.manifest.json").file("spans/00000.parquet")))
    assert [(row["id"], row["start"], row["end"], row["rule"]) for row in spans[:2]] == [
        ("0000", 0, 12, "frequent"),
        ("0000", 35, 44, "frequent"),
    ]
    assert Manifest.read(tmp_path / "frequent/000.manifest.json").summary == {"hosts": 2, "lines": 8, "frequent": 2}
    assert Manifest.read(tmp_path / "score/00000.manifest.json").summary == {"edited": 2, "taken": {"lines": 4}}


@pytest.mark.parametrize("thresholds", [{"documents_min": 5, "share_min": 0}, {"documents_min": 2, "share_min": 1}])
def test_both_thresholds_have_to_be_met(tmp_path: Path, thresholds: dict[str, float]) -> None:
    """Four of the five pages of the host have the line."""
    pages = [*SITE, page(5, "a.org", "A page without a menu.")]
    run(tmp_path, [pages], **thresholds)
    assert texts(tmp_path, 1) == {row["id"]: row["text"] for row in pages}


def test_too_little_is_left(tmp_path: Path) -> None:
    pages = [*SITE, page(5, "a.org", "Home | News"), page(6, "a.org", "Short.")]
    (made,) = run(tmp_path, [pages], documents_min=3, share_min=0.5, words_min=6)
    verdicts = {row["id"]: row for row in rows(Manifest.read(made).file("00000.parquet"))}
    assert Manifest.read(made).counts == {"in": 6, "kept": 1, "dropped": {"characters_min": 1, "words_min": 4}}
    assert verdicts["0005"]["rules"] == ["characters_min", "words_min"]
    assert (verdicts["0000"]["value"], verdicts["0000"]["threshold"]) == (5, 6)
    assert verdicts["0006"]["kept"], "nothing was taken out of it"


def test_a_large_share_was_removed(tmp_path: Path) -> None:
    (made,) = run(tmp_path, [SITE], documents_min=3, share_min=0.5, words_min=0, removed_max=0.4)
    assert Manifest.read(made).counts["dropped"] == {"removed_max": 4}


def test_who_takes_no_part(tmp_path: Path) -> None:
    """Curated documents, sources that skip the filter, and documents without a host neither count nor change."""
    pages = [
        *(page(n, "a.org", "Home | News", f"Page {n}.", curated=True) for n in range(3)),
        *(page(n, "a.org", "Home | News", f"Page {n}.", source="books") for n in range(3, 6)),
        *(making.document(f"{n:04d}", "Home | News\nText.", url=None) for n in range(6, 9)),
        page(9, "a.org", "Home | News", "The only page that counts."),
    ]
    run(tmp_path, [pages], ["books"], documents_min=2, share_min=0)
    assert texts(tmp_path, 1) == {row["id"]: row["text"] for row in pages}
    assert Manifest.read(tmp_path / "count/00000.manifest.json").summary == {"counted": 1, "rows": 3}


PAGE = st.tuples(st.sampled_from(["a.org", "b.org", "c.org"]), st.lists(st.sampled_from("ABCDEF*"), max_size=6))


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PAGE, min_size=1, max_size=12), st.integers(2, 4), st.sampled_from([0, 0.3, 0.7]), st.integers(1, 3))
def test_equals_counting_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    site: list[tuple[str, list[str]]],
    least: int,
    share: float,
    number: int,
) -> None:
    """Whatever the shards, and in blocks and pieces of any size."""
    for name, size in {"BLOCK": 3, "GROUP_ROWS": 2, "HELD_ROWS": 2, "SHARDS": 1}.items():
        monkeypatch.setattr(hash_shuffle, name, size)
    pages = [page(n, name, *own) for n, (name, own) in enumerate(site)]
    folder = tmp_path_factory.mktemp("run")
    made = run(folder, [pages[n::number] for n in range(number)], documents_min=least, share_min=share, words_min=0)
    documents = Counter(url_host(row["url"]) for row in pages)
    counted = Counter(
        (url_host(row["url"]), line) for row in pages for line in set(compared_lines(row["text"])) if line
    )

    def stays(row: dict[str, Any], line: str) -> bool:
        name, (plain,) = url_host(row["url"]), compared_lines(line)
        of = counted[name, plain]
        return not plain or of < least or of < share * documents[name]

    left = {row["id"]: [line for line in row["text"].split("\n") if line and stays(row, line)] for row in pages}
    assert {name: [line for line in text.split("\n") if line] for name, text in texts(folder, number).items()} == left
    totals = [Manifest.read(path).counts for path in made]
    assert sum(total["in"] for total in totals) == len(pages)


def test_no_line_has_the_key_of_the_documents() -> None:
    assert keys.line_keys("A\n\n***\nB 1\nb 2!", 7)[1:3] == [None, None]
    one, *_, two, three = keys.line_keys("A\n\n***\nB 1\nb 2!", 7)
    assert two == three != one and keys.line_keys("A", 8) != [one]
    assert (
        list(keys.line_rows("A\nA\n\nB", 7)["key"]).count(keys.DOCUMENTS) == 1
        and len(keys.line_rows("A\nA\n\nB", 7)) == 3
    )
