"""The index finds every run of SURE words that reading all documents finds, and is not taken for that of another corpus."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.commands.trace import index
from crawl2llm.commands.trace.attribution import (
    COLUMNS,
    TextQuery,
    documents_of_files,
    likely_documents,
    search_documents,
)
from crawl2llm.filters.decontaminate.words import split_words
from crawl2llm.formats.documents import DOCUMENT, Writer
from tests.unit import making

# Few words, so that texts share runs, also of one word again and again; Japanese has no spaces.
TEXT = st.lists(st.sampled_from(["a", "b", "C!", "d", "naïve", "今日は"]), max_size=40).map(" ".join)


def written(folder: Path, texts: list[str], each: int = 3) -> list[Path]:
    """Files of so many documents each, with row groups of two."""
    files = []
    for first in range(0, len(texts), each):
        files.append(folder / f"{first:05d}.parquet")
        with Writer(files[-1], DOCUMENT, 2) as writer:
            for number, text in enumerate(texts[first : first + each], first):
                writer.add(making.document(f"{number:032d}", text))
    return files


@given(TEXT, st.lists(TEXT, min_size=1, max_size=8))
@settings(max_examples=40)
def test_runs_are_those_of_reading_every_document(text: str, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        files = written(Path(name), [*texts, f"before it {text} after"])
        index.build_index(Path(name) / "index", files, "mark")
        found = index.open_index(Path(name) / "index", files, "mark")
        assert found is not None
        wanted = TextQuery(text, index.SURE_WORDS)
        some, sharing = likely_documents(found, text)
        assert sharing == len(some)
        one, other = (
            search_documents(wanted, found.document_rows(some, COLUMNS), 1000),
            search_documents(wanted, documents_of_files(files), 1000),
        )
        assert one[0] == other[0] and one[1].tolist() == other[1].tolist()
        if len(split_words(text)) >= index.SURE_WORDS:
            assert one[0][0].number >= len(split_words(text)) and one[1].all()


def test_an_index_is_that_of_one_corpus_and_is_built_anew_in_its_place(tmp_path: Path) -> None:
    folder, long = tmp_path / "index", " ".join(f"word{number}" for number in range(30))
    files = written(tmp_path, [long])
    assert index.open_index(folder, files, "one") is None
    (tmp_path / "index.part").mkdir()
    (tmp_path / "index.part/000.hash").write_bytes(b"of a build that was killed")
    index.build_index(folder, files, "one")
    assert index.open_index(folder, files, "another") is None
    found = index.open_index(folder, files, "one")
    assert found is not None and found.count_shared(index.text_fingerprints(long)).most_common(1)[0][0] == 0
    index.build_index(folder, written(tmp_path, ["short"]), "two")
    assert index.open_index(folder, files, "one") is None
    empty = index.open_index(folder, files, "two")
    assert empty is not None and not empty.count_shared(index.text_fingerprints(long))
    assert [path.name for path in tmp_path.glob("index*")] == ["index"]


def test_an_index_that_is_not_whole_is_none(tmp_path: Path) -> None:
    """After a copy that broke off: a part that is lacking would be taken for one that no document has."""
    folder, long = tmp_path / "index", " ".join(f"word{number}" for number in range(300))
    files = written(tmp_path, [long])
    index.build_index(folder, files, "one")
    for path in [*folder.glob("*.hash"), *folder.glob("*.document"), folder / "index.json"][::7]:
        whole = path.read_bytes()
        for left in (None, whole[:-8]):
            path.unlink() if left is None else path.write_bytes(left)
            assert index.open_index(folder, files, "one") is None, path
        path.write_bytes(whole)
    assert index.open_index(folder, files, "one") is not None
    (folder / "index.json").write_text('{"format": 2, "of": "one"}')
    assert index.open_index(folder, files, "one") is None
