"""Block lists of addresses, and whether a URL is on one.

The layout of folders is that of the UT1 block lists (https://dsi.ut-capitole.fr/blacklists/). Entries are kept as 64-bit hashes, in
8 bytes each: the largest category has 4.6 million.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import re2
import xxhash
from tldextract import TLDExtract

from crawl2llm.core.errors import InputError
from crawl2llm.filters.url.settings import ScoreSettings
from crawl2llm.text.group_split import synthesis_source, url_host

LONGEST_HOST = 253  # characters of a host in the DNS (RFC 1035, section 2.3.4): no longer end of one is listed
KINDS = ("domains", "urls", "expressions")  # files of a category
WORD = re.compile(r"[^\W_]+")
COMMENT = re.compile(r"(?:^|(?<=\s))#.*")  # at the start or after a space: an address or an expression may hold one
HOSTS_LINE = re.compile(r"^(?:0\.0\.0\.0|127\.0\.0\.1|::1?)\s+")  # a line of a hosts file


def judged_url(row: dict[str, Any]) -> str:
    """The URL by which a document is judged: of a text that a model wrote of a page, that page's. row: `url` and `metadata`; "": none."""
    source_page = synthesis_source(row)
    return str(source_page["url"] or "") if source_page else row["url"] or ""


def list_entries(path: Path) -> Iterator[tuple[int, str]]:
    """(number of the line, entry) of a list, without comments and empty lines. Raises InputError for what is no text."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if entry := COMMENT.sub("", line).strip():
                    yield number, entry
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error}") from error


def category_folders(folder: Path) -> list[Path]:
    """The folders of categories: `folder` itself, or those in it. Raises InputError if there is none."""
    folders = [
        place for place in [folder, *sorted(folder.glob("*/"))] if any((place / kind).is_file() for kind in KINDS)
    ]
    if not folders:
        raise InputError(f"url.score.folders: {folder} is no folder with {', '.join(KINDS)}, nor one of such folders")
    return folders


def hash_of_text(text: str) -> int:
    """64 bits; lone surrogates, which a URL may hold, count as they are."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def parse_domains(entry: str) -> Iterator[tuple[str, bool]]:
    """(domain, whether it is written as a pattern: `*.example.org`, `.example.org`) of an entry, also as hosts files (one or more in a
    line) and `||example.org^` write it.
    """
    for name in HOSTS_LINE.sub("", entry).split():
        bare = name.strip("|^*.")
        yield url_host(bare) or host_end(bare), name.startswith((".", "*."))


def host_end(entry: str) -> str:
    """An entry of a list of ends of hosts, in the form that hosts have."""
    bare = entry.lower().lstrip("*.")
    return (url_host(f"x.{bare}") or f"x.{bare}").removeprefix("x.")


def parse_word(path: Path, number: int, entry: str) -> str:
    """A listed word. Raises InputError for what no URL could hold as one."""
    if WORD.fullmatch(entry) is None:
        raise InputError(f"{path}, line {number}: {entry!r} is not one word of letters and digits")
    return entry.casefold()


class Hashes:
    """A set of texts as sorted 64-bit hashes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.sorted_hashes: npt.NDArray[np.uint64] = np.unique(np.fromiter(map(hash_of_text, texts), np.uint64))

    def __contains__(self, text: str) -> bool:
        return self.has_hash(hash_of_text(text))

    def has_hash(self, number: int) -> bool:
        """Whether a text with this hash is in the set."""
        value = np.uint64(number)
        place = int(np.searchsorted(self.sorted_hashes, value))
        return place < len(self.sorted_hashes) and bool(self.sorted_hashes[place] == value)


def compile_expressions(path: Path) -> Iterator[Any]:
    """The regular expressions of a list, for RE2. Raises InputError, naming file and line, for one that is none.

    RE2 takes time in proportion to the URL's length, whatever the expression, and knows POSIX classes, which lists in squidGuard's
    layout hold. It has no lookahead and no backward references.
    """
    options = re2.Options()
    options.case_sensitive, options.log_errors = False, False
    for number, entry in list_entries(path):
        try:
            yield re2.compile(entry, options)
        except re2.error as error:
            reason = error.args[0].decode("utf-8", "replace")
            raise InputError(
                f"{path}, line {number}: {entry!r} is no regular expression that RE2 knows: {reason}"
            ) from error


class PublicSuffixes:
    """The public suffix list with its private part, as the package tldextract carries it: nothing is fetched, every node has the same."""

    def __init__(self) -> None:
        self.extract = TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
        self.rules = frozenset(self.extract.tlds)

    def __contains__(self, domain: str) -> bool:
        """Whether a domain is a public suffix: `uk`, `co.uk`, `blogspot.com`, and by the list's rule `*` any single label."""
        _, dot, parent = domain.partition(".")
        if not dot:
            return True
        # The package takes 5 µs for a domain, and block lists have millions.
        return (domain in self.rules or f"*.{parent}" in self.rules) and self.extract.extract_str(
            domain
        ).suffix == domain


