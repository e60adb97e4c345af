"""`crawl2llm decontaminate`: every format in and out, what is not touched stays byte by byte, and what is wrong is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from crawl2llm.filters.decontaminate import command
from crawl2llm.filters.decontaminate.corpora import edit_file

ITEM = (
    "Which of these four animals of the savannah sleeps for the shortest time in each night, as far as anybody knows?"
)
CLEAN = "Nothing of the kind is on this page, which tells of boats and of the weather on the coast. \u00e9"
DIRTY = f"{CLEAN} {CLEAN}\n{ITEM.upper()} {CLEAN}"
CUT = f"{CLEAN} {CLEAN}\n? {CLEAN}"
LINES = "".join(json.dumps({"id": n, "body": text}) + "\n" for n, text in enumerate([CLEAN, DIRTY, CLEAN]))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_text(LINES)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    (folder / "deep/c.jsonl.zst").write_bytes(zstandard.compress(LINES.encode()))
    pq.write_table(pa.table({"id": [0, 1, 2], "body": [CLEAN, DIRTY, None]}), folder / "d.parquet")
    (folder / "e.txt").write_text(DIRTY)
    (folder / "f.txt.zst").write_bytes(zstandard.compress(CLEAN.encode()))
    (folder / "notes.md").write_text(DIRTY)
    (tmp_path / "own.txt").write_text(f"{ITEM}\nNot here at all: {ITEM[20:40]} and the rest of another question?\n")
    return folder


def run(corpus: Path, *options: str) -> int:
    own = str(corpus.parent / "own.txt")
    return command.main([str(corpus), "--text-key", "body", "--items", own, *options])


def test_drop(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(corpus, "--out", str(out)) == 0
    kept = [line for line in LINES.splitlines(keepends=True) if "SAVANNAH" not in line]
    assert (out / "a.jsonl").read_text() == "".join(kept)
    assert gzip.decompress((out / "b.jsonl.gz").read_bytes()).decode() == "".join(kept)
    with zstandard.open(out / "deep/c.jsonl.zst", "rt", encoding="utf-8") as lines:
        assert lines.read() == "".join(kept)
    assert pq.read_table(out / "d.parquet").to_pylist() == [{"id": 0, "body": CLEAN}, {"id": 2, "body": None}]
    assert not (out / "e.txt").exists() and (out / "f.txt.zst").exists()
    report = json.loads((out / "report.json").read_text())
    assert report["documents"] == {"clean": 8, "dropped": 5, "cut": 0}
    assert report["sets"] == {"own": {"items": 2, "short": 0, "documents": 5, "found": 1}}
    matches = [json.loads(line) for line in (out / "matches.jsonl").read_text().splitlines()]
    assert len(matches) == 5 and {match["overlap"] for match in matches} == {1.0}
    assert f"{corpus}/a.jsonl#2" in {match["document"] for match in matches}


def test_cut(corpus: Path, tmp_path: Path) -> None:
    assert run(corpus, "--out", str(tmp_path / "out"), "--action", "cut") == 0
    rows = [json.loads(line) for line in (tmp_path / "out/a.jsonl").read_text().splitlines()]
    assert rows == [{"id": 0, "body": CLEAN}, {"id": 1, "body": CUT}, {"id": 2, "body": CLEAN}]
    assert (tmp_path / "out/e.txt").read_text() == CUT


def test_a_report_alone_writes_nothing(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(corpus.parent.rglob("*"))
    assert run(corpus) == 0
    assert "5 of 13 documents hold items: 5 to drop, 0 to cut" in capsys.readouterr().out
    assert sorted(corpus.parent.rglob("*")) == before


def test_what_is_wrong_is_named(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*argv: str) -> str:
        assert command.main(list(argv)) == 1
        return capsys.readouterr().err

    own = str(tmp_path / "own.txt")
    assert "nothing to search for" in said(str(corpus))
    assert "a.jsonl, line 1: no text in 'text'; it has id, body: name the column by --text-key" in said(
        str(corpus), "--items", own
    )
    assert "is the corpus folder" in said(str(corpus), "--items", own, "--out", str(corpus))
    assert "allowed are .jsonl" in said(str(corpus / "notes.md"), "--items", own)
    (corpus / "a.jsonl").write_text('{"body": ')
    assert "a.jsonl, line 1: not JSON" in said(str(corpus), "--text-key", "body", "--items", own)
    (corpus / "a.jsonl").unlink()
    (corpus / "b.jsonl.gz").write_bytes((corpus / "b.jsonl.gz").read_bytes()[:-30])
    assert "b.jsonl.gz" in said(str(corpus), "--text-key", "body", "--items", own, "--out", str(tmp_path / "out"))
    assert not list((tmp_path / "out").glob("*b.jsonl.gz*")), "no half of a file is left"


def test_documents_are_read_across_blocks_and_without_a_last_line_break(tmp_path: Path) -> None:
    path, out, seen = tmp_path / "a.jsonl", tmp_path / "b.jsonl", list[str]()
    path.write_text("\n".join(json.dumps({"text": f"{n} {'x' * 700_000}"}) for n in range(4)))
    sizes: list[int] = []
    edit_file(path, out, "text", lambda _, text: seen.append(text[:2]) or text, sizes.append)
    assert (
        seen == ["0 ", "1 ", "2 ", "3 "] and out.read_bytes() == path.read_bytes() and sum(sizes) == path.stat().st_size
    )
