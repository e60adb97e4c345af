"""Which names of a config are URLs, what they are called, and which are refused. A plan asks this, so it needs no network."""

from __future__ import annotations

import hashlib
import posixpath
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from crawl2llm.chain.data_folder import to_folder
from crawl2llm.core import secret_masking
from crawl2llm.core.errors import ConfigError

SCHEMES = ("https", "http", "s3", "hf")
BASE = "https://data.commoncrawl.org/"  # of a crawl without another one
COMMON_CRAWL = "commoncrawl"  # the source kind that names a crawl
# Headers whose values a config may hold: any other one may be a secret, such as Cookie and X-….
HARMLESS_HEADERS = {
    *(
        "accept",
        "accept-charset",
        "accept-language",
        "cache-control",
        "from",
        "if-modified-since",
        "if-none-match",
        "pragma",
        "range",
    ),
    *("referer", "user-agent"),
}


def is_url(name: str) -> bool:
    """Whether a name of a file is a URL."""
    return name.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def is_pattern(url: str) -> bool:
    """Whether a URL is a pattern. At http and https its path alone can be one, in which a `?` is none: a query begins there."""
    if url.startswith("http"):
        return any(sign in urlsplit(url).path for sign in "*[")
    return any(sign in url.partition("://")[2] for sign in "*?[")


def source_paths(source: dict[str, Any], data: str) -> list[str]:
    """The entries of a source's `paths` with `{data}` in place."""
    return [to_folder(entry, data) for entry in source.get("paths", [])]


def why_refused(url: str) -> str:
    """Why a URL is not taken, in words that do not repeat it; "" where it is.

    It would be in manifests and logs, with what is secret in it.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it raises for one that is none
    except ValueError:
        return f"a URL that cannot be read{'' if '@' in url or '?' in url else f': {url!r}'}"
    if parts.username is not None or parts.password is not None:
        return f"a URL of {parts.hostname} with a user and password in it: {secret_masking.REFERENCE_HINT}, in the source's `options`"
    path = [part.partition("=")[::2] for part in parts.path.split(";")[1:]]  # `/page;jsessionid=…`
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *path, *parse_qsl(parts.fragment)]
    names = [
        name
        for name, value in pairs
        if secret_masking.is_secret_name(name) and not secret_masking.REFERENCE.fullmatch(value)
    ]
    if names:
        return f"a URL of {parts.hostname} with {names[0]!r} in its query: {secret_masking.REFERENCE_HINT}, as in ?{names[0]}={{env:NAME}}"
    return ""


def check_options(options: dict[str, Any], key_path: str, within: str = "") -> None:
    """Raises ConfigError, without the value, where an option of fsspec, at any depth, holds a secret, and none is named in its place.

    within: the option that these are in, `headers` or `cookies`.
    """
    for name, value in options.items():
        key, place = str(name).lower(), f"{key_path}.{name}"
        if isinstance(value, dict):
            check_options(value, place, key if key in ("headers", "cookies") else within)
            continue
        needs_reference = {"headers": key not in HARMLESS_HEADERS, "cookies": True}.get(
            within, secret_masking.is_secret_name(key) or key in ("username", "user")
        )
        if needs_reference and not (isinstance(value, str) and secret_masking.has_reference(value)):
            raise ConfigError(
                f"{place} looks like a credential, and a run keeps its config: {secret_masking.REFERENCE_HINT}, "
                "or set what the store's library reads itself"
            )
        if isinstance(value, str) and "://" in value and (why := why_refused(value)):
            raise ConfigError(f"{place} is {why}")


def store_servers(options: dict[str, Any]) -> list[str]:
    """The servers that options of fsspec name (of s3 `endpoint_url`, of hf `endpoint`), at any depth: another has other files."""
    servers: list[str] = []
    for name, value in sorted(options.items()):
        if isinstance(value, dict):
            servers += store_servers(value)
        elif name in ("endpoint_url", "endpoint") and value:
            servers.append(str(value))
    return servers


def name_of(url: str) -> str:
    """The path of a URL without its query: `s3://bucket/a/b.gz` → `bucket/a/b.gz`, `https://host/a/b.gz` → `a/b.gz`."""
    parts = urlsplit(url)
    return (f"{parts.netloc}{parts.path}" if parts.scheme in ("s3", "hf") else parts.path).lstrip("/")


def unique_names(urls: list[str]) -> dict[str, str]:
    """A name for each URL, as short as is unique among them: the last part of its path, with as many before it as it takes.

    URLs with the same path get the host in front too, and where that is the same, a digest of the URL between host and path, so
    that a name ends as its file does. Raises ValueError if two names are the same even so.
    """
    unique = list(dict.fromkeys(urls))
    parts = {url: name_of(url).split("/") for url in unique}
    depth = 1
    while True:
        names = {url: "/".join(parts[url][-depth:]) for url in unique}
        if len(set(names.values())) == len(unique):
            return names
        if depth > max(map(len, parts.values())):
            break
        depth += 1
    # Those that are unique stay as they are: ids of documents hang on names.
    for longer in (_with_host, _with_digest):
        often = Counter(names.values())
        names = {url: longer(url) if often[name] > 1 else name for url, name in names.items()}
    often = Counter(names.values())
    if same := [url for url, name in names.items() if often[name] > 1]:
        raise ValueError(f"{same[0]} and {same[1]} would both be called {names[same[0]]}")
    return names


def _with_host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}"


def _with_digest(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}/{hashlib.sha256(url.encode()).hexdigest()[:12]}{parts.path}"


def join_path(base: str, path: str) -> str:
    """A path below a base, which is a URL or a folder."""
    return posixpath.join(base, path.lstrip("/"))
