"""The terms of a text in any language: its words, and pairs of neighbouring characters in scripts that are written without spaces."""

from __future__ import annotations

from collections.abc import Iterator

from crawl2llm.text.characters import SPACELESS, tokenize

LONGEST = 40  # characters of a word: longer ones are addresses, hashes and encoded data


def terms(text: str) -> Iterator[str]:
    """The terms of a text in small letters, in their order.

    A word is a token of text/characters.py with a letter in it, two characters or longer. Of Han, kana, Thai, Lao, Khmer and
    Myanmar each two characters that follow each other are a term, as search engines index these (Lucene's CJKBigramFilter): one
    character says too little.
    """
    before = ""
    for token in tokenize(text.lower()):
        if SPACELESS.match(token):
            if before:
                yield before + token
            before = token
        else:
            before = ""
            if 1 < len(token) <= LONGEST and any(map(str.isalpha, token)):
                yield token
