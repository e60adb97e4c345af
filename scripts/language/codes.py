"""Languages under one code, whatever model labels them, and the scripts that a language is written in.

lid.176 labels by the codes of Wikipedias, mostly ISO 639-1 (`en`, `no`, `als`), GlotLID and OpenLID by ISO 639-3 with the script
(`eng_Latn`, `nob_Latn`, `als_Latn`). One code for both is that of BCP 47's macrolanguage, by the package langcodes: `arb_Arab` and
`ar` are `ar`, `cmn_Hani` is `zh`. Scripts are Unicode's, by their ISO 15924 codes.
"""

from __future__ import annotations

from functools import cache

import numpy as np

# Wikipedia's codes that mean another language in BCP 47, and what has two codes there.
WIKIPEDIA = {"als": "gsw", "bh": "bho", "sh": "sr", "bs": "sr", "hr": "sr"}
ALSO = {"nb": "no", "bs": "sr", "hr": "sr"}  # of one language, in what models can tell apart
# Scripts of Unicode behind a script's code.
PARTS = {
    "Jpan": ("Hira", "Kana", "Hani"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Hang": ("Hang", "Hani"),
}
# Languages of several scripts besides the likeliest (CLDR, supplementalData.xml, languageData).
SECOND = {
    "az": ("Cyrl", "Arab"), "kk": ("Latn", "Arab"), "ku": ("Arab",), "ky": ("Arab", "Latn"), "mn": ("Mong",), "ms": ("Arab",),
    "pa": ("Arab",), "sd": ("Deva",), "sr": ("Latn",), "tg": ("Arab", "Latn"), "tk": ("Cyrl", "Arab"), "tt": ("Latn",),
    "ug": ("Cyrl", "Latn"), "uz": ("Cyrl", "Arab"), "yi": ("Latn",),
}  # fmt: skip
SCRIPTS = [
    "Latn", "Cyrl", "Grek", "Armn", "Hebr", "Arab", "Syrc", "Thaa", "Deva", "Beng", "Guru", "Gujr", "Orya", "Taml", "Telu", "Knda",
    "Mlym", "Sinh", "Thai", "Laoo", "Tibt", "Mymr", "Geor", "Hang", "Ethi", "Cher", "Cans", "Khmr", "Mong", "Hira", "Kana", "Bopo",
    "Hani", "Yiii", "Copt", "Tfng", "Nkoo", "Vaii", "Olck", "Mtei", "Java", "Bali", "Sund", "Tale", "Lana",
]  # fmt: skip
CHARACTERS = 0x40000  # no letters beyond, but for tags and private use


@cache
def language(label: str) -> str:
    """The code of a model's label: `en` of `en` and of `eng_Latn`; `und` of what is no code."""
    from langcodes import Language
    from langcodes.tag_parser import LanguageTagError

    name, _, script = label.partition("_")
    if not script and name in WIKIPEDIA:
        return WIKIPEDIA[name]
    try:
        found = str(Language.get(name).prefer_macrolanguage().language or "und")
    except (LanguageTagError, ValueError):
        return "und"
    return ALSO.get(found, found)


@cache
def scripts(label: str) -> frozenset[str]:
    """Unicode's scripts that a label's language is written in: of `srp_Cyrl` that one, of `sr` both; none of what is no code."""
    from langcodes import Language

    code, (_, _, script) = language(label), label.partition("_")
    if code == "und":
        return frozenset()
    named = [script] if script else [str(Language.get(code).maximize().script or ""), *SECOND.get(code, ())]
    return frozenset(part for name in named if name for part in PARTS.get(name, (name,)))


@cache
def _table() -> np.ndarray:
    """For each character its script, as a number: 0 for none of SCRIPTS (digits, punctuation, spaces, marks of several scripts)."""
    import regex

    found = np.zeros(CHARACTERS, np.uint8)
    every = "".join(map(chr, range(CHARACTERS)))
    for number, name in enumerate(SCRIPTS, 1):
        for run in regex.finditer(rf"\p{{Script={name}}}+", every):
            found[run.start() : run.end()] = number
    return found


def letters(text: str) -> dict[str, int]:
    """How many characters of each script a text has; those of several scripts, such as digits and punctuation, count for none."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    counts = np.bincount(_table()[points[points < CHARACTERS]], minlength=len(SCRIPTS) + 1)[1:]
    return {name: int(number) for name, number in zip(SCRIPTS, counts, strict=True) if number}


def majority(counts: dict[str, int]) -> str | None:
    """The script of most characters, the first of SCRIPTS where two have as many; None of a text without any."""
    return max(counts, key=lambda name: counts[name]) if counts else None


def share(counts: dict[str, int], wanted: frozenset[str]) -> float | None:
    """The share of characters that are of the wanted scripts; None of a text without any, and where no script is known to be wanted."""
    total = sum(counts.values())
    return sum(counts.get(name, 0) for name in wanted) / total if total and wanted else None
