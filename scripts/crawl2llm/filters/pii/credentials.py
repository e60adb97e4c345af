"""API keys, tokens and private keys in a text, by the forms that their makers give them.

What each form means is from the rules of gitleaks (config/gitleaks.toml) and of detect-secrets (detect_secrets/plugins/); the
expressions are our own. All have fixed or bounded lengths, so that a search takes time in proportion to the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import re2

from crawl2llm.filters.pii.kinds import Finding


@dataclass(frozen=True)
class Form:
    """A form of keys. mark: what every one of them holds. random: the group of the part that is random."""

    name: str
    mark: str
    pattern: re.Pattern[str]


def _bounded_form(name: str, mark: str, pattern: str) -> Form:
    return Form(name, mark, re.compile(rf"(?<![A-Za-z0-9_-]){pattern}(?![A-Za-z0-9_])", re.ASCII))


FORMS = (
    _bounded_form("aws_access_key", "A", r"(?:AKIA|ASIA|ABIA|ACCA)([A-Z2-7]{16})"),
    _bounded_form("github_token", "gh", r"gh[pousr]_([A-Za-z0-9]{36,251})"),
    _bounded_form("github_token", "github_pat_", r"github_pat_([A-Za-z0-9_]{82})"),
    _bounded_form("gitlab_token", "glpat-", r"glpat-([A-Za-z0-9_-]{20,50})"),
    _bounded_form("slack_token", "xox", r"xox[abeoprs]-([A-Za-z0-9-]{20,150})"),
    _bounded_form("slack_token", "xapp-", r"xapp-\d-([A-Za-z0-9-]{20,150})"),
    _bounded_form(
        "slack_webhook", "hooks.slack.com", r"https?://hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/]{30,80})"
    ),
    _bounded_form("stripe_key", "_", r"(?:sk|rk)_(?:live|test|prod)_([A-Za-z0-9]{10,99})"),
    _bounded_form("google_api_key", "AIza", r"AIza([A-Za-z0-9_-]{35})"),
    _bounded_form("google_oauth", "GOCSPX-", r"GOCSPX-([A-Za-z0-9_-]{28})"),
    _bounded_form("google_oauth", "ya29.", r"ya29\.([A-Za-z0-9_-]{40,500})"),
    _bounded_form(
        "openai_key", "T3BlbkFJ", r"sk-(?:proj-|svcacct-|admin-)?([A-Za-z0-9_-]{20,74})T3BlbkFJ[A-Za-z0-9_-]{20,74}"
    ),
    _bounded_form("anthropic_key", "sk-ant-", r"sk-ant-(?:api|admin)\d\d-([A-Za-z0-9_-]{80,110})"),
    _bounded_form("huggingface_token", "hf_", r"hf_([A-Za-z]{34})"),
    _bounded_form("npm_token", "npm_", r"npm_([A-Za-z0-9]{36})"),
    _bounded_form("pypi_token", "pypi-AgEIcHlwaS5vcmc", r"pypi-AgEIcHlwaS5vcmc([A-Za-z0-9_-]{50,1000})"),
    _bounded_form("sendgrid_key", "SG.", r"SG\.([A-Za-z0-9_-]{22})\.[A-Za-z0-9_-]{43}"),
    _bounded_form("telegram_token", ":A", r"\d{8,10}:A([A-Za-z0-9_-]{34})"),
    _bounded_form("digitalocean_token", "_v1_", r"do[opr]_v1_([a-f0-9]{64})"),
    _bounded_form("shopify_token", "shp", r"shp(?:at|ca|pa|ss)_([a-fA-F0-9]{32})"),
    _bounded_form("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ([A-Za-z0-9_-]{8,8000})\.[A-Za-z0-9_-]{10,2000}"),
)
# Any of them begins so: one pass in linear time over texts, of which nearly all have none.
GATE = re2.compile(
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_|glpat-|xox[abeoprs]-|xapp-[0-9]-|hooks\.slack\.com|"
    r"[sr]k_(?:live|test|prod)_|AIza|GOCSPX-|ya29\.|T3BlbkFJ|sk-ant-|hf_[A-Za-z]{34}|npm_[A-Za-z0-9]{36}|pypi-AgEI|SG\.[A-Za-z0-9_-]{22}\.|"
    r"[0-9]{8}:A[A-Za-z0-9_-]{34}|do[opr]_v1_|shp(?:at|ca|pa|ss)_|eyJ[A-Za-z0-9_-]{8}|PRIVATE KEY"
)
BEGIN = re.compile(
    r"-----BEGIN ((?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?)-----"
)  # RFC 7468, section 4; PGP's and SSH's too
LONGEST = 20_000  # characters of a private key; RSA of 16,384 bits has 12,700
LEAST = 0.3  # of a random part: different characters by its length, of which twenty count at most
EXAMPLES = ("example", "xxxx", "your", "1234567890", "abcdefgh", "0000000")  # in keys of documentation


def _is_random(part: str) -> bool:
    """Whether a key's random part may be one, and is not a placeholder of some documentation."""
    lower = part.lower()
    return len(set(part)) >= min(8, LEAST * len(part)) and not any(word in lower for word in EXAMPLES)


def find_secrets(text: str, raw: bytes) -> Iterator[Finding]:
    """Keys in a text. raw: the text in UTF-8."""
    if GATE.search(raw) is None:
        return
    for form in FORMS:
        if form.mark in text:
            for match in form.pattern.finditer(text):
                if _is_random(match[1]):
                    yield Finding(*match.span(), "secret", form.name)
    for match in BEGIN.finditer(text) if "PRIVATE KEY" in text else ():
        mark = f"-----END {match[1]}-----"
        end = text.find(mark, match.end(), match.end() + LONGEST)
        if end >= 0 and end - match.end() >= 64:  # a key of Ed25519 has 64 characters in base64
            yield Finding(match.start(), end + len(mark), "secret", "private_key")
