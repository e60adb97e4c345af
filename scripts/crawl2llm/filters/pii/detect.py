"""All kinds of personal data in a text, each place once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence

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

        def find_kind(kind: str) -> Iterable[Finding]:
            match kind:
                case "secret":
                    return find_secrets(text, raw)
                case "url_credentials":
                    return find_url_credentials(text)
                case "email_address":
                    return find_emails(text)
                case "iban":
                    return find_ibans(text, raw)
                case "card_number":
                    return find_card_numbers(text, places)
                case "national_id":
                    return find_national_ids(text, raw)
                case "ip_address":
                    return find_ips(text, raw)
                case "phone_number":
                    return find_phone_numbers(text, places, regions)
            raise KeyError(kind)

        findings: list[Finding] = []
        for kind in self.kinds:
            findings = _merge_findings(
                findings, sorted(find_kind(kind), key=lambda finding: (finding.start, -finding.end))
            )
        return findings


def _merge_findings(findings: list[Finding], more: list[Finding]) -> list[Finding]:
    """Both in order, of `more` what shares no character with `findings` nor with what is before it. Both are sorted by start."""
    starts = [finding.start for finding in findings]
    added, end = [], 0
    for finding in more:
        number = bisect_right(starts, finding.start)
        if finding.start < end or (number and findings[number - 1].end > finding.start):
            continue
        if number < len(findings) and findings[number].start < finding.end:
            continue
        added.append(finding)
        end = finding.end
    return sorted(findings + added, key=lambda finding: finding.start) if added else findings
