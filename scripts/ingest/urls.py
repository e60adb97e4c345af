"""Which names of a config are URLs, what they are called, and which are refused. A plan asks this, so it needs no network."""

from __future__ import annotations

import argparse
import hashlib
import posixpath
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from scripts.workflow.config import ConfigError

SCHEMES = ("https", "http", "s3", "hf")
COMMON_CRAWL = "commoncrawl"  # the source kind that names a crawl
# Parts of names of parameters that hold a secret: presigned URLs have such.
SECRETS = ("signature", "token", "secret", "password", "passwd", "credential", "key", "auth", "sig")


def is_url(name: str) -> bool:
    """Whether a name of a file is a URL."""
    return name.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def paths(source: dict[str, Any], data: str) -> list[str]:
    """The entries of a source's `paths` with `{data}` in place."""
    return [entry.replace("{data}", data.rstrip("/") or "/") for entry in source.get("paths", [])]


def refused(url: str) -> str:
    """Why a URL is not taken, in words that do not repeat it; "" where it is.

    It would be in manifests and logs, with what is secret in it.
    """
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        return f"a URL of {parts.hostname} with a user and password in it: credentials come from the environment"
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if _is_secret(name)]
    if names:
        return f"a URL of {parts.hostname} with {names[0]!r} in its query: credentials come from the environment"
    return ""


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in SECRETS)


def check_options(options: dict[str, Any], here: str) -> None:
    """Raises ConfigError where an option of fsspec, at any depth, is a credential."""
    for name, value in options.items():
        if _is_secret(str(name)) or str(name).lower() in ("username", "user"):
            raise ConfigError(
                f"{here}.{name} looks like a credential: it would be in the config that a run keeps; set it in the environment"
            )
        if isinstance(value, dict):
            check_options(value, f"{here}.{name}")


def stores(options: dict[str, Any]) -> list[str]:
    """The servers that options of fsspec name (of s3 `endpoint_url`, of hf `endpoint`), at any depth: another has other files."""
    found: list[str] = []
    for name, value in sorted(options.items()):
        if isinstance(value, dict):
            found += stores(value)
        elif name in ("endpoint_url", "endpoint") and value:
            found.append(str(value))
    return found


def access_option(parser: argparse.ArgumentParser) -> None:
    """Add `--access`, which programs that read remote files have (see remote.access_of)."""
    parser.add_argument(
        "--access",
        default="{}",
        help='JSON: how the files of each source are reached, as {"web": {"options": {"anon": true}, "patience": 600}}',
    )


def name_of(url: str) -> str:
    """The path of a URL without its query: `s3://bucket/a/b.gz` → `bucket/a/b.gz`, `https://host/a/b.gz` → `a/b.gz`."""
    parts = urlsplit(url)
    return (f"{parts.netloc}{parts.path}" if parts.scheme in ("s3", "hf") else parts.path).lstrip("/")


def named(urls: list[str]) -> dict[str, str]:
    """A name for each URL, as short as is unique among them: the last part of its path, with as many before it as it takes.

    URLs with the same path get the host in front too, and where that is the same, a digest of the URL between host and path, so
    that a name ends as its file does. Raises ValueError where two names are the same even so.
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


def joined(base: str, path: str) -> str:
    """A path below a base, which is a URL or a folder."""
    return posixpath.join(base, path.lstrip("/"))
