"""Secrets of a source: named in the config, sent to the hosts that it names, and to no other that a server or a list leads to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import sources
from crawl2llm.chain.config import validate
from crawl2llm.chain.remote_access import Access, access_of
from crawl2llm.core import secret_masking
from crawl2llm.core.errors import ConfigError
from crawl2llm.stages.ingest.remote import Remote
from crawl2llm.stages.ingest.transfer_errors import MissingError, TransferError
from crawl2llm.stages.ingest.transport import Facts
from tests.unit.stages.ingest.servers import Handler, Server, http_server

VALUE = "planted-cookie-4711"
OPTIONS = {
    "headers": {"Cookie": "session={env:C2L_COOKIE}", "X-Api": "{env:C2L_COOKIE}", "Accept-Language": "en"},
    "client_kwargs": {"headers": {"X-Session": "{env:C2L_COOKIE}"}, "cookies": {"of": "{env:C2L_COOKIE}"}},
}


class Asked(Handler):
    """Notes what it is asked with. A path /to/URL is a redirect there."""

    def answer(self, body: bool) -> None:
        requests_to(self.server).append((self.path, {key.lower(): value for key, value in self.headers.items()}))
        if self.path.startswith("/to/"):
            return self.status(
                302, Location=self.path.removeprefix("/to/").split("?session=")[0], Set_Cookie="own=server"
            )
        if self.path.startswith("/say/"):
            return self.status(403)
        return super().answer(body)


def requests_to(server: Any) -> list[tuple[str, dict[str, str]]]:
    return server.__dict__.setdefault("seen", [])  # type: ignore[no-any-return]


@pytest.fixture
def server() -> Iterator[Server]:
    with http_server(Asked) as made:
        yield made


@pytest.fixture
def other() -> Iterator[Server]:
    with http_server(Asked) as made:
        yield made


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_masking, "_known_secrets", set())
    monkeypatch.setenv("C2L_COOKIE", VALUE)


def config(*paths: str, **source: Any) -> dict[str, Any]:
    entry = {"name": "web", "kind": "warc", "paths": list(paths), **source}
    return validate({"ingest": {"extract": {"sources": [entry]}}})


def access(*paths: str, **source: Any) -> Access:
    """What a program gets as --access; the words hold no secret."""
    found = config(*paths, **source)
    sources.check_source(found["ingest"]["extract"]["sources"][0], ".", "here")
    word = sources.access_json(found)
    assert VALUE not in word
    return access_of(word, "web")


def whole(url: str, how: Access) -> bytes:
    file = Remote(url, Facts(), how)
    assert VALUE not in str(file)
    file.read_facts()
    with file.open() as stream:
        return stream.read()


def requests_with_secret(server: Server) -> list[str]:
    return [path for path, headers in requests_to(server) if VALUE in json.dumps([path, headers])]


def test_headers_come_from_the_environment_and_go_to_the_source(server: Server) -> None:
    url = server.put("a.gz", b"data")
    assert whole(url, access(url, options=OPTIONS)) == b"data"
    for _, headers in requests_to(server):
        assert headers["x-api"] == headers["x-session"] == VALUE and f"session={VALUE}" in headers["cookie"]


def test_a_secret_of_a_url_is_filled_in_where_it_is_asked(server: Server) -> None:
    server.put("a.gz", b"data")
    url = f"{server.url}/a.gz?session={{env:C2L_COOKIE}}&code={{env:C2L_COOKIE}}"
    assert whole(url, access(url)) == b"data"
    assert {path for path, _ in requests_to(server)} == {f"/a.gz?session={VALUE}&code={VALUE}"}


def test_a_url_that_no_config_names_reads_no_secret(server: Server) -> None:
    """A list of somebody else's cannot ask for the environment."""
    server.put("a.gz", b"data")
    whole(f"{server.url}/a.gz?q={{env:C2L_COOKIE}}", access(f"{server.url}/list.gz"))
    assert requests_to(server) and not requests_with_secret(server)


@pytest.mark.parametrize("options", [OPTIONS, {"params": {"session": "{env:C2L_COOKIE}"}}])
def test_a_redirect_to_another_origin_takes_no_secret_along(server: Server, other: Server, options: Any) -> None:
    target = other.put("a.gz", b"data")
    url = f"{server.url}/to/{target}"
    assert whole(url, access(url, options=options)) == b"data"
    assert requests_with_secret(server) and requests_to(other) and not requests_with_secret(other)
    if "headers" in options:
        assert all(headers["accept-language"] == "en" for _, headers in requests_to(other))


def test_a_redirect_back_is_told_the_secret_again(server: Server, other: Server) -> None:
    server.put("a.gz", b"data")
    url = f"{server.url}/to/{other.url}/to/{server.url}/a.gz"
    assert whole(url, access(url, options=OPTIONS)) == b"data"
    assert {path for path, _ in requests_to(server)} == set(requests_with_secret(server)) and not requests_with_secret(
        other
    )