class Lists:
    """All lists of a run. `settings`: url.score. listed_public_suffixes: entries of domains that are public suffixes, which stand for
    themselves alone.
    """

    def __init__(self, settings: ScoreSettings) -> None:
        folders = [place for name in settings.folders for place in category_folders(Path(name))]
        category_files = {kind: [place / kind for place in folders if (place / kind).is_file()] for kind in KINDS}
        files = {
            key: list(map(Path, getattr(settings, key))) for key in ("domains", "suffixes", "words", "expressions")
        }
        public = PublicSuffixes()
        urls = [entry for path in category_files["urls"] for _, entry in list_entries(path)]
        # A whole host among the addresses is a domain.
        hosts = [(host_and_path(entry), False) for entry in urls if "/" not in host_and_path(entry)]
        listed = [entry for path in category_files["domains"] + files["domains"] for _, entry in list_entries(path)]
        domain_entries = chain.from_iterable([*map(parse_domains, listed), hosts])
        ends = [host_end(entry) for path in files["suffixes"] for _, entry in list_entries(path)]
        self.listed_public_suffixes: list[str] = []

        def domains_with_hosts_below() -> Iterator[str]:
            """The domains that also stand for what is below them. The others are set apart."""
            for name, pattern in domain_entries:
                if name not in public:
                    yield name
                else:
                    (ends if pattern else self.listed_public_suffixes).append(name)

        self.domains = Hashes(domains_with_hosts_below())
        self.suffixes, self.hosts = Hashes(ends), Hashes(self.listed_public_suffixes)
        self.urls = Hashes(host_and_path(entry) for entry in urls if "?" not in entry)
        self.queries = Hashes(host_path_and_query(entry) for entry in urls if "?" in entry)
        self.words = {parse_word(path, *entry) for path in files["words"] for entry in list_entries(path)}
        self.expressions = [
            expression
            for path in category_files["expressions"] + files["expressions"]
            for expression in compile_expressions(path)
        ]

    def listed_domain(self, name: str) -> str | None:
        """The listed domain that a host belongs to, or its listed end."""
        if name in self.hosts:
            return name
        below = (
            name[at:] for at in range(max(0, len(name) - LONGEST_HOST), len(name)) if not at or name[at - 1] == "."
        )
        return next((end for end in below if end in self.suffixes or end in self.domains), None)

    def listed_address(self, url: str) -> str | None:
        """The listed address (host and path) that a URL begins with, at the end of a folder or file."""
        place = host_and_path(url)
        slashes = [at for at, character in enumerate(place) if character == "/"]
        hasher, done = xxhash.xxh3_64(), 0
        for end in [*slashes[1:], len(place)] if slashes else ():
            hasher.update(
                place[done:end].encode("utf-8", "surrogatepass")
            )  # each character once, however many slashes there are
            done = end
            if self.urls.has_hash(number := hasher.intdigest()) or self.queries.has_hash(number):
                return place[:end]
        query = host_path_and_query(url)
        return query if query in self.urls or query in self.queries else None

    def matching_expression(self, url: str) -> str | None:
        """The first regular expression that is found in a URL."""
        text = url.encode("utf-8", "replace")  # a URL may hold lone surrogates
        return next((expression.pattern for expression in self.expressions if expression.search(text)), None)

    def words_in(self, url: str) -> list[str]:
        """The listed words of a URL, each once, in its order."""
        return list(dict.fromkeys(word for word in map(str.casefold, WORD.findall(unquote(url))) if word in self.words))


def host_and_path(url: str) -> str:
    """Host and path of a URL, percent signs decoded, without scheme, port, `www.`, query and slash at the end."""
    path = re.sub(r"^(?:[a-z][a-z0-9+.-]*:)?//", "", url, flags=re.IGNORECASE)
    path = path.partition("?")[0].partition("#")[0].partition("/")[2].rstrip("/")
    return f"{url_host(url) or ''}/{unquote(path)}".rstrip("/")


def host_path_and_query(url: str) -> str:
    """Host, path and query of a URL."""
    return f"{host_and_path(url)}?{url.partition('?')[2].partition('#')[0]}"
