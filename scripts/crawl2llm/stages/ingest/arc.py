"""Writes the header of an ARC record as that of a WARC record, so that everything behind it knows one format.

ARC is what the Internet Archive and Common Crawl wrote before WARC (until 2012): a record is one line and its bytes.
"""

from __future__ import annotations


def as_warc(line: bytes, length: int, http: bool) -> bytes:
    """The WARC header of an ARC record with this first line and so many bytes. http: whether these begin as a response does.

    The file's description is a `warcinfo`, a response of HTTP a `response`, anything else, such as an answer of DNS, a `resource`.
    A record of ARC has no id.
    """
    text = line.decode("utf-8", "replace").strip()
    url, date, kind = _parse_fields(text)
    record_type = "response" if http else "resource"
    about = {
        "WARC-Type": "warcinfo" if url.startswith("filedesc:") else record_type,
        "WARC-Target-URI": url,
        "WARC-Date": f"{date[:4]}-{date[4:6]}-{date[6:8]}T{date[8:10]}:{date[10:12]}:{date[12:]}Z",
        "Content-Type": "application/http; msgtype=response" if http else kind,
        "Content-Length": str(length),
    }
    return ("WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in about.items()) + "\r\n").encode()


def _parse_fields(line: str) -> tuple[str, str, str]:
    """(URL, date, MIME type) of a line; a URL may hold blanks, so the first field that is a date is looked for behind an address."""
    fields = line.split(" ")
    at = next(at for at in range(2, len(fields)) if 12 <= len(fields[at]) <= 18 and fields[at].isdecimal())
    return " ".join(fields[: at - 1]), fields[at][:14].ljust(14, "0"), fields[at + 1]
