"""Normalisation, tokens and shingles."""

import re
import unicodedata

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.text.shingles import (
    count_numbers,
    count_tokens,
    fold_character,
    jaccard,
    normalise,
    shingle_hashes,
    shingle_set,
    shingles,
)
from crawl2llm.text.xxhash32 import xxh32

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.text("aB 12.,é’ß…東か\u0301ｶﾞ\n", max_size=80)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Hello,  World!\n", "hello world"),
        ("Don't STOP — ever…", "don t stop ever"),
        ("Ångström café cafe\u0301", "angstrom cafe cafe"),
        ("In 1984, 12.5 %", "in 0 0"),
        ("1,234.50", "0"),
        ("1'234'567,89 1\u202f234 2\u00a0000 ١٬٢٣٤٫٥", "0 0 0 0"),
        ("3, 4 . 5 6..7 .5 5. v1.2.3 a1b22", "0 0 0 0 0 0 0 v0 a0b0"),
        ("12.05.2024 12:30 2024-05-12 192.168.0.1", "0 0 0 0 0 0 0"),
        ("x² 10⁶ 1,2,3,4,5,6", "x0 0 0"),
        ("１，２３４．５０ 1\u2007234 1·5 1\u03875 ½ 1½ 1⁄2", "0 0 0 0 0 0 0"),
        ("col·legi 1/2 a⁄b", "col legi 0 0 a b"),
        ("1984年", "0 年"),
        ("٣٤ देव", "0 दव"),
        ("ﬁne Straße ΟΔΟΣ", "fine strasse οδοσ"),
        ("so\u00adft zero\u200bwidth", "soft zerowidth"),
        ("東京タワー is 高い", "東 京 タ ワ ー is 高 い"),
        ("สวัสดี", "ส ว ส ด"),
        ("한국어 문서", unicodedata.normalize("NFKD", "한국어 문서")),
        (" .\u2026! ", ""),
        ("", ""),
    ],
)
def test_normalise(text: str, normal: str) -> None:
    assert normalise(text).decode() == normal


@settings(deadline=None)
@given(TEXT)
def test_normalise_is_fold_of_every_character_and_numbers_are_whole(text: str) -> None:
    normal = normalise(text)
    folded = re.sub("(?<=0)\x1f(?=0)", "", "".join(map(fold_character, text))).replace("\x1f", " ")
    assert normal.decode().split(" ") == (re.sub("0+", "0", folded).split() or [""])
    assert count_tokens(normal) == len(normal.split())


@settings(deadline=None)
@given(TEXT)
def test_case_accents_and_composition_do_not_matter(text: str) -> None:
    for form in ("NFC", "NFD"):
        assert normalise(unicodedata.normalize(form, text)).split() == normalise(text).split()


@settings(deadline=None)
@given(st.lists(TEXT, max_size=6), st.integers(1, 7))
def test_hashes_are_those_of_the_shingles(texts: list[str], k: int) -> None:
    normals = [normal for text in texts if (normal := normalise(text))]
    hashes, counts = shingle_hashes(normals, k)
    expected = []
    for normal in normals:
        tokens = normal.decode().split(" ")
        runs = [" ".join(tokens[i : i + k]) for i in range(max(len(tokens) - k + 1, 1))]
        assert [shingle.decode() for shingle in shingles(normal, k)] == runs
        expected.append([xxhash.xxh32_intdigest(run.encode()) for run in runs])
    assert counts.tolist() == list(map(len, expected))
    assert hashes.tolist() == [value for own in expected for value in own]


@settings(deadline=None)
@given(st.binary(max_size=200), st.data())
def test_xxh32_is_the_library_s(buffer: bytes, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(0, len(buffer)), max_size=30))
    starts = [data.draw(st.integers(0, end)) for end in ends]
    hashes = xxh32(buffer, np.array(starts, np.int64), np.array(ends, np.int64))
    expected = [xxhash.xxh32_intdigest(buffer[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert hashes.tolist() == expected


def test_xxh32_of_every_length_and_beyond_16_bits() -> None:
    buffer = bytes(range(256)) * 600
    ends = np.array([*range(100), 65535, 65536, 65551, 150_000, 17])
    expected = [xxhash.xxh32_intdigest(buffer[:end]) for end in ends]
    assert xxh32(buffer, np.zeros_like(ends), ends).tolist() == expected


@settings(deadline=None)
@given(TEXT, TEXT, st.integers(1, 4))
def test_jaccard_is_that_of_the_sets(one: str, other: str, k: int) -> None:
    a, b = (set(shingles(normalise(text), k)) for text in (one, other))
    expected = len(a & b) / len(a | b) if a | b else 0.0
    assert jaccard(shingle_set(one, k), shingle_set(other, k)) == expected


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("In 1984, 12.5 %", "in 1984 12.5"),
        ("-3.5 \u22123 +4 a-5 6-7 --8 (-9)", "-3.5 -3 4 a 5 6 7 8 -9"),
        ("1,234.50 1\u202f234,50 ١٢٫٥ ½", "1.234.50 1.234.50 12.5 1.2"),
        ("2024-05-12 12:30, 3, 4 .5 a1b22", "2024 05 12 12 30 3 4 5 a1b22"),
        ("-", ""),
        ("", ""),
        ("1984年", "1984 年"),
    ],
)
def test_numbers_that_are_kept(text: str, normal: str) -> None:
    assert normalise(text, "keep").decode() == normal


@settings(deadline=None)
@given(TEXT)
def test_numbers_are_tokens_of_their_own_in_both_forms(text: str) -> None:
    """With the digits of each as one 0 the kept form is the other, and of the tokens that are numbers as many are counted."""
    zero, kept = normalise(text), normalise(text, "keep").decode()
    assert re.sub(r"(?<![^ ])-(?=[0-9])", "", re.sub(r"[0-9]+(?:\.[0-9]+)*", "0", kept)) == zero.decode()
    assert count_numbers(zero) == zero.decode().split(" ").count("0")
    assert normalise(text, "dense") in (zero, kept.encode())


def test_a_text_is_dense_from_a_fifth_of_its_tokens_on() -> None:
    assert normalise("apples and pears cost 12", "dense") == b"apples and pears cost 12"
    assert normalise("apples and pears now cost 12", "dense") == b"apples and pears now cost 0"


def test_exact_similarity_uses_the_same_text_as_the_signature() -> None:
    one, other = "1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7 9"
    assert jaccard(shingle_set(one, 3), shingle_set(other, 3)) == 1
    for numbers in ("keep", "dense"):
        assert jaccard(shingle_set(one, 3, numbers), shingle_set(other, 3, numbers)) == 5 / 7
