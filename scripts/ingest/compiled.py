"""The compiled part, from scripts/ingest/native. One that was built from another source is refused: it would not do what the code says.

The source is `native/crawl2llm_native.pyx` with the three files that it includes; `native/pyproject.toml` and `native/setup.py` say how it
is built.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from scripts.workflow.errors import NotBuiltError

NATIVE = Path(__file__).parent / "native"
SOURCES = tuple(NATIVE / name for name in ("crawl2llm_native.pyx", "bounds.pxi", "measures.pxi", "text.pxi"))
BUILD = "run `make install`; an image or a conda environment has to be built again"

try:
    import crawl2llm_native
except ImportError as error:
    raise NotBuiltError(f"crawl2llm_native is not installed, or for another Python: {BUILD} ({error})") from error

if sha256(b"".join(sha256(path.read_bytes()).digest() for path in SOURCES)).hexdigest() != crawl2llm_native.SOURCE:
    raise NotBuiltError(f"crawl2llm_native was built from another version of {NATIVE}: {BUILD}")

Ids, Page, Reader, Scan, scores = (
    crawl2llm_native.Ids,
    crawl2llm_native.Page,
    crawl2llm_native.Reader,
    crawl2llm_native.Scan,
    crawl2llm_native.scores,
)
