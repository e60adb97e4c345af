"""Numbers with checksums in a text: IBANs, card numbers and national ids. Every function takes time in proportion to the text's length."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any

import re2

from crawl2llm.filters.pii.digit_runs import LOOKAHEAD
from crawl2llm.filters.pii.kinds import Finding

SPACES = " \u00a0\u2009\u202f"
IBAN = re.compile(
    rf"(?<![A-Za-z0-9])[A-Z]{{2}}\d\d(?:[{SPACES}]?[A-Z0-9]{{4}}){{2,7}}(?:[{SPACES}]?[A-Z0-9]{{1,3}})?(?![A-Za-z0-9])",
    re.ASCII,
)
IBAN_GATE = re2.compile(f"[A-Z]{{2}}[0-9]{{2}}(?:[{SPACES}]?[A-Z0-9]{{4}}){{2}}")
CARD = re.compile(rf"(?<![\w.+/-])\d(?:[{SPACES}-]?\d){{11,18}}(?![\w-]|[.,]\d)", re.ASCII)
# (first digits from, to, lengths): ISO/IEC 7812 ranges as https://en.wikipedia.org/wiki/Payment_card_number has them. Of 12 digits: none,
# Maestro's ranges take in a tenth of all numbers, and are left out.
ISSUERS = (
    ("visa", 4, 4, (13, 16, 19)),
    ("mastercard", 51, 55, (16,)),
    ("mastercard", 2221, 2720, (16,)),
    ("amex", 34, 34, (15,)),
    ("amex", 37, 37, (15,)),
    ("discover", 6011, 6011, (16, 17, 18, 19)),
    ("discover", 644, 659, (16, 17, 18, 19)),
    ("jcb", 3528, 3589, (16, 17, 18, 19)),
    ("diners", 36, 36, (14, 15, 16, 17, 18, 19)),
    ("diners", 300, 305, (14, 16)),
    ("diners", 38, 39, (14, 16)),
    ("unionpay", 62, 62, (16, 17, 18, 19)),
)
# Digits as they are printed on cards.
GROUPS = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (6, 13), (4, 4, 4, 1)}
# What stands before a number without spaces that is a card's: of ten numbers in an issuer's range, Luhn lets one pass.
CARD_WORDS = re2.compile(
    r"(?i)card|visa|maestro|amex|american express|discover|\bpan\b|carte|"
    r"karte|tarjeta|cart[aã]o|carta di|kort|karta|kartı|karty|карт|卡|カード|카드|कार्ड|بطاقة"
)
REACH = 40  # characters before a number in which a word about it stands


def find_ibans(text: str, raw: bytes) -> Iterator[Finding]:
    """IBANs that their country's structure and checksum allow (ISO 13616, by python-stdnum). raw: the text in UTF-8."""
    if IBAN_GATE.search(raw) is None:
        return
    from stdnum import iban

    for match in IBAN.finditer(text):
        candidate = match[0]
        while len(candidate) > 14:
            if iban.is_valid(re.sub(rf"[{SPACES}]", "", candidate), check_country=False):
                yield Finding(match.start(), match.start() + len(candidate), "iban", candidate[:2])
                break
            # A word in capitals may follow.
            cut = max(map(candidate.rfind, SPACES))
            candidate = candidate[: max(cut, 0)]


def passes_luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B."""
    total = sum(map(int, digits[-1::-2])) + sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return total % 10 == 0


def card_issuer(digits: str) -> str:
    """Whose card may have this number; "" for nobody's."""
    for name, first, last, lengths in ISSUERS:
        if len(digits) in lengths and first <= int(digits[: len(str(first))]) <= last:
            return name
    return ""


