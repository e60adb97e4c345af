"""Secrets come from the environment or from a file that only its owner can read, and no message shows them."""

from __future__ import annotations

import base64
import json
import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.core import console, secret_masking
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.workflow.config_checks import check_secrets

VALUE = "planted/S3cret+value=42"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_masking, "_known_secrets", set())
    monkeypatch.setenv("COOKIE_OF_MINE", VALUE)
    assert secret_masking.environment_secret("COOKIE_OF_MINE", "here") == VALUE


@pytest.mark.parametrize(
    "form",
    [VALUE, VALUE.upper(), quote(VALUE, safe=""), json.dumps({"k": VALUE}), base64.b64encode(VALUE.encode()).decode()],
)
def test_every_form_is_masked(form: str) -> None:
    said = secret_masking.mask(f"bad key {form}, go away")
    assert said.startswith("bad key ") and said.endswith(", go away") and "***" in said
    assert "planted" not in said.lower() and base64.b64encode(b"planted").decode()[:8] not in said


@pytest.mark.parametrize("part", [VALUE[:14], VALUE[-13:], VALUE[3:20]])
def test_parts_are_masked(part: str) -> None:
    """A server quotes a part, or a message is cut within it."""
    assert secret_masking.mask(f"key {part}…") == "key ***…"


def test_ordinary_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "EMPTY")
    monkeypatch.setenv("GOOGLE_CREDENTIALS", "/home/me/results.json")
    said = "results/main is EMPTY: /home/me/results.json, 3 tokens, a=1&page=2"
    assert secret_masking.mask(said) == said


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "OPENAI_API_KEY",
        "MY_PASSWORD",
        "AWS_ACCESS_KEY_ID",
    ],
)
def test_what_the_environment_holds_is_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that reads it itself may quote it in an error."""
    monkeypatch.setenv(name, "hunter2hunter2")
    assert secret_masking.mask("denied: hunter2hunter2") == "denied: ***"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("see https://me:word@a.org/x", "see https://***@a.org/x"),
        ("ftp://a.org/?session=abc&page=2#x", "ftp://a.org/?session=***&page=2#x"),
        ("https://a.org/x;jsessionid=abc?pwd=b&code=c", "https://a.org/x;jsessionid=***?pwd=***&code=***"),
        ("https://a.org/?code={env:CODE}&q=v", "https://a.org/?code={env:CODE}&q=v"),
        ("1 + 2 = 3; a=b", "1 + 2 = 3; a=b"),
    ],
)
def test_urls_are_masked(said: str, shown: str) -> None:
    assert secret_masking.mask(said) == shown


def test_a_log_has_no_secret_and_no_escape(tmp_path: Path) -> None:
    kept = logging.getLogger("crawl2llm").handlers[:]
    try:
        console.set_up_logging("step 00000", tmp_path / "log")
        console.log.warning("the server said %s \x1b[2J\u202e", VALUE)
        try:
            raise ValueError(f"with {VALUE}")
        except ValueError as error:
            console.log_unexpected_error(ValueError, error, error.__traceback__)
    finally:
        logging.getLogger("crawl2llm").handlers[:] = kept
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert VALUE not in said and "warning: the server said *** \\u001b[2J\\u202e" in said and "with ***" in said


def test_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{VALUE}-of-a-file\n")
    for mode in (0o644, 0o640, 0o620, 0o604):
        file.chmod(mode)
        with pytest.raises(
            InputError, match=rf"x.key names {file}, which others can read \(mode {mode:04o}\): chmod 600 {file}"
        ):
            secret_masking.read_secret(f"file:{file}", "x.key")
    file.chmod(0o600)
    assert secret_masking.read_secret(f"file:{file}", "x.key") == f"{VALUE}-of-a-file"
    assert secret_masking.fill_references({"a": [f"Bearer {{file:{file}}}", 1]}, "x") == {
        "a": [f"Bearer {VALUE}-of-a-file", 1]
    }
    file.write_text(" \n")
    with pytest.raises(InputError, match="which is empty"):
        secret_masking.read_secret(f"file:{file}", "x.key")
    for name in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=f"x.key names {name}, which"):
            secret_masking.read_secret(f"file:{name}", "x.key")
    if os.geteuid() == 0:
        file.write_text(VALUE)
        os.chown(file, 12345, 12345)
        with pytest.raises(InputError, match="belongs to another user"):
            secret_masking.read_secret(f"file:{file}", "x.key")


def test_what_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_HERE", raising=False)
    with pytest.raises(InputError, match=r"^x\.key is 'NOT_HERE', and no such environment variable is set$"):
        secret_masking.read_secret("NOT_HERE", "x.key")
    with pytest.raises(InputError, match=r"^x\.key is a name that is not shown, and no such"):
        secret_masking.read_secret("hf_abcdefgh", "x.key")


@pytest.mark.parametrize("step", ["evaluate.judge", "align.pairs.judge", "synthesize.rephrase", "synthesize.seed"])
def test_a_key_in_the_place_of_its_name_is_not_shown(step: str) -> None:
    def given(value: Any) -> dict[str, Any]:
        tree: Any = {"key": value}
        for part in reversed(step.split(".")):
            tree = {part: tree}
        return dict(tree)

    for value in ("sk-planted-9f8e7d6c", ["sk-planted-9f8e7d6c"], {"a": "sk-planted-9f8e7d6c"}):
        with pytest.raises(ConfigError, match=rf"{step}\.key is a value that is not shown") as found:
            validate(given(value))
        assert "planted" not in str(found.value)
    with pytest.raises(
        InputError, match=rf"{step}\.key names no environment variable .* {step}\.key: file:PATH"
    ) as refused:
        check_secrets(validate(given("hf_plantedPLANTED1234567")))
    assert "planted" not in str(refused.value)
    for name in ("OPENAI_API_KEY", "openai_key", "file:/home/me/key", None):
        check_secrets(validate(given(name)))


@pytest.mark.parametrize("options", ["Cookie: planted", ["planted"]])
def test_options_of_another_type_are_not_shown(options: Any) -> None:
    source = {"name": "a", "kind": "warc", "paths": ["https://a.org/x"], "options": options}
    with pytest.raises(ConfigError, match=r"options is a value that is not shown") as found:
        validate({"ingest": {"extract": {"sources": [source]}}})
    assert "planted" not in str(found.value)
