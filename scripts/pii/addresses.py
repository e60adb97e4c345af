"""E-mail addresses and public IP addresses in a text. Every function takes time in proportion to the text's length."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import cache

import re2
from tldextract import TLDExtract

from scripts.pii.kinds import Found

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
# Of RFC 5321's characters those that mailboxes have: with all, the `?to=` of a link would belong to the address.
LOCAL, DOMAIN = LETTERS + "._%+-", LETTERS + ".-"
LONGEST_LOCAL, LONGEST_DOMAIN = 64, 255  # characters, RFC 5321, section 4.5.3.1
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # RFC 1035, section 2.3.4
LOWER = re.compile(r"[a-z]*")
# `host:path` of scp and git, which is no address.
REMOTE_PATH = re.compile(r":[\w.~-]{0,100}/|:\S{1,100}\.git\b")
V4 = re.compile(r"(?<![\w.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\w|\.\d|-[A-Za-z])", re.ASCII)
# 2000::/3 is all that is given out as global unicast (RFC 4291, section 2.4), so a first group has four digits.
V6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,35}(?!\w)", re.ASCII)
# One pass of RE2 over a text that has none.
V4_GATE = re2.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]")
V6_GATE = re2.compile(r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2}")
# What stands before four numbers that are no address, in several languages.
VERSION = re.compile(
    r"(?:\b(?:v|ver|vers|version|versión|versão|versione|versie|wersja|wersji|sürüm|release|build|rev|revision|firmware|patch|driver|"
    r"update|kernel|section|sec|chapter|chap|clause|oid|appendix|article|artículo|artigo|articolo|artikel|art|par|paragraf|paragraph|kapitel|kap|"
    r"cap|capítulo|chapitre|capitolo|rozdz|rozdział|hoofdstuk|версия|версии|версию|раздел|глава|гл|статья|статьи|ст|пункт|п)\b|版本|第|バージョン|버전|संस्करण|"
    r"الإصدار|§)[\s.:：=#号號]{0,3}$"
    r"|[A-Za-z]/$",  # a product's, as in a User-Agent
    re.IGNORECASE,
)
BEFORE = 16  # characters that are searched for it
HEADING = re.compile(r"[ \t]+[^\W\d_]")  # what follows the number of a section


@cache
def _public() -> TLDExtract:
    """The list of public suffixes that the package carries: nothing is fetched."""
    return TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=False)


@cache
def _has_suffix(last: str) -> bool:
    return bool(_public().extract_str(f"example.{last}").suffix)


def domain_of(text: str) -> str:
    """The domain that a run of a domain's characters begins with: at least two labels, the last a public suffix; "" where there is none.

    A sentence that follows without a space (`example.com.The`, `example.comThe`) is left out.
    """
    labels = text.rstrip(".-").split(".")
    good = next((number for number, label in enumerate(labels) if LABEL.fullmatch(label) is None), len(labels))
    for end in range(good, 1, -1):
        for last in dict.fromkeys((labels[end - 1], LOWER.match(labels[end - 1])[0])):  # type: ignore[index]
            if last and not last.isdigit() and _has_suffix(last.lower()):
                return ".".join([*labels[: end - 1], last])
    return ""


def emails(text: str) -> Iterator[Found]:
    """E-mail addresses: not the user of a URL, a path of git, nor a name such as @anna@example.org."""
    at, last = text.find("@"), 0
    while at >= 0:
        head = text[max(last, at - LONGEST_LOCAL - 1) : at]
        local = head[len(head.rstrip(LOCAL)) :].lstrip(".%+-")
        tail = text[at + 1 : at + 1 + LONGEST_DOMAIN]
        domain = domain_of(tail[: len(tail) - len(tail.lstrip(DOMAIN))]) if local else ""
        start, end = at - len(local), at + 1 + len(domain)
        if domain and len(local) <= LONGEST_LOCAL and local[-1] != "." and ".." not in local:
            if text[start - 1 : start] != "@" and not _user(text, start) and not REMOTE_PATH.match(text, end):
                yield Found(start, end, "email_address")
            last = end
        at = text.find("@", at + 1)


def _user(text: str, start: int) -> bool:
    """Whether a local part is the user or the password of a URL: between it and `://` there is no path."""
    before = text[max(0, start - 200) : start]
    scheme = before.rfind("://")
    return scheme >= 0 and not re.search(r"[/?#\s]", before[scheme + 3 :])


def ips(text: str, raw: bytes) -> Iterator[Found]:
    """Addresses that anybody can reach (`is_global` of Python's ipaddress, by IANA's registries): no private, loopback and
    documentation ranges; no versions and numbers of sections, as far as what stands before tells. raw: the text in UTF-8.
    """
    for match in V4.finditer(text) if V4_GATE.search(raw) else ():
        start, end = match.span()
        if (
            _reachable(match[0])
            and not VERSION.search(text[max(0, start - BEFORE) : start])
            and not _heads(text, match)
        ):
            yield Found(start, end, "ip_address", "v4")
    for match in V6.finditer(text) if V6_GATE.search(raw) else ():
        address = match[0].rstrip(":") if not match[0].endswith("::") else match[0]
        if _reachable(address):
            yield Found(match.start(), match.start() + len(address), "ip_address", "v6")


def _reachable(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found.is_global and not found.is_multicast


def _heads(text: str, match: re.Match[str]) -> bool:
    """Whether small numbers at the start of a line, before a word, are those of a section."""
    line = match.start() == 0 or text[match.start() - 1] in "\n\r"
    return line and max(map(int, match[0].split("."))) < 30 and HEADING.match(text, match.end()) is not None
