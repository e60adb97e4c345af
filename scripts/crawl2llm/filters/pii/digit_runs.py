"""Where in a text many digits stand close together: what looks for longer numbers reads these places alone."""

from __future__ import annotations

import re2

LEAST_DIGITS = 7  # digits
LOOKAHEAD = 8  # characters behind a run that an expression may look at
SEPARATORS = " .\\-/()\u00a0\u2009\u2010\u2011\u202f\u30fc"
# As long as it goes on: at most 3 other characters between two digits. RE2 takes time in proportion to the text's length.
RUN = re2.compile(f"[0-9](?:[{SEPARATORS}]{{0,3}}[0-9]){{{LEAST_DIGITS - 1},}}")


def find_digit_runs(text: str, raw: bytes) -> list[tuple[int, int]]:
    """(start, end) of each run in characters, in order. raw: the text in UTF-8."""
    byte_spans = [match.span() for match in RUN.finditer(raw)]
    if len(raw) == len(text):
        return byte_spans
    out, at, characters = [], 0, 0  # a place in bytes, and the same in characters
    for start, end in byte_spans:
        begin = characters + len(raw[at:start].decode("utf-8"))
        at, characters = end, begin + len(raw[start:end].decode("utf-8"))
        out.append((begin, characters))
    return out
