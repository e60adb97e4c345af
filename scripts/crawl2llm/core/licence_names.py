"""Names of licences by their addresses: SPDX's (https://spdx.org/licenses/) in small letters, such as cc-by-sa-4.0.

Without a version where the address has none.
"""

from __future__ import annotations

import re

CREATIVE = re.compile(
    r"creativecommons\.org/(?:licen[sc]es|publicdomain)/(zero|mark|certification|publicdomain|(?:by|nc|nd|sa|sampling\+?)(?:-(?:by|nc|nd|sa))*)(?![\w-])(?:/(\d\.\d))?",
    re.IGNORECASE,
)
OTHER_LICENCES = (
    (re.compile(r"gnu\.org/(?:licen[sc]es|copyleft)/(?:old-licenses/)?fdl(?:-(\d\.\d))?", re.IGNORECASE), "gfdl"),
    (re.compile(r"nationalarchives\.gov\.uk/doc/open-government-licence/(?:version/(\d))?", re.IGNORECASE), "ogl-uk"),
    (re.compile(r"opendatacommons\.org/licenses/(by|odbl|pddl)(?:/(\d\.\d))?", re.IGNORECASE), "odc"),
    (re.compile(r"apache\.org/licenses/LICENSE-(2\.0)", re.IGNORECASE), "apache"),
    (re.compile(r"opensource\.org/licen[sc]es?/(MIT|BSD-3-Clause|BSD-2-Clause|ISC)\b", re.IGNORECASE), ""),
)  # fmt: skip


def name_of(address: str) -> str:
    """The name of the licence that an address is of; "" for another address."""
    if match := CREATIVE.search(address):
        kind, version = match[1].lower(), match[2]
        if kind == "zero":
            kind, version = "cc0", version or "1.0"
        elif kind in ("mark", "certification", "publicdomain"):
            return "public-domain"
        else:
            kind = f"cc-{kind}"
        return f"{kind}-{version}" if version else kind
    for pattern, name in OTHER_LICENCES:
        if match := pattern.search(address):
            parts = [part.lower() for part in match.groups() if part]
            return "-".join([name, *parts] if name else parts)
    return ""
