"""The compiled part, from scripts/ingest/native. One that was built from another source is refused: it would not do what the code says.

The source is `native/crawl2llm_native.pyx`, built as `native/pyproject.toml` and `native/setup.py` say.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from scripts.workflow.errors import NotBuiltError

SOURCE = Path(__file__).parent / "native" / "crawl2llm_native.pyx"
BUILD = "run `make install`; an image or a conda environment has to be built again"

try:
    import crawl2llm_native
except ImportError as error:
    raise NotBuiltError(f"{SOURCE.stem} is not installed, or for another Python: {BUILD} ({error})") from error

if sha256(SOURCE.read_bytes()).hexdigest() != crawl2llm_native.SOURCE:
    raise NotBuiltError(f"{SOURCE.stem} was built from another version of {SOURCE}: {BUILD}")

Ids, Reader, scores = crawl2llm_native.Ids, crawl2llm_native.Reader, crawl2llm_native.scores
