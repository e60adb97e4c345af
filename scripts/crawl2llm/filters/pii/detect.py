"""All kinds of personal data in a text, each place once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from crawl2llm.core import language_codes
from crawl2llm.filters.pii.addresses import find_emails, find_ips, find_url_credentials
from crawl2llm.filters.pii.checksummed import find_card_numbers, find_ibans, find_national_ids
from crawl2llm.filters.pii.credentials import find_secrets
from crawl2llm.filters.pii.digit_runs import find_digit_runs
from crawl2llm.filters.pii.kinds import KINDS, Finding
from crawl2llm.filters.pii.phones import REGIONS, find_phone_numbers


class Detector:
    """Text → its personal data. kinds: those that are looked for. regions: by language, in place of phones.REGIONS."""

    def __init__(self, kinds: Collection[str] = KINDS, regions: Mapping[str, Sequence[str]] | None = None) -> None:
        self.kinds = [kind for kind in KINDS if kind in kinds]
        self.regions = {**REGIONS, **(regions or {})}

    def __call__(self, text: str, language: str = "") -> list[Finding]:
        """What is found, in the text's order, without overlaps. language: the label by which phone numbers without + are told."""
        raw = text.encode("utf-8", "replace")
        regions = language_codes.lookup_label(self.regions, language) or ()
        places = find_digit_runs(text, raw)
        search: dict[str, Callable[[], Iterable[Finding]]] = {
            "secret": lambda: find_secrets(text, raw),
            "url_credentials": lambda: find_url_credentials(text),
            "email_address": lambda: find_emails(text),
            "iban": lambda: find_ibans(text, raw),
            "card_number": lambda: find_card_numbers(text, places),
            "national_id": lambda: find_national_ids(text, raw),
            "ip_address": lambda: find_ips(text, raw),
            "phone_number": lambda: find_phone_numbers(text, places, regions),
        }
        findings: list[Finding] = []
        for kind in self.kinds:
            findings = _merge_findings(
                findings, sorted(search[kind](), key=lambda finding: (finding.start, -finding.end))
            )
        return findings


def _merge_findings(findings: list[Finding], more: list[Finding]) -> list[Finding]:
    """Both in order, of `more` what shares no character with `found` nor with what is before it. Both are sorted by start."""
    starts = [finding.start for finding in findings]
    added, end = [], 0
    for one in more:
        number = bisect_right(starts, one.start)
        if one.start < end or (number and findings[number - 1].end > one.start):
            continue
        if number < len(findings) and findings[number].start < one.end:
            continue
        added.append(one)
        end = one.end
    return sorted(findings + added, key=lambda one: one.start) if added else findings
