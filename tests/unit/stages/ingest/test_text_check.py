"""What is text and what is not: signatures, noise in every encoding, and texts with a few odd characters."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.text_check import ENCODINGS
from crawl2llm.stages.ingest.parquet import ParquetReader
from crawl2llm.stages.ingest.text import JsonLinesReader, TextReader
from crawl2llm.stages.ingest.text_check import FEW, MOST, is_text, kind_of, why_not_text
from crawl2llm.stages.ingest.warc import Page, RejectedRecord
from tests.unit.stages.ingest.warcs import SETTINGS, TEXT, html, http, one, source_of

CHOOSER = random.Random(3)  # noqa: S311 - test bytes
NOISE = CHOOSER.randbytes(3000)
WORDS = "\n".join(f"<p>{TEXT} Number {n} of {n * n}." for n in range(200)).encode()


def office() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("word/document.xml", "<w:document>words</w:document>")
    return out.getvalue()


OTHERS = {
    "PDF": b"%PDF-1.7\n1 0 obj << /Type /Catalog >> endobj " * 20, "PNG": b"\x89PNG\r\n\x1a\n" + NOISE,
    "JPEG": b"\xff\xd8\xff\xe0\x00\x10JFIF" + NOISE,
    "GIF": b"GIF89a\x40\x01\xf0\x00" + NOISE, "DjVu": b"AT&TFORM\x00\x00\x10\x00DJVU" + NOISE,
    "WebP": b"RIFF\x10\x00\x00\x00WEBPVP8 " + NOISE, "BMP": b"BM\x36\x00\x0c\x00\x00\x00\x00\x00" + NOISE,
    "icon": b"\x00\x00\x01\x00\x01\x00" + NOISE, "font": b"wOF2\x00\x01\x00\x00" + NOISE, "MP3": b"ID3\x03\x00" + NOISE,
    "MP4": b"\x00\x00\x00\x18ftypmp42" + NOISE, "WebM": b"\x1a\x45\xdf\xa3" + NOISE, "zip": office(), "RAR": b"Rar!\x1a\x07\x00" + NOISE,
    "7z": b"7z\xbc\xaf\x27\x1c" + NOISE, "gzip": gzip.compress(WORDS), "bzip2": bz2.compress(WORDS), "xz": lzma.compress(WORDS),
    "zstd": zstandard.compress(WORDS), "Office": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
    "RTF": rb"{\rtf1\ansi words and more words}",
    "Ogg": b"OggS\x00\x02" + NOISE, "WAV": b"RIFF\x24\x08\x00\x00WAVEfmt " + NOISE, "program": b"\x7fELF\x02\x01\x01" + NOISE,
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_are_told_by_their_first_bytes(kind: str, tmp_path: Path) -> None:
    assert kind_of(OTHERS[kind]) == kind and not is_text(OTHERS[kind])
    if kind not in ("gzip", "zstd"):  # which are undone, whatever the header says
        found = one(tmp_path, http(OTHERS[kind]))
        assert (
            isinstance(found, RejectedRecord)
            and found.reason == "not_html"
            and found.detail == f"text/html, the bytes are {kind}"
        )
    (tmp_path / "a.tar").write_bytes(b"")
    if kind not in ("gzip", "zstd", "bzip2", "xz"):
        (tmp_path / "a.txt").write_bytes(OTHERS[kind])
        (read,) = TextReader(source_of({"name": "t"}), SETTINGS)(tmp_path / "a.txt")
        assert isinstance(read, RejectedRecord) and read.reason == "not_text" and read.detail == f"the file is {kind}"


@pytest.mark.parametrize(
    "begin", ["BM is short for it", "OTTO the great", "ID3 tags", "RIFF and WAVE", "MThd", "FORM letters", "PK is a label", "BZh91 is none",
              "GIF8", "GIF89a has frames", "AT&TFORM is a word",
              "PAR10 lights", "MZ files begin so", "Rar! he said", "wOFF wOF2", "II* and MM", "7z is a program", "fLaC", "OggS are a band"]
)  # fmt: skip
def test_a_text_may_begin_like_a_signature(begin: str) -> None:
    assert kind_of(begin.encode()) is None and why_not_text(f"{begin}. {TEXT}") is None


PACKED: dict[str, Callable[[], bytes]] = {
    "random": lambda: random.Random(5).randbytes(5000),  # noqa: S311 - test bytes
    "gzip": lambda: gzip.compress(WORDS)[20:],
    "br": lambda: brotli.compress(WORDS)[20:],
    "zstd": lambda: zstandard.compress(WORDS)[20:],
    "xz": lambda: lzma.compress(WORDS)[20:],
    "picture": lambda: bytes(CHOOSER.choice((0, 1, 2, 250, 255)) for _ in range(4000)),
}


@pytest.mark.parametrize("noise", PACKED)
@pytest.mark.parametrize("encoding", [*ENCODINGS, ""])
def test_noise_is_no_text_in_any_encoding(tmp_path: Path, noise: str, encoding: str) -> None:
    body = PACKED[noise]()
    assert not is_text(body)
    if encoding and not (noise == "picture" and encoding.startswith("utf-16")):  # which has a letter in each two bytes
        assert why_not_text(body.decode(encoding, "replace"))
    header = f"text/html; charset={encoding}" if encoding else "text/html"
    # Some of it can be read as the beginning of a stream of Brotli.
    found = one(tmp_path, http(b"<html><body><p>" + body, Content_Type=header))
    assert isinstance(found, RejectedRecord) and found.reason == "not_text", found


@pytest.mark.parametrize("encoding", [each for each in ENCODINGS if "utf" not in each])
def test_text_in_every_encoding_is_text(encoding: str) -> None:
    letters = re.sub("[\ue000-\uf8ff]", "", bytes(range(0xA1, 0xFF)).decode(encoding, "ignore"))
    for word in (
        letters,
        "漢字とかなのページです。",
        "한국어로 쓴 글입니다.",
        "简体中文的网页。",
        "Русский текст",
        "כותרת",
        "Où est l’été",
    ):
        text = f"<p>{word * 30}</p>".encode(encoding, "ignore")
        assert why_not_text(text.decode(encoding)) is None and is_text(text)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Co"], exclude_characters="\ufffd"), min_size=1),
    st.integers(0, 20),
)
def test_a_few_odd_characters_stay(text: str, number: int) -> None:
    odd = "".join(random.Random(number).choices("\x00\x08\x7f\x9d\ufffd", k=number))  # noqa: S311 - test bytes
    wrong = number > FEW and number > MOST * (len(text) + number)
    assert (why_not_text(text + odd) is not None) == wrong
    assert why_not_text(text + "\x1b\t\n\f\r" * number) is None


@pytest.mark.parametrize("sign", ["\uf0b7", "\uf0a7\uf0d8\U00100000", "\ue001\ue002"])
def test_bullets_and_icons_of_fonts_cost_no_text(sign: str) -> None:
    """Word writes its bullets as U+F0B7; in fonts of icons each is a character of private use."""
    lines = "\n".join(
        f"{sign[n % len(sign)]} {line}" for n, line in enumerate(["rye bread", "milk, honey", "eggs"] * 20)
    )
    assert why_not_text(lines) is None
    assert why_not_text("".join(chr(0xF000 + n % 60) for n in range(5000))), "a font of its own for every letter"


def test_every_reader_drops_noise_and_counts_it(tmp_path: Path) -> None:
    noise = NOISE.decode("cp1256", "replace")
    rows = [{"text": noise}, {"text": TEXT}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_bytes(b"Some words." + NOISE.replace(b"\x00", b""))
    readers: list[tuple[Any, str, int]] = [
        (JsonLinesReader, "a.jsonl", 1), (ParquetReader, "a.parquet", 1), (TextReader, "a.txt", 0),
    ]  # fmt: skip
    for reader, name, pages in readers:
        found = list(reader(source_of({"name": "s"}), SETTINGS)(tmp_path / name))
        assert sum(isinstance(each, Page) for each in found) == pages
        (dropped,) = [each for each in found if isinstance(each, RejectedRecord)]
        assert dropped.reason == "not_text" and "characters are controls" in dropped.detail
    found_wet = one(tmp_path, NOISE, kind="conversion")
    assert isinstance(found_wet, RejectedRecord) and found_wet.reason == "not_text"
    image = one(tmp_path, http(html(NOISE.decode("latin-1")).encode("latin-1")))
    assert isinstance(image, RejectedRecord) and image.reason == "not_text"
