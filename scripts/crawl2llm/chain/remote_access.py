"""How the files of a source are reached: options, secrets, and to which hosts.

A source's headers, cookies and credentials go to the hosts alone that its config names. A server decides what it redirects to, and what a
list of it names: elsewhere a request has none of them.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import SplitResult, urlsplit

from crawl2llm.chain.urls import HARMLESS_HEADERS
from crawl2llm.core import secret_masking

PORTS = {"http": 80, "https": 443}
# Of options, for a host that gets no secret.
KEPT_OPTIONS = ("proxy", "ssl", "verify_ssl", "timeout", "client_kwargs", "trust_env")


def origin(url: str) -> str:
    """`https://host:443`, with the port: who gets what is sent to a URL. "" for a URL without a host."""
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    return f"{parts.scheme}://{parts.hostname.rstrip('.')}:{parts.port or PORTS.get(parts.scheme, 0)}"


def origins(urls: Iterable[str]) -> list[str]:
    """The origins of URLs, each once, sorted."""
    return sorted({url_origin for url in urls if (url_origin := origin(url))})


@dataclass(frozen=True)
class Access:
    """How files of a source are reached.

    options: of fsspec's file system, with references in the places of secrets. patience: seconds to wait for a server that is busy or gone.
    origins: those that the config names, which get the options' headers; None: that of each URL that is asked for. allowed_hosts: further
    hosts that files may come from, by redirects or lists; None: any. urls: those of the config that hold references.
    """

    options: dict[str, Any]
    patience: float = 600.0
    origins: frozenset[str] | None = None
    allowed_hosts: tuple[str, ...] | None = None
    urls: frozenset[str] = frozenset()

    def fill_url(self, url: str, where: str) -> str:
        """A URL as it is asked for. Only one that the config has is filled in: a list of somebody else's could name any secret."""
        return secret_masking.fill_url(url, where) if url in self.urls else url

    def fill_options(self, where: str) -> dict[str, Any]:
        """The options with their secrets. Raises InputError for one that is not there."""
        return dict(secret_masking.fill_references(self.options, where))

    def trusts(self, url: str, first: str) -> bool:
        """Whether a URL gets the options' headers. first: the URL that a server redirects from, or the same."""
        trusted = self.origins if self.origins is not None else {origin(first)}
        upgraded = origin(first) in trusted and _is_upgrade(urlsplit(first), urlsplit(url))
        return upgraded or origin(url) in trusted

    def why_refused(self, url: str, first: str) -> str:
        """Why a place is not asked, in words; "" where it is. first: the URL that a server redirects from, or the same.

        Raises ValueError for what is no URL.
        """
        parts, before = urlsplit(url), urlsplit(first)
        parts.port  # noqa: B018 - it raises ValueError for one that is none
        if parts.scheme not in PORTS or not parts.hostname:
            return "the server redirects to an address that is not http"
        if parts.hostname == before.hostname and url != first:
            return ""
        if any(fnmatchcase(parts.hostname, pattern.lower()) for pattern in self.allowed_hosts or ()):
            return ""
        if self.allowed_hosts is not None and origin(url) not in (self.origins or (origin(first),)):
            subject = "the server redirects to" if url != first else "a list names"
            return f"{subject} {parts.hostname}, which `allowed_hosts` of its source does not name"
        if url != first and is_inner(parts.hostname) and not is_inner(before.hostname or ""):
            return f"the server redirects to {parts.hostname}, an address inside this network: `allowed_hosts` of its source may name it"
        return ""


def is_inner(host: str) -> bool:
    """Whether a host is an address of this machine or of a network that is not public."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def _is_upgrade(before: SplitResult, now: SplitResult) -> bool:
    """Whether a server redirects from http to https of the same host, both at their usual ports."""
    usual = before.port in (None, 80) and now.port in (None, 443)
    return usual and before.hostname == now.hostname and (before.scheme, now.scheme) == ("http", "https")


def drop_secrets(options: dict[str, Any]) -> dict[str, Any]:
    """The options for a host that the config does not name: how the network is reached, and headers that hold no secret."""

    def without_secrets(values: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in values.items():
            if name == "headers":
                out[name] = {key: word for key, word in value.items() if key.lower() in HARMLESS_HEADERS}
            elif not secret_masking.is_secret_name(name) and name not in ("params", "base_url"):
                out[name] = without_secrets(value) if isinstance(value, dict) else value
        return out

    return without_secrets({name: value for name, value in options.items() if name in (*KEPT_OPTIONS, "headers")})


def add_access_option(parser: argparse.ArgumentParser) -> None:
    """Add `--access`, which programs that read remote files have."""
    parser.add_argument(
        "--access",
        default="{}",
        help='JSON: how the files of each source are reached, as {"web": {"options": {"anon": true}, "patience": 600}}; secrets are '
        "references, {env:NAME} or {file:PATH}",
    )


def access_of(access_json: str, source: str) -> Access:
    """How the files of a source are reached, from `--access`."""
    settings = json.loads(access_json or "{}").get(source, {})
    origin_list, hosts = settings.get("origins"), settings.get("allowed_hosts")
    return Access(
        settings.get("options", {}),
        settings.get("patience", Access.patience),
        None if origin_list is None else frozenset(origin_list),
        None if hosts is None else tuple(hosts),
        frozenset(settings.get("urls", ())),
    )
