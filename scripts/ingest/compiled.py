"""The compiled part, from scripts/ingest/native. One that was built from another source is refused: it would not do what the code says."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).parent / "native" / "crawl2llm_native.pyx"

try:
    from crawl2llm_native import SOURCE as BUILT_FROM
    from crawl2llm_native import Ids, Reader, scores
except ImportError as error:
    raise ImportError(f"{SOURCE.stem} is not installed, or for another Python: run `make install` ({error})") from error

if sha256(SOURCE.read_bytes()).hexdigest() != BUILT_FROM:
    raise ImportError(f"{SOURCE.stem} was built from another version of {SOURCE}: run `make install`")

__all__ = ["Ids", "Reader", "scores"]
