"""Reads WARC, WET and ARC files: every record becomes a page or is dropped with a reason."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastwarc.warc import WarcRecord, WarcRecordType
from resiliparse.parse.encoding import detect_mime

from crawl2llm.formats.documents import document_id
from crawl2llm.stages.ingest import head, xhtml
from crawl2llm.stages.ingest.arc import as_warc
from crawl2llm.stages.ingest.bounds import scan_page, too_hard
from crawl2llm.stages.ingest.charsets import decode_text
from crawl2llm.stages.ingest.extractors import EXTRACTORS, MARKDOWN, PageTooComplexError
from crawl2llm.stages.ingest.files import File, is_cut
from crawl2llm.stages.ingest.frames import HEADER, Damage, frames
from crawl2llm.stages.ingest.http import BodyError, BodyTooLargeError, codings, decode_body
from crawl2llm.stages.ingest.licences import page_licence
from crawl2llm.stages.ingest.markup import code_lines, encode_page, parse_page
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.tags import UNSEEN, UNSPACED
from crawl2llm.stages.ingest.text_check import kind_of, why_not_text

HTML = {"text/html", xhtml.TYPE}
VAGUE_TYPES = {"", "application/octet-stream", "unknown/unknown", "binary/octet-stream", "application/unknown"}
# Robots rules that may stand beside `noindex`; of words beginning with `no` (`noai`, `nocache`, misspelt ones) any.
RULE = re.compile(r"all|none|index|follow|archive|snippet|imageindex|indexifembedded|translate|odp|ydir|acap|no[a-z]+")
# Rules that have a value, which may be `none` too (https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag).
VALUED_RULE = re.compile(r"max-(?:snippet|image-preview|video-preview)\s*:\s*[^\s,;]*|unavailable_after\s*:[^,;]*")
SPACE = re.compile(r"[ \t\u00a0]+")
NEWLINES = re.compile(r"\n{3,}")
BORDER = "\u200b"
UNSEEN_RUN = re.compile(f"[{UNSEEN}]+")
UNSPACED_BORDER = re.compile(f"(?<=[{UNSPACED}])[{UNSEEN}]+[{UNSPACED}]")
TIDY_CHARACTERS = 1 << 20  # characters that are cut into lines at a time


@dataclass
class Page:
    """A record with main text, ready to be a document."""

    id: str
    text: str
    url: str
    date: str | None
    metadata: dict[str, Any] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()  # columns beside the text whose values could not be read: they are null


@dataclass
class RejectedRecord:
    """A dropped record: reason (counted), and what would help a person to see why."""

    reason: str
    record_id: str
    url: str
    detail: str = ""


def clean_verbatim(text: str) -> str:
    """The text with nothing changed but line ends, NUL and lone surrogates."""
    return text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "ignore").decode("utf-8")


def drop_unseen(text: str) -> str:
    """The text without characters that are not seen (UNSEEN); U+200B stays where it is a border of words (tags.UNSPACED)."""
    return UNSEEN_RUN.sub(_border_kept, text) if any(character in text for character in UNSEEN) else text


def _border_kept(match: re.Match[str]) -> str:
    return (
        BORDER
        if BORDER in match.group() and UNSPACED_BORDER.match(match.string, match.start(), match.end() + 1)
        else ""
    )


def tidy(text: str, code: Collection[str] = ()) -> str:
    """Extracted text with runs of spaces and blank lines folded and line ends trimmed; NUL, lone surrogates and characters that are not
    seen (`drop_unseen`) out. code: lines that keep their white space, without that at their ends.
    """
    # In parts: 20 MB of short lines are 7 million strings.
    parts = (_trim_lines(part, code) for part in _text_parts(drop_unseen(clean_verbatim(text))))
    return NEWLINES.sub("\n\n", "\n".join(parts)).strip("\n" if code else None)


def _text_parts(text: str) -> Iterator[str]:
    """The text cut at line ends, which are left out, into parts of TIDY_CHARACTERS characters or a line more."""
    at = 0
    while (end := text.find("\n", at + TIDY_CHARACTERS)) >= 0:
        yield text[at:end]
        at = end + 1
    yield text[at:]


def _trim_lines(text: str, code: Collection[str]) -> str:
    lines = text.split("\n")
    if code:
        return "\n".join([end if (end := line.rstrip()) in code else SPACE.sub(" ", line).strip() for line in lines])
    return "\n".join([SPACE.sub(" ", line).strip() for line in lines])


def records(path: File, limit: int) -> Iterator[tuple[int, WarcRecord | RejectedRecord]]:
    """(offset in the decompressed file, record) of a file; damage between two records is one RejectedRecord `broken_record`, a
    file without any `not_warc`.

    A record that the file's end or damage cuts short is marked `WARC-Truncated`; a block over `limit` bytes is left empty.
    """
    count, damage, places, offset = 0, "", 0, 0
    for frame in frames(path, limit):
        if isinstance(frame, Damage):
            if not (frame.unfinished and is_cut(path)):  # the cut was asked for
                damage, places = damage or frame.description, places + 1
            continue
        if places:
            yield offset, RejectedRecord("broken_record", "", "", _damage_text(damage, places, count))
            damage, places = "", 0
        if frame.block and len(frame.block) < frame.length and is_cut(path):
            continue
        count, offset = count + 1, frame.offset
        record = None
        try:
            header = as_warc(frame.header, frame.length, frame.block[:5] == b"HTTP/") if frame.arc else frame.header
            record = WarcRecord.from_reader(io.BytesIO(header + frame.block), quirks_mode=True)
            record.parse_http(quirks_mode=True)
        except (OSError, ValueError) as error:
            name, url = (record.record_id or "", target_uri(record)) if record else ("", "")
            yield offset, RejectedRecord("broken_record", name, url, str(error)[:300])
            continue
        if frame.block and len(frame.block) < frame.length:
            record.headers["WARC-Truncated"] = "unspecified"
        yield offset, record
    if is_cut(path) and not places:
        return
    if not count:
        yield 0, RejectedRecord("not_warc", "", "", damage or "the file is empty")
    elif places:
        yield offset, RejectedRecord("broken_record", "", "", _damage_text(damage, places, count))


def _damage_text(damage: str, places: int, count: int) -> str:
    more = f" (and {places - 1} more places)" if places > 1 else ""
    return f"after {count} records: {damage}{more}"


def target_uri(record: WarcRecord) -> str:
    """The record's target URI without angle brackets (WARC 1.0 writers put them)."""
    return (record.headers.get("WARC-Target-URI") or "").strip().strip("<>")


