"""E-mail addresses and public IP addresses in a text. Every function takes time in proportion to the text's length."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import cache, lru_cache

import re2
from tldextract import TLDExtract

from crawl2llm.filters.pii.kinds import Finding

DIGITS = "0123456789"
MARKS = "".join(map(chr, range(0x300, 0x370)))  # above and below letters: NFD writes ö as two characters


def _block_letters(*blocks: tuple[int, int]) -> str:
    """The letters of some blocks of Unicode (first, last code point), and their marks."""
    letters = (chr(code) for first, last in blocks for code in range(first, last + 1) if chr(code).isalpha())
    return "".join(letters) + MARKS


# A mailbox is in one alphabet (RFC 6531 allows any); scripts without spaces between words are left out, since there the words before an
# address touch it.
ALPHABETS = (
    _block_letters((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)),  # Latin
    _block_letters((0x370, 0x3FF), (0x1F00, 0x1FFF)),  # Greek
    _block_letters((0x400, 0x52F)),  # Cyrillic
)
# Of RFC 5321's characters those that mailboxes have: with all, the `?to=` of a link would belong to the address.
SIGNS = DIGITS + "._%+-"
APOSTROPHES = "'\u2019"
# Most letters before one, as in O'Brien: of the Italian dell'ufficio@… the article is not the address's.
BEFORE_APOSTROPHE = 2
LOCALS = tuple(SIGNS + letters + APOSTROPHES for letters in ALPHABETS)
LONGEST_LOCAL, LONGEST_DOMAIN = 64, 255  # characters, RFC 5321, section 4.5.3.1
# RFC 1035, section 2.3.4; beyond ASCII an IDN (RFC 5890).
LABEL = re.compile(rf"[^\W_](?:[^\W_{MARKS}]|[-{MARKS}]){{0,62}}(?<!-)")
DOMAIN = re.compile(rf"(?:[^\W_]|[-.{MARKS}]){{1,{LONGEST_DOMAIN}}}")
LOWER = re.compile(r"[a-z]+|[а-яё]+|[α-ωά-ώ]+|")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*$")
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
    r"|[A-Za-z]/$"  # a product's, as in a User-Agent
    r"|\w(?:[=~<>!]=)$"  # a package's
    r"|(?<![A-Za-z])(?!(?:ip|ipv4|dns|host|server|addr|from|to)-$)[A-Za-z]+\d?-$"  # a file's: foo-1.2.3.4
    r"|(?<!\w)\.?(?:nginx|apache|httpd|tomcat|openssl|openssh|php|python|perl|ruby|java|jdk|jre|node|nodejs|npm|mysql|mariadb|postgresql|"
    r"postgres|oracle|sqlite|redis|mongodb|elasticsearch|chrome|chromium|firefox|thunderbird|safari|opera|edge|explorer|msie|webkit|iis|"
    r"windows|linux|ubuntu|debian|centos|fedora|android|ios|macos|office|excel|outlook|exchange|sharepoint|skype|zoom|teams|acrobat|reader|flash|"
    r"silverlight|itunes|vlc|winrar|zip|docker|kubernetes|virtualbox|vmware|gcc|clang|cmake|git|bind|samba|curl|wordpress|joomla|drupal|"
    r"typo3|magento|net|framework|directx|bios|dll|plugin|sdk|api|beta|alpha|rc|hotfix) $",  # a product's in a sentence
    re.IGNORECASE,
)
BEFORE = 16  # characters that are searched for it
# A file's name goes on so behind its version.
FILE = re.compile(
    r"(?:-\d{1,4})?\.(?:tar|tgz|t[bx]z2?|gz|bz2|xz|zst|zip|7z|rar|exe|msi|msu|cab|deb|rpm|apk|ipa|dmg|pkg|iso|img|bin|jar|war|whl|egg|gem|crate|"
    r"nupkg|so|dll|dylib|patch|diff|asc|sig|el\d|fc\d|x86|x64|i[3-6]86|amd64|arm64|aarch64|noarch)\b",
    re.IGNORECASE,
)
HEADING = re.compile(r"[ \t]+[^\W\d_]")  # what follows the number of a section


@cache
def _public_suffixes() -> TLDExtract:
    """The list of public suffixes that the package carries: nothing is fetched."""
    return TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=False)


@lru_cache(1 << 16)
def _has_suffix(last: str) -> bool:
    return bool(_public_suffixes().extract_str(f"example.{last}").suffix)


def leading_domain(text: str) -> str:
    """The domain that a run of a domain's characters begins with: at least two labels, the last a public suffix; "" if there is none.

    A sentence that follows without a space (`example.com.The`, `example.comThe`) is left out.
    """
    labels = text.rstrip(".-").split(".")
    good = next((number for number, label in enumerate(labels) if LABEL.fullmatch(label) is None), len(labels))
    for end in range(good, 1, -1):
        for last in dict.fromkeys((labels[end - 1], LOWER.match(labels[end - 1])[0])):  # type: ignore[index]
            if last and not last.isdigit() and _has_suffix(last.lower()):
                return ".".join([*labels[: end - 1], last])
    return ""


def find_emails(text: str) -> Iterator[Finding]:
    """E-mail addresses: not the user of a URL, a path of git, nor a name such as @anna@example.org."""
    at, last = text.find("@"), 0
    while at >= 0:
        local = _ending_mailbox(text[max(last, at - LONGEST_LOCAL - 1) : at])
        tail = DOMAIN.match(text, at + 1) if local else None
        domain = leading_domain(tail[0]) if tail else ""
        start, end = at - len(local), at + 1 + len(domain)
        if domain and len(local) <= LONGEST_LOCAL and local[-1] != "." and ".." not in local:
            if text[start - 1 : start] != "@" and not _is_url_user(text, start) and not REMOTE_PATH.match(text, end):
                yield Finding(start, end, "email_address")
            last = end
        at = text.find("@", at + 1)


def _ending_mailbox(head: str) -> str:
    """The mailbox that a text ends with; "" if it ends with none."""
    local = max((head[len(head.rstrip(characters)) :] for characters in LOCALS), key=len)
    for mark in APOSTROPHES:
        before, apostrophe, after = local.rpartition(mark)
        name = before.rpartition(".")[2]
        if apostrophe and not (after[:1].isalpha() and name.isalpha() and len(name) <= BEFORE_APOSTROPHE):
            local = after
    return local.lstrip(".%+-" + MARKS)


def _is_url_user(text: str, start: int) -> bool:
    """Whether a local part is the user or the password of a URL: between it and `://` there is no path."""
    before = text[max(0, start - 200) : start]
    scheme = before.rfind("://")
    return scheme >= 0 and not NO_USERINFO.search(before, scheme + 3)


# User and password before a URL's host (RFC 3986, section 3.2.1), of a bounded length. Not all beyond ASCII may be in them: in scripts
# without spaces an address may follow a host and its port.
USER = "!$%&*+.=_{}~" + DIGITS + "".join(ALPHABETS) + r"\^\-"
USERINFO = re.compile(rf"([{USER}]{{0,128}}):([{USER}][{USER}:@]{{0,255}})@(?=[\w\[])")
NO_USERINFO = re.compile(rf"[/?#\s]|[^\x00-\x7f{''.join(ALPHABETS)}]")
# What documentation writes for a password.
NO_PASSWORD = re.compile(
    r"(?:my|your|the)?[-_]?(?:password|passwd|passwort|passphrase|pass|pwd|pw|psw|secret|token|api[-_]?key|key|contraseña|clave|motdepasse|"
    r"mdp|senha|hasło|haslo|пароль|密码|パスワード|example|changeme|port)\d?|(.)\1*|[${%*].*|.*[{}*]",
    re.IGNORECASE,
)


def find_url_credentials(text: str) -> Iterator[Finding]:
    """`user:password` of URLs, without the `@`: no placeholders of documentation. detail: the URL's scheme."""
    at = text.find("://")
    while at >= 0:
        scheme = SCHEME.search(text[max(0, at - 20) : at])
        match = USERINFO.match(text, at + 3) if scheme else None
        if scheme and match and not NO_PASSWORD.fullmatch(match[2]):
            yield Finding(match.start(), match.end() - 1, "url_credentials", scheme[0].lower())
        at = text.find("://", at + 3)


