"""All kinds of personal data in a text, each place once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from crawl2llm.core import language_codes
from crawl2llm.filters.pii.addresses import emails, ips, url_credentials
from crawl2llm.filters.pii.checksummed import cards, ibans, ids
from crawl2llm.filters.pii.credentials import secrets
from crawl2llm.filters.pii.digit_runs import runs
from crawl2llm.filters.pii.kinds import KINDS, Found
from crawl2llm.filters.pii.phones import REGIONS, phones


class Detector:
    """Text → its personal data. kinds: those that are looked for. regions: by language, in place of phones.REGIONS."""

    def __init__(self, kinds: Collection[str] = KINDS, regions: Mapping[str, Sequence[str]] | None = None) -> None:
        self.kinds = [kind for kind in KINDS if kind in kinds]
        self.regions = {**REGIONS, **(regions or {})}

    def __call__(self, text: str, language: str = "") -> list[Found]:
        """What is found, in the text's order, without overlaps. language: the label by which phone numbers without + are told."""
        raw = text.encode("utf-8", "replace")
        regions = language_codes.find(self.regions, language) or ()
        places = runs(text, raw)
        search: dict[str, Callable[[], Iterable[Found]]] = {
            "secret": lambda: secrets(text, raw),
            "url_credentials": lambda: url_credentials(text),
            "email_address": lambda: emails(text),
            "iban": lambda: ibans(text, raw),
            "card_number": lambda: cards(text, places),
            "national_id": lambda: ids(text, raw),
            "ip_address": lambda: ips(text, raw),
            "phone_number": lambda: phones(text, places, regions),
        }
        found: list[Found] = []
        for kind in self.kinds:
            found = _with(found, sorted(search[kind](), key=lambda one: (one.start, -one.end)))
        return found


def _with(found: list[Found], more: list[Found]) -> list[Found]:
    """Both in order, of `more` what shares no character with `found` nor with what is before it. Both are sorted by start."""
    starts = [one.start for one in found]
    added, end = [], 0
    for one in more:
        number = bisect_right(starts, one.start)
        if one.start < end or (number and found[number - 1].end > one.start):
            continue
        if number < len(found) and found[number].start < one.end:
            continue
        added.append(one)
        end = one.end
    return sorted(found + added, key=lambda one: one.start) if added else found
