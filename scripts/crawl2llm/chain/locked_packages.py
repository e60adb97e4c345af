"""The packages that a lock of another environment pins: other ones may give other bytes."""

from __future__ import annotations

from crawl2llm.core.manifest import canonical_json, digest
from crawl2llm.core.root import ROOT

QUANTIZE_LOCK = "envs/lock-quantize.txt"


def parse_pins(text: str) -> list[str]:
    """The packages of a lock, sorted; comments are left out."""
    return sorted(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def lock_digest(lock: str) -> str:
    """A digest of the packages of a lock, a path below the project."""
    return digest(canonical_json(parse_pins((ROOT / lock).read_text(encoding="utf-8"))))