def find_card_numbers(text: str, places: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Card numbers: of an issuer's range, with Luhn's check digit, in groups as on a card or after a word on cards.

    places: of many digits (filters/pii/digit_runs.py).
    """
    for match in chain.from_iterable(
        CARD.finditer(text, start, end + LOOKAHEAD) for start, end in places if end - start > 11
    ):
        groups = re.split(rf"[{SPACES}-]", match[0])
        digits = "".join(groups)
        if not (name := card_issuer(digits)) or not passes_luhn(digits) or len(set(digits)) < 2:
            continue
        before = text[max(0, match.start() - REACH) : match.start()]
        if tuple(map(len, groups)) in GROUPS or CARD_WORDS.search(before.encode("utf-8", "replace")):
            yield Finding(*match.span(), "card_number", name)


@dataclass(frozen=True)
class Id:
    """A national id of natural persons. name: the module of python-stdnum that knows it. pattern: as it is written.

    words: an expression of RE2 for what stands before it, where form and checksum alone would let too many other numbers pass; "": none.
    """

    name: str
    pattern: str
    words: str = ""


# Whose checksum and form (a date, letters, marks) let less than one in a hundred other numbers pass stand alone.
IDS = (
    Id("be.nn", r"\d\d\.\d\d\.\d\d-\d{3}[.-]\d\d"),
    Id("br.cpf", r"\d{3}\.\d{3}\.\d{3}-\d\d"),
    Id("ch.ssn", r"756\.\d{4}\.\d{4}\.\d\d"),
    Id("cn.ric", r"[1-9]\d{5}(?:19|20)\d{9}[\dX]"),
    Id("cz.rc", r"\d{6}/\d{4}"),
    Id("es.nie", r"[XYZ]-?\d{7}-?[A-Z]"),
    Id("fi.hetu", r"\d{6}[A-FYXWVU+-]\d{3}[0-9A-FHJ-NPR-Y]"),
    Id("fr.nir", r"[12] ?\d\d ?(?:0[1-9]|1[0-2]) ?\d[\dAB] ?\d{3} ?\d{3} ?\d\d"),
    Id("it.codicefiscale", r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]"),
    Id("kr.rrn", r"\d{6}-[1-8]\d{6}"),
    Id("mx.curp", r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d"),
    Id("se.personnummer", r"(?:19|20)?\d{6}[-+]\d{4}"),
    Id("bg.egn", r"\d{10}", r"ЕГН|\bEGN\b"),
    Id("ca.sin", r"\d{3}[ -]?\d{3}[ -]?\d{3}", r"\bSIN\b|(?i:social insurance|assurance sociale|\bNAS\b)"),
    Id("de.idnr", r"\d{2} ?\d{3} ?\d{3} ?\d{3}", r"(?i:steuer-?id|steuerliche identifikation|\bidnr\b|\btin\b|\bst-?id)"),
    Id("dk.cpr", r"\d{6}-?\d{4}", r"(?i:\bcpr\b|personnummer)"),
    Id("ee.ik", r"[1-6]\d{10}", r"(?i:isikukood)"),
    Id("es.dni", r"\d{2}\.?\d{3}\.?\d{3}-?[A-Z]", r"(?i:\bdni\b|\bnif\b|documento|identidad)"),
    Id("gb.nhs", r"\d{3}[ -]?\d{3}[ -]?\d{4}", r"\bNHS\b"),
    Id("gr.amka", r"\d{11}", r"ΑΜΚΑ|\bAMKA\b"),
    Id("hr.oib", r"\d{11}", r"\bOIB\b"),
    Id("il.idnr", r"\d{9}", r"תעודת זהות|ת\.ז|(?i:teudat zehut)"),
    Id("in_.aadhaar", r"\d{4} ?\d{4} ?\d{4}", r"(?i:aadhaar|aadhar|\buid(?:ai)?\b)|आधार"),
    Id("lt.asmens", r"[1-6]\d{10}", r"(?i:asmens koda)"),
    Id("nl.bsn", r"\d{4}[. ]?\d{2}[. ]?\d{3}|\d{9}", r"(?i:\bbsn\b|burgerservicenummer|sofinummer)"),
    Id("no.fodselsnummer", r"\d{6} ?\d{5}", r"(?i:f[øo]dselsn|personn|\bfnr\b)"),
    Id("pl.pesel", r"\d{11}", r"(?i:pesel)"),
    Id("ro.cnp", r"[1-9]\d{12}", r"\bCNP\b|(?i:cod numeric)"),
    Id("tr.tckimlik", r"[1-9]\d{10}", r"(?i:t\.?c\.? ?kimlik|tckn|kimlik no)"),
    Id("us.ssn", r"\d{3}-\d\d-\d{4}", r"\bSSN\b|(?i:social security)"),
    Id("za.idnr", r"\d{13}", r"(?i:\bid (?:no|num)|identity n|\brsa id)"),
)  # fmt: skip
IDS_BY_FORM = tuple(kind for kind in IDS if not kind.words)
IDS_BY_WORDS = tuple(kind for kind in IDS if kind.words)


def _named_alternatives(ids: tuple[Id, ...]) -> str:
    return "|".join(f"(?P<{national_id.name.replace('.', '__')}>{national_id.pattern})" for national_id in ids)


# Of ASCII's letters and digits alone: scripts without spaces write a number beside their own.
STANDING = re.compile(rf"(?<![\w.+/-])(?:{_named_alternatives(IDS_BY_FORM)})(?![\w/-]|[.,]\d)", re.ASCII)
# Both in RE2, on UTF-8: one pass over a text that has none.
STANDING_GATE = re2.compile("|".join(kind.pattern for kind in IDS_BY_FORM))
WORDS = re2.compile("|".join(f"({kind.words})" for kind in IDS_BY_WORDS))


@cache
def _bounded_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.+/-])(?:{pattern})(?![\w/-]|[.,]\d)", re.ASCII)


@cache
def _id_validator(name: str) -> Any:
    return import_module(f"stdnum.{name}").is_valid


def find_national_ids(text: str, raw: bytes) -> Iterator[Finding]:
    """National ids with a right checksum: those of a form of their own, and others after a word on them. raw: the text in UTF-8."""
    if STANDING_GATE.search(raw) is not None:
        for match in STANDING.finditer(text):
            name = str(match.lastgroup).replace("__", ".")
            if _id_validator(name)(match[0]):
                yield Finding(*match.span(), "national_id", name)
    start = at = 0  # a place in the text, and the same in bytes
    for word in WORDS.finditer(raw):
        national_id = IDS_BY_WORDS[word.lastindex - 1]
        start, at = start + len(raw[at : word.end()].decode("utf-8", "ignore")), word.end()
        for match in _bounded_pattern(national_id.pattern).finditer(text[start : start + REACH]):
            if _id_validator(national_id.name)(match[0]):
                yield Finding(start + match.start(), start + match.end(), "national_id", national_id.name)
                break
