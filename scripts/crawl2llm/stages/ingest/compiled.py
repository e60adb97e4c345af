"""The compiled part, from stages/ingest/native. One that was built from another source is refused: it would not do what the code says.

The source is `native/crawl2llm_native.pyx` with the files that it includes; `native/pyproject.toml` and `native/setup.py` say how it is
built.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from crawl2llm.core.errors import NotBuiltError

NATIVE = Path(__file__).parent / "native"
# By name, since a step's fingerprint has the files that its modules name; native/setup.py takes all that are there, in this order.
NAMES = ("bounds.pxi", "crawl2llm_native.pyx", "forest.pxi", "lexbor.pxi", "measures.pxi", "reading.pxi")
SOURCES = [NATIVE / name for name in NAMES]
SELECTOLAX = "1.0.2"  # of another version the structs in native/lexbor.pxi may be wrong
BUILD = "run `make install`; an image or a conda environment has to be built again"

try:
    import crawl2llm_native
except ImportError as error:
    raise NotBuiltError(f"crawl2llm_native is not installed, or for another Python: {BUILD} ({error})") from error

if sha256(b"".join(sha256(path.read_bytes()).digest() for path in SOURCES)).hexdigest() != crawl2llm_native.SOURCE:
    raise NotBuiltError(f"crawl2llm_native was built from another version of {NATIVE}: {BUILD}")

try:
    import selectolax
    from selectolax.lexbor import LexborHTMLParser
except ImportError as error:
    raise NotBuiltError(f"selectolax is not installed: {BUILD} ({error})") from error

if selectolax.__version__ != SELECTOLAX:
    raise NotBuiltError(f"selectolax is of version {selectolax.__version__}, and must be {SELECTOLAX}: {BUILD}")

Ids = crawl2llm_native.Ids
Page = crawl2llm_native.Page
Reader = crawl2llm_native.Reader
Scan = crawl2llm_native.Scan
Tree = crawl2llm_native.Tree
cut = crawl2llm_native.cut
kept = crawl2llm_native.kept
scores = crawl2llm_native.scores
utf8 = crawl2llm_native.utf8


def make_reader(tags: ModuleType) -> Any:
    """The Reader of pages, by the tables of tags.py. Raises NotBuiltError if selectolax has other trees than it must have."""
    try:
        return Reader(tags, LexborHTMLParser)
    except ValueError as error:
        raise NotBuiltError(f"the trees of selectolax {selectolax.__version__} cannot be read: {error}") from error
