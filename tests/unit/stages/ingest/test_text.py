"""Plain text and JSON Lines, bare, compressed and in a tar."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.formats.documents import document_id
from crawl2llm.stages.ingest import warc
from crawl2llm.stages.ingest.text import JsonLinesReader, TextReader, text_chunks, unwrap_lines
from crawl2llm.stages.ingest.warc import Page, RejectedRecord, tidy
from tests.unit.stages.ingest.warcs import SETTINGS, reasons, settings_with, source_of

CHECKED = zstandard.ZstdCompressor(write_checksum=True)


def text(path: Path, source: dict[str, Any] | None = None, **settings: Any) -> list[Page | RejectedRecord]:
    return list(TextReader(source_of({"name": "books", **(source or {})}), settings_with(**settings))(path))


def jsonl(path: Path, source: dict[str, Any] | None = None, **settings: Any) -> list[Page | RejectedRecord]:
    return list(JsonLinesReader(source_of({"name": "lines", **(source or {})}), settings_with(**settings))(path))


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        made.addfile(folder)
    return out.getvalue()


def texts(found: list[Page | RejectedRecord]) -> list[str]:
    return [each.text for each in found if isinstance(each, Page)]


def test_code_in_files_keeps_its_indentation(tmp_path: Path) -> None:
    """By the preset that rows have; without it lines are trimmed."""
    (tmp_path / "a.py").write_bytes(b"def f(x):\r\n    if  x:\n\n\n\treturn x  \n")
    (found,) = text(tmp_path / "a.py", {"preset": "code"})
    assert isinstance(found, Page) and found.text == "def f(x):\n    if  x:\n\n\n\treturn x  \n"
    assert texts(text(tmp_path / "a.py")) == ["def f(x):\nif x:\n\nreturn x"]
    pieces = texts(text(tmp_path / "a.py", {"preset": "code", "chunk_words": 1}))
    assert "".join(pieces).split() == found.text.split() and pieces[1] == "    if  x:"


def test_characters_that_are_not_seen_are_left_out(tmp_path: Path) -> None:
    """Of every text but code; U+200B stays between words of scripts that have no spaces."""
    (tmp_path / "a.txt").write_text("Do\u00adnau\u200bdampf\ufeff ไทย\u200bไทย\u200b می\u200cخواهم", encoding="utf-8")
    assert texts(text(tmp_path / "a.txt")) == ["Donaudampf ไทย\u200bไทย می\u200cخواهم"]
    assert "\u00ad" in texts(text(tmp_path / "a.txt", {"preset": "code"}))[0]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a\u00adb", "title": "c\u200bd"}), encoding="utf-8")
    (row,) = jsonl(tmp_path / "a.jsonl")
    assert isinstance(row, Page) and (row.text, row.metadata["title"]) == ("ab", "cd")


def test_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne  line\r\nand\ranother.\n\n\n\nEnd \xff.\n")
    (found,) = text(tmp_path / "a.txt")
    assert isinstance(found, Page) and found.text == "One line\nand\nanother.\n\nEnd \ufffd."
    assert (found.url, found.date, found.id) == ("file:books/a.txt#0", None, document_id("books", "a.txt", "", "0"))
    assert found.metadata == {"title": "a"}


PACKS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".GZ": gzip.compress,
    ".zst": zstandard.compress,
    ".zstd": zstandard.compress,
    ".bz2": bz2.compress,
    ".BZ2": bz2.compress,
    ".xz": lzma.compress,
    ".Xz": lzma.compress,
    ".of-another-name": bz2.compress,  # the first bytes decide
}


@pytest.mark.parametrize("suffix", PACKS)
def test_compressed_files_and_tars(tmp_path: Path, suffix: str) -> None:
    pack = PACKS[suffix]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"Some words."))
    assert texts(text(path)) == ["Some words."]
    path.write_bytes(pack(b"Some ") + pack(b"words."))
    assert texts(text(path)) == ["Some words."], "several members are one text"
    path = tmp_path / f"a.tar{suffix}"
    path.write_bytes(pack(tar({"x/b.txt": b"Second.", "a.txt": b"First.", "empty.txt": b""})))
    found = text(path)
    assert texts(found) == ["Second.", "First."] and reasons(found)["no_text"] == 1
    assert [each.url for each in found] == [
        f"file:books/a.tar{suffix}!/{name}#0" for name in ("x/b.txt", "a.txt", "empty.txt")
    ]
    (tmp_path / f"l.tar{suffix}").write_bytes(pack(tar({"a.jsonl": b'{"text": "One"}\n{"text": "Two"}'})))
    assert texts(jsonl(tmp_path / f"l.tar{suffix}")) == ["One", "Two"]


@pytest.mark.parametrize("name", ["a.tbz2", "a.tbz", "a.txz", "a.TGZ", "a.TAR.BZ2", "a.Tar"])
def test_a_tar_by_its_short_names(tmp_path: Path, name: str) -> None:
    pack = lzma.compress if "xz" in name else gzip.compress
    if "bz" in name.lower():
        pack = bz2.compress
    (tmp_path / name).write_bytes(pack(tar(MEMBERS)))
    assert reasons(text(tmp_path / name)) == {"page": 8}


def test_hard_wrapped_lines_are_joined_where_asked() -> None:
    assert unwrap_lines("One\n  two\nthree.\n\n\nFour\r\nfive.\n") == "One two three.\n\nFour five."


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 40))
def test_chunks_hold_all_paragraphs_and_are_large_enough(sizes: list[int], words: int) -> None:
    whole = "\n\n".join(" ".join(["word"] * size) for size in sizes)
    pieces = list(text_chunks(whole, words))
    assert "\n\n".join(pieces) == whole
    assert all(len(piece.split()) >= words for piece in pieces[:-1])
    assert len(pieces) == 1 or words


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), min_size=1, max_size=9), st.integers(1, 20))
def test_a_paragraph_that_is_too_long_is_cut_between_its_lines(paragraphs: list[list[int]], words: int) -> None:
    """A dump with an article a line has no blank line: it would be one document."""
    whole = "\n\n".join("\n".join(" ".join(["word"] * size) for size in sizes) for sizes in paragraphs)
    pieces = list(text_chunks(whole, words))
    assert "".join(pieces).replace("\n", "") == whole.replace("\n", "")
    assert all(piece in whole and len(piece.split()) < words + max(words, 9) + 1 for piece in pieces)
    assert all(len(piece.split()) >= words for piece in pieces[:-1])


def test_chunked_text_has_an_id_a_piece(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree\n\nfour five six\n\nseven")
    found = text(tmp_path / "a.txt", {"chunk_words": 3, "unwrap": True})
    assert texts(found) == ["one two three", "four five six", "seven"]
    assert len({each.id for each in found if isinstance(each, Page)}) == 3
    assert [each.metadata["piece"] for each in found if isinstance(each, Page)] == [0, 1, 2]


def identities(found: list[Page | RejectedRecord]) -> list[str]:
    return [each.id for each in found if isinstance(each, Page)]


def test_files_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    seen = []
    for name in ("AA/wiki_00", "AB/wiki_00"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text('{"text": "One."}\n{"text": "Two."}\n')
        for source in ("one", "two"):
            seen += identities(list(JsonLinesReader(source_of({"name": source}), SETTINGS)(tmp_path / name, name)))
            seen += identities(list(TextReader(source_of({"name": f"{source}-text"}), SETTINGS)(tmp_path / name, name)))
    assert len(set(seen)) == len(seen) == 12


def test_a_member_is_named_with_its_folders_and_its_tar(tmp_path: Path) -> None:
    for name in ("one.tar", "two.tar"):
        (tmp_path / name).write_bytes(tar({"x/a.txt": b"Words.", "y/a.txt": b"Words."}))
    found = [*text(tmp_path / "one.tar"), *text(tmp_path / "two.tar")]
    assert len(set(identities(found))) == len(found) == 4
    assert [each.metadata["member"] for each in found[:2] if isinstance(each, Page)] == ["x/a.txt", "y/a.txt"]
    assert found[0].url == "file:books/one.tar!/x/a.txt#0"


def test_a_tar_may_hold_a_name_again(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, words in (("a.txt", b"One."), ("a.txt", b"Two."), ("a.txt (2)", b"Three."), ("a.txt", b"Four.")):
            info = tarfile.TarInfo(name)
            info.size = len(words)
            made.addfile(info, io.BytesIO(words))
    (tmp_path / "a.tar").write_bytes(out.getvalue())
    found = text(tmp_path / "a.tar")
    assert texts(found) == ["One.", "Two.", "Three.", "Four."] and len(set(identities(found))) == 4


@given(st.lists(st.text(st.sampled_from("a/\x1e\x1f0"), max_size=4), min_size=1, max_size=4, unique=False), st.data())
def test_two_origins_have_two_ids(origin: list[str], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.text(st.sampled_from("a/\x1e\x1f0"), max_size=4), min_size=1, max_size=4))
    assert (document_id(*origin) == document_id(*other)) == (origin == other)


def test_text_over_the_limit_is_set_aside_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar({"big.txt": b"x" * 5000, "small.txt": b"Words."}))
    found = text(tmp_path / "a.tar", max_body_bytes=1024)
    assert reasons(found) == {"too_large": 1, "page": 1} and texts(found) == ["Words."]


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": "One.", "url": "https://a.org", "title": "T", "date": "2024-01-01", "more": [1]}),
        "",
        '{"text": broken',
        '{"text": 3}',
        '{"body": "no text"}',
        '["text"]',
        '{"text": ""}',
        '{"text": "\\ud800 lone \\u0000 surrogate", "url": "https://\\ud800", "title": 7}',
        "[" * 100_000,
        '{"text": "Last."}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = jsonl(tmp_path / "a.jsonl")
    assert reasons(found) == {"page": 3, "broken_record": 2, "no_text": 4}
    first, odd, last = (each for each in found if isinstance(each, Page))
    assert (first.text, first.url, first.date) == ("One.", "https://a.org", "2024-01-01")
    assert first.metadata == {"title": "T"}
    assert (odd.text, odd.url, odd.metadata["title"]) == ("lone surrogate", "https://", "7")
    assert last.url == "file:lines/a.jsonl#9" and last.id == document_id("lines", "a.jsonl", "", "9")


def test_key_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"content": "Words.", "text": "Others."}\n')
    assert texts(jsonl(tmp_path / "a.jsonl", {"text_key": "content"})) == ["Words."]


def test_line_over_the_limit_is_set_aside_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "%s"}\n{"text": "Next."}\n' % ("x" * 10_000))
    found = jsonl(tmp_path / "a.jsonl", max_body_bytes=1024)
    assert reasons(found) == {"too_large": 1, "page": 1} and texts(found) == ["Next."]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
@pytest.mark.parametrize(
    "name",
    [
        "a.jsonl.gz",
        "a.jsonl.zst",
        "a.jsonl.bz2",
        "a.jsonl.xz",
        "a.tar.gz",
        "a.tar.zst",
        "a.tar.bz2",
        "a.tar.xz",
        "a.tar",
    ],
)
def test_files_cut_short_or_damaged_keep_what_was_read_and_count_the_rest(
    tmp_path: Path, name: str, share: float
) -> None:
    lines = b"".join(b'{"text": "Line %d of the file %d"}\n' % (n, pow(7, n, 10**9 + 7)) for n in range(8000))
    data = tar({"a.jsonl": lines}) if ".tar" in name else lines
    data = {**PACKS, ".zst": CHECKED.compress, ".tar": bytes}[Path(name).suffix](data)
    at = int(len(data) * share)
    (tmp_path / name).write_bytes(data[:at])
    found = jsonl(tmp_path / name)
    assert sum(reasons(found).values()) < 8000 and set(reasons(found)) <= {"page", "broken_file", "broken_record"}
    assert reasons(found)["broken_file"] + reasons(found)["broken_record"] >= 1
    (tmp_path / name).write_bytes(data[:at] + b"\xff" * 64 + data[at + 64 :])
    found = jsonl(tmp_path / name)
    assert reasons(found)["broken_file"] + reasons(found)["broken_record"] >= 1


MEMBERS = {f"{number}.txt": f"The text of member {number}.".encode() for number in range(8)}
BLOCK = 512  # of a tar: each member here is a header and one of data


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("damage", "pages"),
    [
        (lambda whole: whole[: 2 * 2 * BLOCK] + b"\xff" + whole[2 * 2 * BLOCK + 1 :], 2),  # a header
        (lambda whole: whole[: 2 * 2 * BLOCK] + bytes(2 * BLOCK) + whole[3 * 2 * BLOCK :], None),  # a member is zeros
        (lambda whole: whole[: 3 * 2 * BLOCK], 3),  # cut where a member ends
        (lambda whole: whole[: 3 * 2 * BLOCK + BLOCK], 3),
        (lambda whole: whole.rstrip(b"\x00") + bytes(1024) + b"garbage" * 100, 8),
    ],
)
def test_a_damaged_tar_does_not_end_in_silence(tmp_path: Path, damage: Any, pages: int | None, packed: bool) -> None:
    """tarfile takes what is no header for the tar's end."""
    data = damage(tar(MEMBERS))
    (tmp_path / "a.tgz").write_bytes(gzip.compress(data)) if packed else (tmp_path / "a.tar").write_bytes(data)
    found = reasons(text(tmp_path / ("a.tgz" if packed else "a.tar")))
    if pages is None:  # the mark of an end in the middle: what follows it is read as another tar
        assert found == {"page": 7}
    else:
        assert found == {"page": pages, "broken_file": 1}