def test_a_list_of_a_server_leads_no_secret_elsewhere(server: Server, other: Server) -> None:
    how = access(f"@{server.url}/list.txt", options=OPTIONS)
    assert whole(other.put("a.gz", b"data"), how) == b"data"
    assert whole(server.put("b.gz", b"data"), how) == b"data"
    assert not requests_with_secret(other) and requests_with_secret(server)


def test_a_list_here_names_whom_it_likes(server: Server, other: Server, tmp_path: Path) -> None:
    url = other.put("a.gz", b"data")
    (tmp_path / "list.txt").write_text(f"{url}\n{server.url}/b.gz\n")
    whole(url, access(f"@{tmp_path}/list.txt", options=OPTIONS))
    assert requests_with_secret(other)


def test_allowed_hosts(server: Server, other: Server) -> None:
    target = other.put("a.gz", b"data").replace("127.0.0.1", "localhost")
    url = f"{server.url}/to/{target}"
    assert whole(url, access(url, allowed_hosts=["localhost"])) == b"data"
    assert whole(url, access(url)) == b"data"
    for hosts in (["example.org"], ["*.localhost"]):
        with pytest.raises(
            MissingError, match=r"redirects to localhost, which `allowed_hosts` of its source does not name"
        ):
            whole(url, access(url, allowed_hosts=hosts))
    with pytest.raises(MissingError, match=r"a list names localhost, which `allowed_hosts`"):
        whole(target, access(url, allowed_hosts=["example.org"]))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://169.254.169.254/latest/meta-data", "an address inside this network"),
        ("http://[::1]/x", "an address inside this network"),
        ("http://localhost:8080/x", "an address inside this network"),
        ("file:///etc/passwd", "an address that is not http"),
        ("ftp://a.org/x", "an address that is not http"),
        ("https://cdn.org/x", ""),
        ("http://a.org/y", ""),
    ],
)
def test_where_a_public_server_may_redirect(url: str, why: str) -> None:
    said = Access({}).why_refused(url, "https://a.org/x")
    assert (why in said) if why else said == ""


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://a.org:x/", "https://a.org:99999/x"])
def test_an_odd_redirect_is_a_missing_file(server: Server, target: str) -> None:
    url = f"{server.url}/to/{target}"
    with pytest.raises(MissingError, match="the server redirects"):
        whole(url, access(url))


def test_redirects_end(server: Server) -> None:
    server.put("a", b"data")
    url = f"{server.url}/to/" * 12 + f"{server.url}/a"
    with pytest.raises(MissingError, match="redirects more than 10 times"):
        whole(url, access(url))


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Cookie": VALUE}},
        {"headers": {"X-Anything": VALUE}},
        {"headers": {"authorization": f"Bearer {VALUE}"}},
        {"client_kwargs": {"headers": {"x-y": VALUE}}},
        {"client_kwargs": {"cookies": {"a": VALUE}}},
        {"cookies": {"a": VALUE}},
        {"params": {"session": VALUE}},
        {"key": VALUE},
        {"username": VALUE},
        {"proxy": f"http://me:{VALUE}@proxy:80"},
        {"endpoint_url": f"https://a.org?code={VALUE}"},
    ],
)
def test_a_secret_in_options_is_refused_and_not_repeated(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"here(\.options)?[\w.-]*( |:)") as found:
        access("https://a.org/x.gz", options=options)
    assert VALUE not in str(found.value) and "{env:NAME}" in str(found.value)


@pytest.mark.parametrize(
    "query",
    [
        "?session=",
        "?code=",
        "?pwd=",
        "?a=1&sid=",
        ";jsessionid=",
        "?PHPSESSID=",
        "?accessCode=",
        "#access_token=",
        "?X-Amz-Signature=",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(query: str, tmp_path: Path) -> None:
    url = f"https://a.org/x.gz{query}{VALUE}"
    (tmp_path / "list.txt").write_text(f"{url}\n")
    for path in (url, f"@{url}", f"@{tmp_path}/list.txt"):
        with pytest.raises(ConfigError, match=r"a URL of a\.org with .* in its query") as found:
            access(path)
        assert VALUE not in str(found.value) and "{env:NAME}" in str(found.value)


@pytest.mark.parametrize("path", ["s3://b/{env:C2L_COOKIE}", "{data}/{env:C2L_COOKIE}"])
def test_only_urls_of_the_web_name_secrets(path: str, tmp_path: Path) -> None:
    if path.startswith("s3"):
        with pytest.raises(ConfigError, match="only URLs of `paths` at http and https"):
            access(path)
    (tmp_path / "list.txt").write_text("https://a.org/{env:C2L_COOKIE}\n")
    with pytest.raises(ConfigError, match="a list names no secret"):
        access(f"@{tmp_path}/list.txt")


def test_a_secret_that_is_not_there_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("C2L_COOKIE")
    url = server.put("a.gz", b"data")
    with pytest.raises(TransferError, match="'C2L_COOKIE', and no such environment variable is set"):
        whole(url, access(url, options=OPTIONS))


def test_redirects_that_nobody_wants(server: Server) -> None:
    url = f"{server.url}/to/{server.put('a.gz', b'data')}"
    with pytest.raises(MissingError, match="the server answers 302"):
        whole(url, access(url, options={"allow_redirects": False}))
