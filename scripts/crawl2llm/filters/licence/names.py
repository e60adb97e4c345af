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
def normal(text: str) -> str:
    """`CC BY-SA 3.0`, `cc_by_sa_3.0` and its address as `cc-by-sa-3.0`; `Apache-2.0` as `apache-2.0`."""
    if found := name_of(text):
        return found
    return re.sub(r"[\s_/-]+", "-", text.strip().lower()).strip("-")


def of(metadata: dict[str, Any]) -> tuple[str | None, str | None, int]:
    """(licence, how the document says so, how many others it names beside) of a document's metadata; None: it names none.

    What ingest.extract found in the page says how; else the metadata of a row does, as `metadata`. Of several the first counts.
    """
    # What a row of JSON Lines or Parquet says beside its text lies in `fields`, perhaps as `meta.license`.
    said = {name.rpartition(".")[2]: value for name, value in metadata.get("fields", {}).items()} | metadata
    for key in KEYS:
        value = said.get(key)
        names = [
            each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str) and each.strip()
        ]
        if names:
            beside = int(metadata.get("licences_beside", len(dict.fromkeys(map(normal, names))) - 1))
            return normal(names[0]), str(metadata.get("licence_from", "metadata")), beside
    return None, None, 0


def allowed(name: str, wanted: Collection[str]) -> bool:
    """Whether a list has a licence, by its whole name (`cc-by-4.0`, `CC BY 4.0`) or without its version (`cc-by`: none of cc-by-nc)."""
    return any(
        name == each or VERSION.fullmatch(name.removeprefix(each)) is not None
        for each in map(normal, wanted)
        if name.startswith(each)
    )
