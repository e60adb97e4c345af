"""Compare the URL of every document with block lists: domains, ends of hosts, addresses, words and regular expressions.

Signals: `id, source, curated, domain, address, expression, words`: the entry that was found of each kind (null: none), and how many listed
words the URL holds. A document without a host in its URL, such as a book, is on no list.
A text that a model wrote of a page is judged by that page's URL.
"""

from __future__ import annotations

import pyarrow as pa

from crawl2llm.core.phrases import and_more
from crawl2llm.filters.framework import score
from crawl2llm.filters.framework.score import Row
from crawl2llm.filters.url.lists import Lists, judged_url
from crawl2llm.filters.url.settings import ScoreSettings
from crawl2llm.text.group_split import url_host

SUFFIXES_SHOWN = 5  # public suffixes that a note names
SIGNAL = score.signal_schema(domain=pa.string(), address=pa.string(), expression=pa.string(), words=pa.int64())


class Urls(score.Measuring[ScoreSettings]):
    """Compares the URLs of a shard's documents with lists. settings: `url.score`."""

    columns = ("url", "metadata")
    reads_texts = False

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.lists, self.without_host = Lists(settings), 0

    def measure(self, document: Row) -> Row:
        """The entries of each kind that a document's URL is found by."""
        url = judged_url(document)
        host = url_host(url)
        if host is None:
            self.without_host += 1
            return {"words": 0}
        return {
            "domain": self.lists.listed_domain(host),
            "address": self.lists.listed_address(url),
            "expression": self.lists.matching_expression(url),
            "words": len(self.lists.words_in(url)),
        }

    def summary(self) -> Row:
        """Documents without a host, and what a person may want to change in the lists."""
        notes = [] if any(dict(self.settings).values()) else ["url.score names no list: no URL was compared."]
        if suffix_entries := sorted(set(self.lists.listed_public_suffixes)):
            notes.append(
                f"{len(suffix_entries):,} listed domains are public suffixes and block no host below them: "
                f"{and_more(suffix_entries, SUFFIXES_SHOWN)}. Write .{suffix_entries[0]} to block all below it."
            )
        return {"without_host": self.without_host, "notes": notes}


main = score.program("url.score", __doc__, Urls, SIGNAL)

if __name__ == "__main__":
    raise SystemExit(main())
