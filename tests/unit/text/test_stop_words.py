"""Stop words: every list on real prose of its language."""

import os
import zipfile
from pathlib import Path
from unicodedata import normalize

import pytest

from crawl2llm.text.characters import is_symbol, tokenize
from crawl2llm.text.stop_words import SPACELESS_LANGUAGES, STOP_WORDS, stop_words_by_language

DATA = Path(os.environ.get("CRAWL2LLM_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
UDHR = DATA / "langid" / "udhr2.zip"
DECLARATIONS = """
af=afr ar=arb bg=bul bn=ben ca=cat cs=ces da=dan de=deu el=ell_monotonic en=eng es=spa et=est eu=eus fa=pes_1 fi=fin
fr=fra gl=glg he=heb hi=hin hr=hrv hu=hun hy=hye id=ind it=ita ja=jpn ka=kat kk=kaz ko=kor lt=lit lv=lav mk=mkd
ms=mly_latn nl=nld no=nob pl=pol pt=por_BR ro=ron ru=rus sh=bos_latn sk=slk sl=slv sq=als sr=srp_cyrl sv=swe sw=swh
th=tha tl=tgl tr=tur uk=ukr ur=urd vi=vie zh=cmn_hans
"""
DECLARATION = dict(pair.split("=") for pair in DECLARATIONS.split())


@pytest.mark.skipif(not UDHR.is_file(), reason=f"no {UDHR}: set CRAWL2LLM_DATA to the folder of the real data")
@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_passages_of_fifty_words_have_two(language: str) -> None:
    """In 19 of 20 passages of 50 words (100 Han or kana characters, 180 Thai ones) at least two stop words."""
    with zipfile.ZipFile(UDHR) as archive:
        text = archive.read(f"udhr2/{DECLARATION[language]}.txt").decode().split("---", 1)[-1]
    words = [token for token in tokenize(text) if not is_symbol(token)]
    size = {"ja": 100, "zh": 100, "th": 180}.get(language, 50)
    space = "" if language in SPACELESS_LANGUAGES else " "
    passages = [words[i : i + size] for i in range(0, len(words) - size, size)]
    stop_words = stop_words_by_language({})[language]
    found = [stop_words.count(space.join(passage), passage) for passage in passages]
    assert len(found) >= 20
    assert sum(number >= 2 for number in found) >= 0.95 * len(found)


def test_forms() -> None:
    english = stop_words_by_language({})["en"]
    assert english.count("", {"The", "OF", "and", "other"}) == 3
    assert english.count("", {"the", "The"}) == 1
    vietnamese = stop_words_by_language({})["vi"]
    words = {normalize("NFD", word) for word in ("của", "được")}
    assert vietnamese.count(" ".join(words), words) == 2


def test_overrides() -> None:
    made = stop_words_by_language({"en": ["foo"], "de": [], "xx": ["bar", "baz"]})
    assert made["en"].count("", {"foo", "the"}) == 1
    assert "de" not in made
    assert made["xx"].count("", {"bar", "baz"}) == 2
