"""Names of licences: what metadata calls one, as SPDX does, in small letters and without spaces; and whether a list has it."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from crawl2llm.core.licence_names import name_of

KEYS = ("licence", "license", "licenses")  # of a document's metadata
VERSION = re.compile(r"-v?\d+(?:\.\d+)*(?:-only|-or-later)?|-only|-or-later")


@lru_cache(maxsize=1024)
def normal_name(text: str) -> str:
    """`CC BY-SA 3.0`, `cc_by_sa_3.0` and its address as `cc-by-sa-3.0`; `Apache-2.0` as `apache-2.0`."""
    if known_name := name_of(text):
        return known_name
    return re.sub(r"[\s_/-]+", "-", text.strip().lower()).strip("-")


def licence_of(metadata: dict[str, Any]) -> tuple[str | None, str | None, int]:
    """(licence, how the document says so, how many others it names beside) of a document's metadata; None: it names none.

    What ingest.extract found in the page says how; else the metadata of a row does, as `metadata`. Of several the first counts.
    """
    # What a row of JSON Lines or Parquet says beside its text lies in `fields`, perhaps as `meta.license`.
    fields = {name.rpartition(".")[2]: value for name, value in metadata.get("fields", {}).items()} | metadata
    for key in KEYS:
        value = fields.get(key)
        names = [
            entry
            for entry in (value if isinstance(value, list) else [value])
            if isinstance(entry, str) and entry.strip()
        ]
        if names:
            others_named = int(metadata.get("licences_beside", len(dict.fromkeys(map(normal_name, names))) - 1))
            return normal_name(names[0]), str(metadata.get("licence_from", "metadata")), others_named
    return None, None, 0


def is_allowed(name: str, allowed_names: Collection[str]) -> bool:
    """Whether a list has a licence, by its whole name (`cc-by-4.0`, `CC BY 4.0`) or without its version (`cc-by`: none of cc-by-nc)."""
    return any(
        name == allowed_name or VERSION.fullmatch(name.removeprefix(allowed_name)) is not None
        for allowed_name in map(normal_name, allowed_names)
        if name.startswith(allowed_name)
    )
