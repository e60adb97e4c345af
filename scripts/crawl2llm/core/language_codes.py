"""Languages under one code, whatever model labels them, and what tables and lists by language say of a label.

lid.176 labels by the codes of Wikipedias, mostly ISO 639-1 (`en`, `no`, `als`), GlotLID and OpenLID by ISO 639-3 with the script
(`eng_Latn`, `nob_Latn`, `als_Latn`). One code for both is that of BCP 47's macrolanguage, by the package langcodes: `arb_Arab` and
`ar` are `ar`, `cmn_Hani` is `zh`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import TypeVar

T = TypeVar("T")
# Wikipedia's codes that mean another language in BCP 47, and what has two codes there.
WIKIPEDIA = {"als": "gsw", "bh": "bho", "sh": "sr", "bs": "sr", "hr": "sr"}
MERGED_CODES = {"nb": "no", "bs": "sr", "hr": "sr"}  # of one language, in what models can tell apart
# What lid.176, and tables by its codes, call a code of BCP 47: Tagalog is Filipino's there.
TABLE_CODES = {"nb": "no", "nn": "no", "fil": "tl"}


@cache
def language_code(label: str) -> str:
    """The code of a model's label: `en` of `en` and of `eng_Latn`; `und` of what is no code."""
    from langcodes import Language
    from langcodes.tag_parser import LanguageTagError

    name, _, script = label.partition("_")
    if not script and name in WIKIPEDIA:
        return WIKIPEDIA[name]
    try:
        code = str(Language.get(name).prefer_macrolanguage().language or "und")
    except (LanguageTagError, ValueError):
        return "und"
    return MERGED_CODES.get(code, code)


@cache
def label_names(label: str) -> tuple[str, ...]:
    """What a table or list by language may call a model's label, the narrowest first: `nob_Latn`, `nb`, `no`. A label without a script
    has no other name: of lid.176 each is a language of its own.
    """
    name, _, script = label.partition("_")
    if not script:
        return (label,)
    from langcodes import Language
    from langcodes.tag_parser import LanguageTagError

    try:
        tag = Language.get(name)
    except (LanguageTagError, ValueError):
        return (label,)
    code, macrolanguage = str(tag.language or ""), str(tag.prefer_macrolanguage().language or "")
    # ISO 639-3's als is Albanian, Wikipedia's Alemannic.
    exact = "" if code in WIKIPEDIA and code == name else code
    return tuple(dict.fromkeys(filter(None, (label, exact, macrolanguage, TABLE_CODES.get(macrolanguage)))))


def lookup_label(table: Mapping[str, T], label: str) -> T | None:
    """What a table by language has of a label: of `zh` for `cmn_Hani` too; None if it has nothing."""
    return next((table[name] for name in label_names(label) if name in table), None)


def is_listed(label: str, languages: Collection[str]) -> bool:
    """Whether a list of languages has a label: `en` has `eng_Latn` too."""
    return any(name in languages for name in label_names(label))
