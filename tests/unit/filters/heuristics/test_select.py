"""The two steps on documents in files: counts, curated documents, order and batches."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.heuristics import score, select
from crawl2llm.formats.documents import DOCUMENT, VERDICT, Writer, parquet_file, rows
from tests.unit import making
from tests.unit.filters.heuristics.cases import page

LANGUAGE = score.pa.schema([("id", score.pa.string()), ("language", score.pa.string())])
Document = dict[str, Any]

DOCUMENTS: list[Document] = [
    {"id": "good", "text": page()},
    {"id": "short", "text": "Too short. the of"},
    {"id": "short-curated", "text": "Too short. the of", "curated": True},
    {"id": "curly", "text": page() + "\nSome code is { here."},
    {"id": "not-kept", "text": "dropped by language.select", "gone": True},
    {"id": "other", "text": page(start=""), "language": "xx"},
]


def write(folder: Path, shards: dict[str, list[Document]]) -> None:
    """Manifests of ingest.extract, language.score and language.select over the documents of each shard."""
    verdicts = []
    for shard, documents in shards.items():
        tables: list[tuple[str, Any, list[Document]]] = [
            ("extract", DOCUMENT, [{"source": "test", "curated": False, **row} for row in documents]),
            ("language", LANGUAGE, [{"language": "en", **row} for row in documents]),
        ]
        for name, schema, table in tables:
            with Writer(folder / name / f"{shard}.parquet", schema, batch=2) as writer:
                for row in table:
                    writer.add({key: row[key] for key in schema.names if key in row})
            Manifest(name, "test").write(folder / name / f"{shard}.manifest.json", [writer.path])
        with Writer(folder / "kept" / f"{shard}.parquet", VERDICT) as writer:
            for row in documents:
                writer.add({"id": row["id"], "kept": not row.get("gone"), "rules": []})
        verdicts.append(writer.path)
    Manifest("language.select", "test").write(folder / "kept" / "manifest.json", verdicts)


def run(folder: Path, shards: dict[str, list[Document]], skipped_by: Sequence[str] = ()) -> list[Manifest]:
    """Both steps; the manifests of heuristics.select. skipped_by: sources that skip the filter; documents are of `test`, or say."""
    write(folder, shards)
    mark = {name: making.config(f"heuristics.{name}", skipped_by) for name in ("score", "select")}
    done = []
    for shard in shards:
        out = folder / "score" / f"{shard}.manifest.json"
        argv = ["--config", mark["score"], "--manifest", str(out), "--verdicts", str(folder / "kept" / "manifest.json")]
        argv += ["--documents", str(folder / "extract" / out.name), "--languages", str(folder / "language" / out.name)]
        assert score.main(argv) == 0
        judged = folder / "select" / out.name
        assert select.main(["--config", mark["select"], "--manifest", str(judged), "--signals", str(out)]) == 0
        done.append(Manifest.read(judged))
    return done


def test_verdicts_and_counts(tmp_path: Path) -> None:
    done = run(tmp_path, {"00000": DOCUMENTS[:3], "00001": DOCUMENTS[3:]})
    found = {row["id"]: row for number in range(2) for row in rows(done[number].file(f"0000{number}.parquet"))}
    assert {name: row["kept"] for name, row in found.items()} == {
        "good": True,
        "short": False,
        "short-curated": True,
        "curly": False,
        "other": True,
    }
    short, spared, curly = found["short"], found["short-curated"], found["curly"]
    assert (short["rule"], short["value"], short["threshold"]) == ("gopher_quality.words_min", 4, 50)
    assert short["rules"] == spared["rules"] and len(short["rules"]) > 1
    assert spared["rule"] is None
    assert (curly["rules"], curly["value"]) == (["c4.curly_brackets_max"], 1)
    assert done[0].counts == {"in": 3, "kept": 2, "dropped": {"gopher_quality.words_min": 1}}
    assert done[1].counts == {"in": 2, "kept": 1, "dropped": {"c4.curly_brackets_max": 1}}
    assert [made.summary["curated_exempt"] for made in done] == [1, 0]
    assert done[0].summary["thresholds"] == done[1].summary["thresholds"]
    assert done[0].summary["thresholds"].keys() == done[0].summary["rules"].keys()
    assert done[0].summary["thresholds"]["gopher_quality.words_min"] == 50
    table = [made.summary["rules"] for made in done]
    assert table[1]["c4.curly_brackets_max"] == {"dropped": 1, "unique": 1, "not_applicable": 0}
    assert table[0]["gopher_quality.words_min"] == {"dropped": 1, "unique": 0, "not_applicable": 0}
    assert table[1]["gopher_quality.stop_words_min"]["not_applicable"] == 1
    scored = Manifest.read(tmp_path / "score" / "00001.manifest.json")
    assert scored.summary["without_stop_words"] == {"xx": 1}
    assert scored.counts == {"in": 2, "kept": 2, "dropped": {}}


def test_a_source_that_skips_it_stays_and_no_rule_counts_it(tmp_path: Path) -> None:
    given = [{**row, "source": "books"} for row in DOCUMENTS[:3]] + DOCUMENTS[3:]
    (made,) = run(tmp_path, {"00000": given}, ["books"])
    found = {row["id"]: row for row in rows(made.file("00000.parquet"))}
    assert found["short"]["kept"] and found["short"]["rule"] is None and found["short"]["value"] is None
    assert "gopher_quality.words_min" in found["short"]["rules"] and not found["curly"]["kept"]
    assert made.counts == {"in": 5, "kept": 4, "dropped": {"c4.curly_brackets_max": 1}}
    assert (made.summary["source_exempt"], made.summary["curated_exempt"]) == (1, 1)
    assert {name for name, rule in made.summary["rules"].items() if rule["dropped"]} == {"c4.curly_brackets_max"}
    (never,) = run(tmp_path / "other", {"00000": given}, ["other"])
    assert never.counts["kept"] == 3 and never.summary["source_exempt"] == 0


def test_order_of_documents_does_not_matter(tmp_path: Path) -> None:
    shuffled = random.Random(1).sample(DOCUMENTS, len(DOCUMENTS))  # noqa: S311
    (first,) = run(tmp_path / "a", {"00000": DOCUMENTS})
    (second,) = run(tmp_path / "b", {"00000": shuffled})
    assert first.counts == second.counts
    assert first.summary["rules"] == second.summary["rules"]
    for folder in ("score", "select"):
        name = "00000.parquet"
        one, two = ({row["id"]: row for row in rows(tmp_path / side / folder / name)} for side in "ab")
        assert one == two
    kept = [row["id"] for row in shuffled if not row.get("gone")]
    assert [row["id"] for row in rows(tmp_path / "b" / "score" / "00000.parquet")] == kept


def test_twice_the_same_bytes(tmp_path: Path) -> None:
    (first,), (second,) = (run(tmp_path / side, {"00000": DOCUMENTS}) for side in "ab")
    assert first.files == second.files
    assert parquet_file(tmp_path / "a" / "score" / "00000.manifest.json").read_bytes() == (
        parquet_file(tmp_path / "b" / "score" / "00000.manifest.json").read_bytes()
    )


def test_empty_shard(tmp_path: Path) -> None:
    done = run(tmp_path, {"00000": [], "00001": DOCUMENTS})
    assert done[0].counts == {"in": 0, "kept": 0, "dropped": {}}
