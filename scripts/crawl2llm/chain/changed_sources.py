"""Which source files are not those that a shard was made from, in words for a person.

That they differ is decided by the digests in the manifests. The record of ingest.extract holds one for each file, and so says which.
"""

from __future__ import annotations

from pathlib import Path

from crawl2llm.chain import sources
from crawl2llm.core import record
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.phrases import and_more

MOST = 3  # names that are shown
SOURCE_FILES = "source files"  # in every sentence of this module


def changed_files_text(manifest: Path, shard: str, entries: list[str]) -> str:
    """`source files: x.warc.gz replaced, y.warc.gz new, z.warc.gz gone` of a shard that now has the files `entries`.

    manifest: that of ingest.extract for the shard. Where its record does not name the files that it read, the shard and the first of
    its files are named.
    """
    then = record.read(manifest).get("files")
    try:
        now = sources.file_digests(entries)
    except ConfigError:  # gone since the plan was made
        now = {}
    if not isinstance(then, dict) or not now:
        names = [name.split("=", 1)[1] for name in now]
        return f"other {SOURCE_FILES} in shard {shard}" + (
            f" ({and_more(names, MOST)})" if names else ", which has none now"
        )
    changes = []
    for name in sorted(then.keys() | now.keys()):
        path = name.split("=", 1)[1]
        if name not in then:
            changes.append(f"{path} new")
        elif name not in now:
            changes.append(f"{path} gone")
        elif then[name] != now[name]:
            changes.append(f"{path} replaced")
    return f"{SOURCE_FILES}: {and_more(changes, MOST) or 'in another order of the sources'}"
