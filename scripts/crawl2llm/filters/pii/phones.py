"""Phone numbers in a text, by the numbering plans of the package phonenumbers (Google's libphonenumber).

Its own search reads a text with an expression of many alternatives, and parses all that looks like a number. Here a cheap expression
finds candidates first, and only what could be a phone number of the text's language is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import re2

from crawl2llm.filters.pii import digit_runs
from crawl2llm.filters.pii.digit_runs import LOOKAHEAD
from crawl2llm.filters.pii.kinds import Finding

# Regions whose national numbers are looked for, by a text's language: where most who write it live. Others are found with + alone.
REGIONS: dict[str, tuple[str, ...]] = {
    "ar": ("SA", "EG", "AE", "MA"), "bg": ("BG",), "bn": ("BD", "IN"), "ca": ("ES",), "cs": ("CZ",), "da": ("DK",),
    "de": ("DE", "AT", "CH"), "el": ("GR",), "en": ("US", "GB", "AU", "IN"), "es": ("ES", "MX", "AR", "CO"), "et": ("EE",),
    "fa": ("IR",), "fi": ("FI",), "fr": ("FR", "BE", "CH"), "he": ("IL",), "hi": ("IN",), "hr": ("HR",), "hu": ("HU",),
    "id": ("ID",), "it": ("IT",), "ja": ("JP",), "ko": ("KR",), "lt": ("LT",), "lv": ("LV",), "ms": ("MY",), "nl": ("NL", "BE"),
    "no": ("NO",), "pl": ("PL",), "pt": ("BR", "PT"), "ro": ("RO",), "ru": ("RU",), "sk": ("SK",), "sl": ("SI",), "sr": ("RS",),
    "sv": ("SE",), "ta": ("IN",), "th": ("TH",), "tr": ("TR",), "uk": ("UA",), "ur": ("PK",), "vi": ("VN",), "zh": ("CN", "TW"),
}  # fmt: skip
BETWEEN = f"[{digit_runs.SEPARATORS}]{{0,3}}"
# 7 to 15 digits (E.164). Separators and digits do not overlap, so there is one way to match, of bounded length.
INTERNATIONAL = re.compile(rf"(?<![\w+])(?:\+{BETWEEN}|00 ?)[1-9](?:{BETWEEN}\d){{6,14}}(?!\w)", re.ASCII)
NATIONAL = re.compile(
    rf"(?<![\w+$€£¥₹#=%.,:/\-])\(?\d(?:{BETWEEN}\d){{6,12}}(?![\w%€]|[.,:/\-]\d| ?(?:EUR|USD|km|kg)\b)", re.ASCII
)
DATE = re.compile(
    r"(?:\d{1,2}[./-]\d{1,2}[./-](?:19|20)?\d\d|(?:19|20)\d\d[./-]\d{1,2}[./-]\d{1,2})(?![./-]?\d)|(?:19|20)\d\d ?[-/] ?(?:19|20)\d\d\b"
)
# Also after a word such as `contact`: a day, or the last of several (23.-26.8.2017).
DAYS = re.compile(r"(?:^|[.-])(?:0?[1-9]|[12]\d|3[01])\. ?(?:0?[1-9]|1[0-2])\. ?(?:19|20)\d\d$")
WORDS = re2.compile(
    r"(?i)\b(?:tel|t[eé]l[eé]ph|telef|phone|call|mobil|cell|fax|whatsapp|sms|text|dial|hotline|helpline|contact|handy|rufnummer|anruf|portable|"
    r"appel|m[oó]vil|celular|ll[aá]m|telem[oó]vel|ligue|cellulare|chiama|puh|gsm|kom\.|kom[oó]r|dzwo)|тел|факс|звон|моб|電話|电话|传真|傳真|手机|手機|携帯|"
    r"전화|휴대|연락처|फ़?ोन|मोबाइल|संपर्क|هاتف|جوال|موبايل|☎|📞|📱"
)
SIGNS = 4  # characters before the first digit that may belong to a number: + and brackets
WORD_DISTANCE = 24  # characters before a number that are searched for such a word
OTHER = re.compile(r"[^\d+]+")


@cache
def _phonenumbers_library() -> Any:
    import phonenumbers

    return phonenumbers


def find_phone_numbers(text: str, places: Sequence[tuple[int, int]], regions: Sequence[str]) -> Iterator[Finding]:
    """Phone numbers: with + or 00 of any country; others of `regions`, valid there, and written in the groups of the country or after a
    word such as `Tel`. places: of many digits (filters/pii/digit_runs.py).
    """
    for start, end in places:
        first, last = max(0, start - SIGNS), end + LOOKAHEAD
        for match in INTERNATIONAL.finditer(text, first, last):
            if finding := _international_number(text, match):
                yield finding
        for match in NATIONAL.finditer(text, first, last) if regions else ():
            if finding := _national_number(text, match, regions):
                yield finding


def _international_number(text: str, match: re.Match[str]) -> Finding | None:
    plus = match[0].startswith("+")
    if not plus and not OTHER.search(match[0].strip()) and not _follows_phone_word(text, match.start()):
        return None
    whole = match[0]
    while len(whole) > 7:
        number = _parse_number("+" + (whole[1:] if plus else whole[2:]), None)
        if number is not None:
            return Finding(match.start(), match.start() + len(whole), "phone_number", "international")
        # Another number may follow.
        whole = whole[: _last_group(whole)].rstrip(" .-/(")
    return None


def _last_group(text: str) -> int:
    """Where the last group of digits begins, and what separates it from the one before."""
    end = len(text.rstrip("0123456789"))
    return len(text[:end].rstrip(digit_runs.SEPARATORS.replace("\\", "")))


def _national_number(text: str, match: re.Match[str], regions: Sequence[str]) -> Finding | None:
    whole = match[0] if ")" in match[0] else match[0].lstrip("(")
    groups = [part for part in OTHER.split(whole) if part]
    follows_phone_word = _follows_phone_word(text, match.start())
    if DAYS.search(whole) or (
        not follows_phone_word and (len(groups) < 2 or DATE.match(whole) or not _looks_like_phone(whole, groups))
    ):
        return None
    library = _phonenumbers_library()
    for region in regions:
        number = _parse_number(whole, region)
        if number is not None and (follows_phone_word or _has_usual_groups(library, number, whole, region)):
            return Finding(match.end() - len(whole), match.end(), "phone_number", region)
    return None


def _looks_like_phone(whole: str, groups: list[str]) -> bool:
    """Whether digits in groups may be a phone number where no word says so: a trunk prefix 0, 8 or brackets, or three groups with dashes
    or dots.
    """
    return whole[0] in "(0" or (whole[0] == "8" and len(groups) > 2) or (len(groups) >= 3 and " " not in whole)


def _follows_phone_word(text: str, start: int) -> bool:
    return WORDS.search(text[max(0, start - WORD_DISTANCE) : start].encode("utf-8", "replace")) is not None


def _parse_number(text: str, region: str | None) -> Any:
    """The number that a text is, valid in its country, or None."""
    library = _phonenumbers_library()
    try:
        number = library.parse(text, region)
    except library.NumberParseException:
        return None
    return number if library.is_valid_number(number) else None


def _has_usual_groups(library: Any, number: Any, whole: str, region: str) -> bool:
    """Whether the groups are those in which the country writes the number, nationally or as for a caller from abroad; one may be cut
    into several, or several may be one.
    """
    formats = library.PhoneNumberFormat
    written_groups = OTHER.sub(" ", whole).split()
    for form in (formats.NATIONAL, formats.INTERNATIONAL):
        groups = OTHER.sub(" ", library.format_number(number, form)).split()
        usual_groups = groups[1:] if form == formats.INTERNATIONAL else groups
        if "".join(written_groups) == "".join(usual_groups):
            written_ends, usual_ends = _group_ends(written_groups), _group_ends(usual_groups)
            return written_ends <= usual_ends or usual_ends <= written_ends
    return False


def _group_ends(groups: list[str]) -> set[int]:
    """After how many digits each group ends."""
    return set(accumulate(map(len, groups)))
