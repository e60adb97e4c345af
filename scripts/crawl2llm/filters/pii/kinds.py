"""The kinds of personal data, and a place in a text that holds one."""

from __future__ import annotations

from dataclasses import dataclass

# In the order of their precedence: of two finds that share a character the first kind's stays. Placeholders have their names in capitals.
KINDS = (
    "secret",
    "url_credentials",
    "email_address",
    "iban",
    "card_number",
    "national_id",
    "ip_address",
    "phone_number",
)


@dataclass(frozen=True)
class Finding:
    """`text[start:end]`, in characters. detail: of which sort it is, such as `v6` or `pl.pesel`; never what stands there."""

    start: int
    end: int
    kind: str
    detail: str = ""