def test_two_tars_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar(MEMBERS) + tar({"x.txt": b"One more text."}))
    assert reasons(text(tmp_path / "a.tar")) == {"page": 9}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(gzip.compress(b"Some words.")), "gzip"),  # once is undone
        (b"PK\x03\x04Some words.", "zip"),
        (b"%PDF-1.7 words", "PDF"),
        (b"\x00\x05\x16\x07" + b"Mac OS X" * 20, "NUL"),
    ],
    ids=["gzip", "zip", "PDF", "NUL"],  # gzip writes the time: an id of its own would differ between workers
)
def test_what_is_no_text_is_counted(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    (found,) = text(tmp_path / "a.txt")
    assert isinstance(found, RejectedRecord) and found.reason == "not_text" and said in found.detail


@pytest.mark.parametrize(
    ("encoding", "charset"), [("utf-8-sig", None), ("utf-16", "utf-16le"), ("latin-1", "windows-1252"), ("utf-8", None)]
)
def test_other_encodings_of_text(tmp_path: Path, encoding: str, charset: str | None) -> None:
    words = "Où est passée l’été ? Les élèves déjà fatigués rêvent à la fenêtre.".replace("’", "'")
    (tmp_path / "a.txt").write_bytes((words + "\n").encode(encoding) * (1 if "utf" in encoding else 5))
    (found,) = text(tmp_path / "a.txt")
    assert isinstance(found, Page) and found.text.startswith(words) and found.metadata.get("charset") == charset


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst", "a.tgz", "a.txt.xz", "a.txt.BZ2"])
def test_an_empty_file_under_a_suffix_is_counted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    (found,) = text(tmp_path / name)
    assert isinstance(found, RejectedRecord) and found.reason == "broken_file" and found.detail == "the file is empty"


def test_lines_before_damage_in_zstd_are_kept(tmp_path: Path) -> None:
    lines = b"".join(json.dumps({"text": f"The text of row {n}."}).encode() + b"\n" for n in range(3000))
    whole = zstandard.compress(lines)
    for data in (whole + b"garbage", whole + zstandard.compress(lines[:100])[:-3]):
        (tmp_path / "a.jsonl.zst").write_bytes(data)
        found = reasons(jsonl(tmp_path / "a.jsonl.zst"))
        assert found["page"] >= 3000 and found["broken_file"] == 1


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz"])
def test_a_tar_in_gzip_by_either_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(tar({"a.txt": b"Some words of a text.", "b.txt": b"And of another."})))
    assert reasons(text(tmp_path / name)) == {"page": 2}


