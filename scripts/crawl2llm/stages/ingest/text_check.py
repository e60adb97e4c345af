"""Tells text from everything else: images, archives, fonts, compressed or random bytes.

Every reader asks here before it makes a document. How a file of another kind begins is a table, most of it from the patterns of the
WHATWG MIME sniffing standard (https://mimesniff.spec.whatwg.org/, section 6); what begins like nothing known is judged by its
characters.
"""

from __future__ import annotations

import codecs
import re

import numpy as np

# Signatures that are printable have more of the format behind them, since a text may begin with `BM` or `OTTO`.
SIGNATURES = {
    "PDF": rb"\s{0,16}%PDF-", "PostScript": rb"%!PS-Adobe-", "RTF": rb"\{\\rtf1",
    "PNG": rb"\x89PNG", "JPEG": rb"\xff\xd8\xff", "GIF": rb"GIF8[79]a(?:.[\x00-\x1f]){2}",
    "WebP": rb"RIFF.{4}WEBPVP", "BMP": rb"BM.{4}\x00{4}",
    "icon": rb"\x00\x00[\x01\x02]\x00", "TIFF": rb"II\*\x00|MM\x00\*", "DjVu": rb"AT&TFORM.{4}DJV[MU]",
    "WAV": rb"RIFF.{4}WAVE", "AVI": rb"RIFF.{4}AVI ", "AIFF": rb"FORM.{4}AIFF", "MP3": rb"ID3[\x02-\x04]", "Ogg": rb"OggS\x00",
    "FLAC": rb"fLaC\x00", "MIDI": rb"MThd\x00\x00\x00\x06", "MP4": rb".{4}ftyp[a-zA-Z0-9]{3}", "WebM": rb"\x1a\x45\xdf\xa3",
    "font": rb"\x00\x01\x00\x00|OTTO\x00|ttcf\x00|wOF[F2](?:\x00\x01\x00\x00|OTTO|true)|.{34}LP.{64}\x00",
    "gzip": rb"\x1f\x8b\x08", "zstd": rb"\x28\xb5\x2f\xfd", "LZ4": rb"\x04\x22\x4d\x18", "xz": rb"\xfd7zXZ\x00",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "compress": rb"\x1f\x9d", "zip": rb"PK(?:\x03\x04|\x05\x06)", "RAR": rb"Rar!\x1a\x07",
    "7z": rb"7z\xbc\xaf\x27\x1c", "tar": rb".{257}ustar[\x00 ]",
    "Office": rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "SQLite": rb"SQLite format 3\x00", "Parquet": rb"PAR1[\x00-\x1f]",
    "program": rb"\x7fELF|\xca\xfe\xba\xbe|\x00asm|MZ.\x00",
}  # fmt: skip
_NAMES = list(SIGNATURES)
_SIGNATURE = re.compile(b"|".join(b"(%s)" % pattern for pattern in SIGNATURES.values()), re.DOTALL)
BEGIN = 300  # bytes that tell a signature
# The standard's "binary data bytes" (section 3).
BINARY = bytes([*range(0x00, 0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20)])
BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# These as characters, DEL, C1 controls, and what could not be decoded; characters of private use, of UTF-16 what begins a plane of them.
_WRONG, _PRIVATE = np.zeros((2, 1 << 16), bool)
_WRONG[[*BINARY, *range(0x7F, 0xA0), 0xFFFD]] = True
_PRIVATE[[*range(0xDB80, 0xDC00), *range(0xE000, 0xF900)]] = True
HEAD = 4096  # bytes of a body that tell whether it is text; the standard looks at 1,445
MOST = 0.02  # share of these among the characters of a text
PARTS, PART = 16, 1024  # parts of a long text that are looked at, and characters of each
SIGNS = 0.2  # share of a text that may be bullets and icons: one before every few words
FEW = 2  # such characters that a text may have, however short it is


def kind_of(body: bytes) -> str | None:
    """What the first bytes say that a body is; None if that may be text."""
    match = _SIGNATURE.match(body[:BEGIN])
    return _NAMES[match.lastindex - 1] if match and match.lastindex else None


def is_text(body: bytes) -> bool:
    """Whether bytes may be text in some encoding: they begin like no other kind, and have few binary data bytes or a byte-order mark."""
    head = body[:HEAD]
    binary = len(head) - len(head.translate(None, BINARY))
    return not kind_of(head) and (head.startswith(BOMS) or not _too_many(binary, len(head)))


def why_not_text(text: str) -> str | None:
    """Why decoded characters are no text, in words; None for text. Of a long one PARTS are looked at, which lie evenly."""
    if kind := kind_of(text[:BEGIN].encode("latin-1", "replace")):
        return f"it is {kind}"
    if len(text) > PARTS * PART:
        text = "".join(text[at : at + PART] for at in range(0, len(text) - PART + 1, (len(text) - PART) // (PARTS - 1)))
    wrong = wrong_characters(text)
    if not _too_many(wrong, len(text)):
        return None
    return f"{wrong:,} of {len(text):,} characters are controls, private or could not be decoded"


def wrong_characters(text: str) -> int:
    """How many characters do not belong in a text.

    Those of private use count once each, since a text may have bullets and icons of a font; if they are more than SIGNS of it, all count.
    """
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    private = units[_PRIVATE.take(units, mode="wrap")]  # `wrap` checks no bounds, which all units are within
    some = len(private) if len(private) > SIGNS * len(text) else len(np.unique(private))
    return int(np.count_nonzero(_WRONG.take(units, mode="wrap"))) + some


def _too_many(number: int, size: int) -> bool:
    return number > FEW and number > size * MOST
