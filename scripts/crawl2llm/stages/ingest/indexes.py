"""Files of a web server by a pattern, from the index pages of its folders, as Apache, nginx and Python's http.server write them.

A page decides no place that is asked: of its links those count alone that lead to a file or a folder of the page's own folder.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from html import unescape
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from crawl2llm.chain.command_line import InputError
from crawl2llm.chain.remote_access import Access, origin
from crawl2llm.stages.ingest.remote import Remote
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.transport import Facts

LARGEST = 2**24  # bytes of an index page: some 80,000 files
# Most folders of one pattern, and below each other: a server's links may lead in a circle.
FOLDERS, DEEPEST = 10_000, 100
INSTEAD_HINT = "name each file, or a list of them as @URL"
SAFE = "!$&'()*+,=:@~"  # of a path, what needs no escape (RFC 3986, section 3.3), without `;`, behind which secrets are looked for
# Without a tree no page takes more time than its length: no tag holds a bare `<`, and an attribute begins behind a space or a quote.
LINK = re.compile(r"""<a\s(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+>""", re.IGNORECASE)
ATTRIBUTE = re.compile(r"""(?<=[\s"'])([^\s"'<>/=]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'<>]++))""")
ENTITY = re.compile(r"&#?\w+;")
ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def without_escapes(path: str) -> str:
    """A path without percent-escapes; bytes that are no UTF-8 stay apart from all others."""
    return unquote(path, errors="surrogateescape")


def links_of(page: str) -> Iterator[str]:
    """What the links of a page lead to, as they stand there; comments have none."""
    first, *behind = page.split("<!--")
    for tag in LINK.finditer("".join([first, *(part.partition("-->")[2] for part in behind)])):
        for name, *values in ATTRIBUTE.findall(tag.group()):
            if (
                name.lower() == "href"
            ):  # `&notes` without a semicolon is no entity there (HTML, named character reference state)
                yield ENTITY.sub(lambda entity: unescape(entity.group()), "".join(values))
                break


def names_of(page: bytes, folder: str) -> dict[str, str]:
    """What an index page links to in its folder: name, with a `/` behind a folder's → URL. folder: the page's URL, which ends with `/`.

    Links with a query, which sort the page, do not count, nor do names that are hidden, as in every pattern.
    """
    # urljoin leaves out empty parts of a path, of the folder's too.
    place, folder_origin = without_escapes(urlsplit(urljoin(folder, ".")).path), origin(folder)
    url_of_name = {}
    for link in links_of(page.decode("utf-8", "replace")):
        try:
            target = urljoin(folder, link.strip())
            parts = urlsplit(target)
            inside = origin(target) == folder_origin and not parts.query
        except ValueError:  # it is no URL
            continue
        path = without_escapes(parts.path)
        name = path.removeprefix(place)
        of_folder = name.endswith("/")
        # A name that has an escaped slash, or `..`, is of another folder.
        if not inside or name == path or not (bare := name.removesuffix("/")) or "/" in bare or bare.startswith("."):
            continue
        url_of_name[name] = folder + quote(bare, safe=SAFE, errors="surrogateescape") + ("/" if of_folder else "")
    return url_of_name


class Indexes:
    """The index pages of the folders of one pattern, each read once."""

    def __init__(self, pattern: str, access: Access) -> None:
        self.pattern, self.access = pattern, access
        self.names_of_folder: dict[str, dict[str, str]] = {}
        self.searched: set[tuple[str, int]] = set()  # folder, how many parts of the pattern are left

    def folder_names(self, folder: str) -> dict[str, str]:
        """What a folder holds, see `names_of`. Raises InputError if its page is no index, is too large, or is one too many."""
        if folder not in self.names_of_folder:
            if len(self.names_of_folder) >= FOLDERS or folder.count("/") - self.pattern.count("/") > DEEPEST:
                raise InputError(
                    f"{self.pattern}: over {FOLDERS:,} folders at the server, or {DEEPEST} below each other; {INSTEAD_HINT}"
                )
            try:
                with Remote(folder, Facts(), self.access, page=True).open() as stream:
                    page = stream.read(LARGEST + 1)
            except MissingError as error:
                raise InputError(
                    f"{self.pattern}: the server does not list its files ({error}); {INSTEAD_HINT}"
                ) from error
            except TransferError as error:
                raise InputError(str(error)) from error
            if len(page) > LARGEST:
                raise InputError(f"{folder}: an index page of over {LARGEST / 2**20:.0f} MB; {INSTEAD_HINT}")
            self.names_of_folder[folder] = names_of(page, folder)
        return self.names_of_folder[folder]

    def matching_urls(self, folder: str, parts: list[str]) -> Iterator[str]:
        """The URLs of the files below a folder that match the last parts of the pattern, some several times."""
        if (folder, len(parts)) in self.searched:
            return
        self.searched.add((folder, len(parts)))
        head, rest = parts[0], parts[1:]
        names = self.folder_names(folder)
        if head == "**":
            if rest:
                yield from self.matching_urls(folder, rest)
            else:
                yield from (url for name, url in names.items() if not name.endswith("/"))
            for name, url in names.items():
                if name.endswith("/"):
                    yield from self.matching_urls(url, parts)
            return
        for name, url in names.items():
            if name.endswith("/") == bool(rest) and fnmatchcase(name.removesuffix("/"), head):
                if rest:
                    yield from self.matching_urls(url, rest)
                else:
                    yield url


def files_matching(pattern: str, access: Access) -> list[str]:
    """The URLs of the files on a web server that match a pattern (`*`, `[…]`, `**` for folders), sorted; a `?` begins a query.

    Raises InputError if a folder's page cannot be read, or lists nothing.
    """
    whole = urlsplit(pattern)
    parts = whole.path.split("/")
    first = next(number for number, part in enumerate(parts) if "*" in part or "[" in part)
    root = urlunsplit((whole.scheme, whole.netloc, "/".join([*parts[:first], ""]), "", ""))
    # A sign that is escaped is not one of the pattern.
    wanted = [ESCAPES.sub(lambda escape: glob.escape(without_escapes(escape.group())), part) for part in parts[first:]]
    indexes = Indexes(pattern, access)
    if not indexes.folder_names(root):
        raise InputError(
            f"{pattern}: the server does not list its files (no link at {root} leads to one); {INSTEAD_HINT}"
        )
    return sorted(set(indexes.matching_urls(root, wanted)))