@pytest.mark.parametrize(
    "name", ["a.txt.gz", "a.txt.zst", "a.txt.bz2", "a.txt.xz", "a.txt.GZ", "a.tar", "a.tar.gz", "a.tgz"]
)
def test_garbage_under_a_suffix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00\x01garbage" * 500)
    (found,) = text(tmp_path / name)
    assert isinstance(found, RejectedRecord) and found.reason == "broken_file" and found.detail
    assert str(tmp_path) not in found.url


def test_names_in_other_encodings(tmp_path: Path) -> None:
    name = b"\xff\xf6.txt".decode("utf-8", "surrogateescape")
    data = tar({"placeholder": b"Words."}).replace(b"placeholder", b"\xff\xf6.txt".ljust(11, b"\x00"))
    head = bytearray(data[:512])
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\x00 " % sum(head)
    (tmp_path / "a.tar").write_bytes(bytes(head) + data[512:])
    with tarfile.open(tmp_path / "a.tar") as made:
        assert made.getnames()[0] == name
    (found,) = text(tmp_path / "a.tar")
    assert isinstance(found, Page) and found.url == "file:books/a.tar!/\\xff\\xf6.txt#0"


def test_metadata_of_any_depth(tmp_path: Path) -> None:
    deep = '{"text": "some words", "m": ' + "[" * 900 + "]" * 900 + "}\n"
    nested = '{"text": "other words", "m": ' + '{"a":' * 900 + "1" + "}" * 900 + "}\n"
    (tmp_path / "x.jsonl").write_text(deep + nested)
    found = list(JsonLinesReader(source_of({"name": "set", "metadata_keys": ["m"]}), SETTINGS)(tmp_path / "x.jsonl"))
    assert [one.text for one in found if isinstance(one, Page)] == ["some words", "other words"]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_of_a_tar_is_not_held_whatever_its_size(tmp_path: Path, kind: bytes) -> None:
    about = tarfile.TarInfo("x")
    about.type, about.size = kind, 2**33
    (tmp_path / "a.tar").write_bytes(about.tobuf(tarfile.GNU_FORMAT) + b"a" * 4096)
    (found,) = text(tmp_path / "a.tar")
    assert isinstance(found, RejectedRecord) and found.reason == "broken_file" and "8,589,934,592 bytes" in found.detail


def test_more_headers_of_one_member_than_python_nests(tmp_path: Path) -> None:
    about = tarfile.TarInfo("x")
    about.type, about.size = tarfile.GNUTYPE_LONGNAME, 2
    (tmp_path / "a.tar").write_bytes((about.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")) * 2000)
    assert reasons(text(tmp_path / "a.tar")) == {"broken_file": 1}


@given(st.text(st.sampled_from("a \n\r\t\x0b\u2028\x00\u00a0"), max_size=60))
def test_tidy_by_parts_is_tidy_of_the_whole(raw: str) -> None:
    whole = tidy(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warc, "TIDY_CHARACTERS", 3)
        assert tidy(raw) == whole
