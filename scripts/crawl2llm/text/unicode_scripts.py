"""The scripts that a language is written in, and those of a text's letters. Scripts are Unicode's, by their ISO 15924 codes."""

from __future__ import annotations

from functools import cache

import numpy as np

from crawl2llm.core.language_codes import language_code

# Scripts of Unicode behind a script's code.
SCRIPT_PARTS = {
    "Jpan": ("Hira", "Kana", "Hani"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Hang": ("Hang", "Hani"),
}
# Languages of several scripts besides the likeliest (CLDR, supplementalData.xml, languageData).
OTHER_SCRIPTS = {
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
def scripts_of_language(label: str) -> frozenset[str]:
    """Unicode's scripts that a label's language is written in: of `srp_Cyrl` that one, of `sr` both; none of what is no code."""
    from langcodes import Language

    code, (_, _, script) = language_code(label), label.partition("_")
    if code == "und":
        return frozenset()
    codes = [script] if script else [str(Language.get(code).maximize().script or ""), *OTHER_SCRIPTS.get(code, ())]
    return frozenset(part for name in codes if name for part in SCRIPT_PARTS.get(name, (name,)))


@cache
def _script_table() -> np.ndarray:
    """For each character its script, as a number: 0 for none of SCRIPTS (digits, punctuation, spaces, marks of several scripts)."""
    import regex

    table = np.zeros(CHARACTERS, np.uint8)
    characters = "".join(map(chr, range(CHARACTERS)))
    for number, name in enumerate(SCRIPTS, 1):
        for run in regex.finditer(rf"\p{{Script={name}}}+", characters):
            table[run.start() : run.end()] = number
    return table


def letters_by_script(text: str) -> dict[str, int]:
    """How many characters of each script a text has; those of several scripts, such as digits and punctuation, count for none."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    counts = np.bincount(_script_table()[points[points < CHARACTERS]], minlength=len(SCRIPTS) + 1)[1:]
    return {name: int(number) for name, number in zip(SCRIPTS, counts, strict=True) if number}


def majority_script(counts: dict[str, int]) -> str | None:
    """The script of most characters, the first of SCRIPTS where two have as many; None of a text without any."""
    return max(counts, key=lambda name: counts[name]) if counts else None


def script_share(counts: dict[str, int], wanted: frozenset[str]) -> float | None:
    """The share of characters that are of the wanted scripts; None of a text without any, and where no script is known to be wanted."""
    total = sum(counts.values())
    return sum(counts.get(name, 0) for name in wanted) / total if total and wanted else None
