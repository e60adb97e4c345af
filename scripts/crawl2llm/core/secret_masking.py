"""Secrets of a run: where they come from, and the function that masks them in every message.

A config names a secret and never holds it: `{env:NAME}` is an environment variable, `{file:PATH}` a file that only its owner can read (mode
0600). So the config that a run keeps, its fingerprints, the arguments of its processes and the names of its files have the reference. It is
filled in where a request is made.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from crawl2llm.core.errors import InputError

MASK = "***"
# characters of a value that is masked: a shorter one (`EMPTY`, `none`) would be found in ordinary words
LEAST_LENGTH = 8
# consecutive characters of a secret that are masked: a server may quote a part of it, and a message may be cut
RUN_LENGTH = 12
LARGEST = 1 << 16  # bytes of a file with a secret
REFERENCE = re.compile(r"\{(env|file):([^{}]+)\}")
FILE = "file:"
REFERENCE_HINT = (
    'name a secret as "{env:NAME}" (with quotes), an environment variable, or as "{file:PATH}", a file with mode 0600'
)
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")  # how environment variables are usually called
# Parts of the names of parameters and options that hold a secret: presigned URLs have such.
SECRET_PARTS = (
    "signature", "token", "secret", "password", "passwd", "passphrase", "credential", "key", "auth", "sig", "session", "sessid",
    "cookie", "pwd", "jwt", "bearer",
)  # fmt: skip
SECRET_WORDS = {
    "code",
    "sid",
    "pass",
    "pw",
    "pin",
    "otp",
    "sas",
    "ticket",
    "login",
}  # the same, if they are whole words
ENVIRONMENT = re.compile(r"(?:KEY|KEY_ID|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|COOKIE)$", re.IGNORECASE)
USER = re.compile(r"(://)[^/\s@'\"<>]+@")
PARAMETER = re.compile(r"([?&;#])([A-Za-z0-9_.~%\[\]-]{1,80})=([^&;#?\s'\"<>]+)")

_known_secrets: set[str] = set()  # every secret that this process has read


def is_secret_name(name: str) -> bool:
    """Whether a parameter, an option or a header of this name holds a secret."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return any(part in name.lower() for part in SECRET_PARTS) or not SECRET_WORDS.isdisjoint(words)


def has_reference(text: str) -> bool:
    """Whether a text names a secret."""
    return bool(REFERENCE.search(text))


def environment_secret(name: str, where: str) -> str:
    """The value of an environment variable. where: the key of the config that names it. Raises InputError without it."""
    value = os.environ.get(name, "").strip()
    if not value:
        # perhaps it is the secret itself
        shown_name = repr(name) if VARIABLE_NAME.fullmatch(name) else "a name that is not shown"
        raise InputError(f"{where} is {shown_name}, and no such environment variable is set")
    return _remember_secret(value)


def file_secret(name: str, where: str) -> str:
    """What a file holds, without the white space around it. Raises InputError if others can read it, or if it cannot be read."""
    path = Path(name).expanduser()
    try:
        with path.open("rb") as handle:
            facts = os.fstat(handle.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise InputError(f"{where} names {path}, which is no file")
            if facts.st_uid != os.geteuid():
                raise InputError(f"{where} names {path}, which belongs to another user: make a copy that is yours")
            if stat.S_IMODE(facts.st_mode) & 0o077:
                mode = f"{stat.S_IMODE(facts.st_mode):04o}"
                raise InputError(f"{where} names {path}, which others can read (mode {mode}): chmod 600 {path}")
            value = handle.read(LARGEST).decode().strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{where} names {path}, which cannot be read: {why}") from None
    if not value:
        raise InputError(f"{where} names {path}, which is empty")
    return _remember_secret(value)


def read_secret(word: str, where: str) -> str:
    """The secret that a key of the config names: an environment variable, or `file:PATH`. Raises InputError."""
    if word.startswith(FILE):
        return file_secret(word.removeprefix(FILE), where)
    return environment_secret(word, where)


def fill_url(url: str, where: str) -> str:
    """A URL with the secrets that it names, percent-encoded. Raises InputError."""
    return REFERENCE.sub(lambda match: quote(_referenced_secret(match, where), safe=""), url)


def _referenced_secret(match: re.Match[str], where: str) -> str:
    return {"env": environment_secret, "file": file_secret}[match[1]](match[2], where)


def fill_references(tree: Any, where: str) -> Any:
    """A text, or a tree of them, with the secrets in the places of `{env:NAME}` and `{file:PATH}`. Raises InputError."""
    if isinstance(tree, dict):
        return {key: fill_references(value, where) for key, value in tree.items()}
    if isinstance(tree, list):
        return [fill_references(value, where) for value in tree]
    if not isinstance(tree, str):
        return tree
    return REFERENCE.sub(lambda match: _referenced_secret(match, where), tree)


def check_name(word: str | None, where: str) -> None:
    """Raises InputError, without the word, if a key of the config that names a secret seems to hold it."""
    if not word or word.startswith(FILE) or word in os.environ or VARIABLE_NAME.fullmatch(word):
        return
    if len(word) >= 16 and any(sign.isdigit() for sign in word):
        raise InputError(
            f"{where} names no environment variable that is set here, and looks like a key itself, so it is not shown: put the key into "
            f"an environment variable, or into a file with mode 0600, and write {where}: NAME or {where}: file:PATH"
        )


def _remember_secret(value: str) -> str:
    _known_secrets.add(value)
    return value


def known_secrets() -> Iterator[str]:
    """Every secret that this process knows: those that it has read, and those that the environment holds by the names of its variables."""
    yield from _known_secrets
    for name, value in os.environ.items():
        if ENVIRONMENT.search(name) and not value.startswith(("/", "~")):  # a path is where a secret is
            yield value


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """A text with every run of RUN characters of a secret masked, or all of a shorter one, also as URLs, JSON and base64 write it."""
    low = text.lower()
    low = low if len(low) == len(text) else text  # a few letters are longer in lower case
    spans: list[tuple[int, int]] = []
    for secret in secrets:
        if len(secret) < LEAST_LENGTH:
            continue
        encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
        for form in {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], encoded}:
            size = min(RUN_LENGTH, len(form))
            for run in {form[at : at + size].lower() for at in range(len(form) - size + 1)}:
                at = low.find(run)
                while at >= 0:
                    spans.append((at, at + size))
                    at = low.find(run, at + 1)
    if not spans:
        return text
    out, end = [], 0
    for first, last in sorted(spans):
        if first >= end:
            out += [text[end:first], MASK]
        end = max(end, last)
    return "".join([*out, text[end:]])


def mask(text: str) -> str:
    """A message that may be shown and kept: without the secrets that this process knows, and without those that URLs in it have."""
    text = mask_values(text, known_secrets())
    if "://" in text:
        text = USER.sub(rf"\1{MASK}@", text)
    if "=" in text:
        text = PARAMETER.sub(_mask_parameter, text)
    return text


def _mask_parameter(match: re.Match[str]) -> str:
    secret = is_secret_name(match[2]) and not REFERENCE.fullmatch(match[3])
    return f"{match[1]}{match[2]}={MASK}" if secret else match[0]