def find_ips(text: str, raw: bytes) -> Iterator[Finding]:
    """Addresses that anybody can reach (`is_global` of Python's ipaddress, by IANA's registries): no private, loopback and
    documentation ranges; no versions and numbers of sections, as far as what stands before tells. raw: the text in UTF-8.
    """
    for match in V4.finditer(text) if V4_GATE.search(raw) else ():
        start, end = match.span()
        if (
            _is_reachable(match[0])
            and not VERSION.search(text[max(0, start - BEFORE) : start])
            and not FILE.match(text, end)
            and not _is_section_number(text, match)
        ):
            yield Finding(start, end, "ip_address", "v4")
    for match in V6.finditer(text) if V6_GATE.search(raw) else ():
        address = match[0].rstrip(":") if not match[0].endswith("::") else match[0]
        if _is_reachable(address):
            yield Finding(match.start(), match.start() + len(address), "ip_address", "v6")


def _is_reachable(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return ip.is_global and not ip.is_multicast


def _is_section_number(text: str, match: re.Match[str]) -> bool:
    """Whether small numbers at the start of a line, before a word, are those of a section."""
    line = match.start() == 0 or text[match.start() - 1] in "\n\r"
    return line and max(map(int, match[0].split("."))) < 30 and HEADING.match(text, match.end()) is not None