def _says_noindex(rules: str) -> bool:
    """Whether robots rules, of a header or a meta tag, say `noindex` or `none`, which are words of English sentences too."""
    for part in re.split("[,;]", VALUED_RULE.sub(" ", rules.lower())):
        words = re.findall(r"[\w-]+", part.rpartition(":")[2])  # before the colon: a robot's name
        if not {"noindex", "none"}.isdisjoint(words) and all(map(RULE.fullmatch, words)):
            return True
    return False


def is_noindex(record: WarcRecord, robots: list[str]) -> bool:
    """Whether an X-Robots-Tag header or a robots meta tag says `noindex` or `none`, to all robots or to one that it names.

    robots: what the page's robots meta tags say.
    """
    headers = record.http_headers.astuples() if record.http_headers is not None else []
    rules = [value for name, value in headers if name.lower() == "x-robots-tag"]
    return any(map(_says_noindex, (*rules, *robots)))


class WarcReader:
    """Turns the records of WARC, WET and ARC files into pages."""

    def __init__(self, source: ExtractSource, settings: ExtractSettings) -> None:
        self.source, self.settings = source, settings

    def __call__(self, path: File, file: str = "") -> Iterator[Page | RejectedRecord]:
        """Every record of the file as a Page or a RejectedRecord. file: its name below the source's root."""
        for offset, record in records(path, self.settings.max_body_bytes + HEADER):
            if isinstance(record, RejectedRecord):
                yield record
                continue
            try:
                page = self.page_of_record(record)
                if isinstance(page, Page) and not (record.record_id and page.url):
                    # Nothing else tells such a record from another one.
                    page.id = document_id(self.source.name, file or path.name, str(offset))
                    page.metadata["offset"] = offset
                yield page
            except BodyTooLargeError as error:
                yield RejectedRecord("too_large", record.record_id or "", target_uri(record), str(error))
            except BodyError as error:
                yield RejectedRecord("broken_body", record.record_id or "", target_uri(record), str(error))
            except (OSError, ValueError, UnicodeError, RuntimeError) as error:
                yield RejectedRecord("broken_record", record.record_id or "", target_uri(record), str(error)[:300])

    def page_of_record(self, record: WarcRecord) -> Page | RejectedRecord:
        """One record as a Page or a RejectedRecord. Raises BodyTooLargeError, or what a damaged body makes the libraries raise."""
        url, name, kind = target_uri(record), record.record_id or "", record.record_type
        if kind not in (WarcRecordType.response, WarcRecordType.resource, WarcRecordType.conversion):
            # Not a page: FastWARC calls a record whose type it cannot read unknown.
            return RejectedRecord(f"type_{kind}", name, url)
        if kind == WarcRecordType.response and not record.is_http_parsed:
            return RejectedRecord("not_http", name, url, record.headers.get("Content-Type") or "")
        body = record.reader.read()
        size = len(body) or record.content_length  # a body over the limit was not held
        if size > self.settings.max_body_bytes:
            return RejectedRecord("too_large", name, url, f"{size} bytes")
        if kind == WarcRecordType.conversion:
            return self.page_of_text(record, tidy(body.decode("utf-8", "replace")), {"content_type": "text/plain"})

        headers = record.http_headers if kind == WarcRecordType.response else None
        if headers is not None:
            status = headers.status_code
            if status != 200:
                return RejectedRecord(
                    f"status_{status}" if status else "not_http", name, url, headers.get("Location") or ""
                )
        declared = (headers.get("Content-Type") if headers is not None else record.headers.get("Content-Type")) or ""
        facts: dict[str, Any] = {"content_type": declared}
        if headers is not None:
            length = (headers.get("Content-Length") or "").strip()
            if re.fullmatch(r"[0-9]{1,18}", length) and int(length) > len(body):
                facts["truncated"] = True
            body, whole = decode_body(body, codings(headers.astuples()), self.settings.max_body_bytes)
            if not whole:
                facts["truncated"] = True
        if record.headers.get("WARC-Truncated"):
            facts["truncated"] = True
        if not body.strip():
            return RejectedRecord("empty_body", name, url)
        return self.page_of_html(record, body, declared, facts)

    def page_of_html(
        self, record: WarcRecord, body: bytes, declared: str, facts: dict[str, Any]
    ) -> Page | RejectedRecord:
        """The main text of an HTML body, or why there is none."""
        url, name = target_uri(record), record.record_id or ""
        mime = declared.split(";")[0].strip().lower()
        # A missing or vague type is looked into; a type that says HTML is believed unless the bytes are plainly something else.
        if mime not in VAGUE_TYPES and mime not in HTML:
            return RejectedRecord("not_html", name, url, mime)
        if kind := kind_of(body):
            return RejectedRecord("not_html", name, url, f"{mime or 'no type'}, the bytes are {kind}")
        if mime in VAGUE_TYPES and (sniffed := detect_mime(body[:8192])) not in HTML:
            return RejectedRecord("not_html", name, url, f"{mime or 'no type'}, bytes look like {sniffed}")
        charset = re.search(r"charset\s*=\s*([^;\s]+)", declared, re.IGNORECASE)
        html, facts["charset"], facts["charset_from"] = decode_text(body, charset.group(1) if charset else None)
        if why := why_not_text(html):
            return RejectedRecord("not_text", name, url, why)
        if mime == xhtml.TYPE:
            html = xhtml.as_html(html)
        encoded = encode_page(html)
        reason, detail = too_hard(scan_page(encoded), self.settings.extractor)
        if reason:
            return RejectedRecord(reason, name, url, detail)
        tree = parse_page(encoded)
        del encoded
        page_head = head.read_head(tree)
        if self.settings.respect_noindex and is_noindex(record, page_head.robots):
            return RejectedRecord("noindex", name, url)
        facts |= {key: tidy(value) for key, value in head.page_facts(page_head, url).items()}
        if self.settings.licence:
            facts |= page_licence(html, tree)
        try:
            extractors = MARKDOWN if self.settings.markup == "markdown" else EXTRACTORS
            text = extractors[self.settings.extractor](html, tree, self.settings.main_content)
        except PageTooComplexError as hard:
            return RejectedRecord(hard.reason, name, url, str(hard))
        # Ours is tidy, and keeps the white space of code.
        is_tidy = self.settings.extractor == "fast" or extractors is MARKDOWN
        return self.page_of_text(record, text if is_tidy else tidy(text, code_lines(tree)), facts)

    def page_of_text(self, record: WarcRecord, text: str, facts: dict[str, Any]) -> Page | RejectedRecord:
        """A Page of the text, unless there is too little of it."""
        url, name = target_uri(record), record.record_id or ""
        if len(text) < self.settings.min_characters:
            return RejectedRecord("no_text", name, url, f"{len(text)} characters")
        if why := why_not_text(text):
            return RejectedRecord("not_text", name, url, why)
        facts["record_id"] = name
        return Page(document_id(name, url), text, url, record.headers.get("WARC-Date"), facts)
