"""Patterns at web servers: the index pages of Python's own server, and pages in the form of Apache's and nginx's."""

from __future__ import annotations

import glob
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from crawl2llm.chain.remote_access import Access
from crawl2llm.core.errors import InputError
from crawl2llm.stages.ingest import indexes
from crawl2llm.stages.ingest.indexes import files_matching, names_of
from tests.unit.chain.test_remote_access import Asked, requests_to
from tests.unit.stages.ingest.servers import Server, http_server
from tests.unit.stages.ingest.test_list import config, run
from tests.unit.stages.ingest.warcs import members, page

SOON = Access({}, patience=1)
APACHE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html><head><title>Index of /pub/set</title></head><body><h1>Index of /pub/set</h1>
<table><tr><th valign="top"><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th>
<th><a href="?C=M;O=A">Last modified</a></th><th><a href="?C=S;O=A">Size</a></th></tr>
<tr><td valign="top"><img src="/icons/back.gif"></td><td><a href="/pub/">Parent Directory</a></td><td>&nbsp;</td></tr>
<tr><td><img src="/icons/folder.gif"></td><td><a href="2025/">2025/</a></td><td align="right">2025-11-02 10:11</td></tr>
<tr><td></td><td><a href="part%202.warc.gz">part 2.warc.gz</a></td><td align="right">2025-11-02 10:11  </td><td>1.2G</td></tr>
<tr><td></td><td><a href="part-1.warc.gz">part-1.warc.gz</a></td><td align="right">2025-11-02 10:11  </td><td>1.2G</td></tr>
<tr><td></td><td><a href="a&amp;b.warc.gz">a&amp;b.warc.gz</a></td><td align="right">2025-11-02 10:11  </td><td>  7 </td></tr>
</table><address>Apache/2.4.62 (Debian) Server at example.org Port 443</address></body></html>"""
NGINX = """<html>\r\n<head><title>Index of /pub/set/</title></head>\r\n<body>\r\n<h1>Index of /pub/set/</h1><hr><pre><a href="../">../</a>
<a href="2025/">2025/</a>                                              02-Nov-2025 10:11                   -
<a href="part%202.warc.gz">part 2.warc.gz</a>                                     02-Nov-2025 10:11          1288490188
<a href="part-1.warc.gz">part-1.warc.gz</a>                                     02-Nov-2025 10:11          1288490188
<a href="a%26b.warc.gz">a&amp;b.warc.gz</a>                                      02-Nov-2025 10:11                   7
</pre><hr></body>\r\n</html>\r\n"""
HOSTILE = """<a href="https://elsewhere.example/pub/set/x.gz">x</a><a href="//elsewhere.example/pub/set/x.gz">x</a>
<a href="http://h:81/pub/set/port.gz">x</a><a href="https://h/pub/set/scheme.gz">x</a><a href="../up.gz">x</a><a href="/pub/other.gz">x</a>
<a href="%2e%2e/up.gz">x</a><a href="..%2Fup.gz">x</a><a href="a/deep.gz">x</a><a href="http://[">x</a><a>x</a><a href="">x</a>
<a href="file:///etc/passwd">x</a><a href="javascript:x.gz">x</a><a href=".hidden.gz">x</a><a href="q.gz?token=1">x</a>
<a href="s;token=x.gz">x</a><a href="%ff.gz">x</a><a href="in.gz#part">x</a><a href="./in.gz">x</a><a href="/pub/%73et/%69n.gz">x</a>"""


@contextmanager
def python_server(folder: Path) -> Iterator[str]:
    """Python's own file server over a folder; its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


TREE = ("a.gz", "b.gz", "b.txt", "ü [1] &+;.gz", ".hidden.gz", "x/c.gz", "x/y/d.gz", "x/y/e.txt", "z/f.gz", ".git/g.gz")


@pytest.mark.parametrize(
    "pattern",
    ["*.gz", "*", "[ab].*", "[!a].gz", "*/*.gz", "x/*", "**/*.gz", "**", "**/y/*", "x/**", "[xz]/**/[cf]*", "**/**/d.*", "*/y/e.txt"],
)  # fmt: skip
def test_a_pattern_finds_what_it_finds_on_the_disk(tmp_path: Path, pattern: str) -> None:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    names = glob.glob(pattern, root_dir=tmp_path, recursive=True)
    there = {name for name in names if (tmp_path / name).is_file()}
    with python_server(tmp_path) as url:
        found = files_matching(f"{url}/{pattern}", SOON)
    assert found == sorted(f"{url}/{quote(name, safe=indexes.SAFE + '/')}" for name in there) and there


def test_a_source_by_a_pattern_is_read(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / "www" / str(number % 2) / f"part {number}.warc.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(members(*(page(10 * number + each) for each in range(3))))
    with python_server(tmp_path / "www") as url:
        source = {"name": "web", "kind": "warc", "paths": [f"{url}/**/part%20*.warc.gz"], "patience": 1}
        status, documents, dropped = run(tmp_path / "out", config(source))
    assert status == 0 and len(documents) == 12 and not dropped


@pytest.mark.parametrize("text", [APACHE, NGINX], ids=["Apache", "nginx"])
def test_pages_of_other_servers(server: Server, text: str) -> None:
    server.put("pub/set/", text.encode(), kind="text/html;charset=UTF-8")
    server.put("pub/set/2025/", NGINX.encode(), kind="text/html")
    here = f"{server.url}/pub/set"
    names = ["a&b.warc.gz", "part%202.warc.gz", "part-1.warc.gz"]
    assert files_matching(f"{here}/*.warc.gz", SOON) == [f"{here}/{name}" for name in names]
    assert files_matching(f"{here}/[0-9]*/part*", SOON) == [f"{here}/2025/{name}" for name in names[1:]]


def test_links_that_lead_out_of_the_folder_do_not_count() -> None:
    """The host of the page itself is `h` at port 80, by http."""
    found = names_of(HOSTILE.encode(), "http://h/pub/set/")
    assert found == {
        "s;token=x.gz": "http://h/pub/set/s%3Btoken=x.gz",
        "\udcff.gz": "http://h/pub/set/%FF.gz",
        "in.gz": "http://h/pub/set/in.gz",
    }


@pytest.mark.parametrize(
    ("text", "how", "words"),
    [
        ("<p>Welcome</p>", {}, "does not list its files (no link at {}/pub/ leads to one); name each file, or a list of them as @URL"),
        ("no", {"statuses": [403]}, "does not list its files ({}/pub/: the server answers 403); name each file, or a list"),
        (f"<a href=x.gz>{'x' * 1000}</a>", {}, "{}/pub/: an index page of over 0 MB; name each file"),
    ],
)  # fmt: skip
def test_what_is_no_index(
    server: Server, monkeypatch: pytest.MonkeyPatch, text: str, how: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(indexes, "LARGEST", 500)
    server.put("pub/", text.encode(), kind="text/html", **how)
    with pytest.raises(InputError) as error:
        files_matching(f"{server.url}/pub/*.gz", SOON)
    assert words.format(server.url) in str(error.value)


class Endless(Asked):
    """Every folder holds another one."""

    def answer(self, body: bool) -> None:
        self.server.put(self.path.removeprefix("/"), b'<a href="again/">again</a>', kind="text/html")
        super().answer(body)


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ('<a href="R&notes.gz">', "R&notes.gz"),
        ('<a href="R&amp;notes.gz">', "R&notes.gz"),
        ('<a title="see href=y.gz" href="z.gz">', "z.gz"),
        ('<a title="a > b" href="z.gz">', "z.gz"),
        ("<A\nHREF = q.gz>", "q.gz"),
        ("<a class='x'href='b.gz' >", "b.gz"),
        ('<!-- <a href="old.gz"> --><a href="x.gz">', "x.gz"),
        ('<!-- <a href="old.gz">', None),
    ],
)
def test_links_are_read_as_browsers_do(tag: str, name: str | None) -> None:
    assert list(names_of(tag.encode(), "http://h/pub/")) == ([] if name is None else [name])


def test_tags_in_tags_are_read_as_one_page() -> None:
    """Formatting that is left open takes a parser with a tree the square of the page's length (tests/unit/test_growth.py has the time)."""
    assert names_of(b"<b><a href=x><p>" * 60_000, "http://h/pub/") == {"x": "http://h/pub/x"}


def test_folders_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "DEEPEST", 10)
    with http_server(Endless) as server, pytest.raises(InputError, match="or 10 below each other; name each file"):
        files_matching(f"{server.url}/**/*.gz", SOON)


def test_secrets_go_to_the_named_host_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that redirects to another host: what its links lead to there is not asked for."""
    monkeypatch.setenv("C2L_COOKIE", "planted-4711")
    with http_server(Asked) as first, http_server(Asked) as other:
        other.put("pub/", b'<a href="x.gz">x</a>', kind="text/html")
        access = Access({"headers": {"Cookie": "s={env:C2L_COOKIE}"}}, patience=1)
        found = files_matching(f"{first.url}/to/{other.url}/pub/*.gz", access)
        assert found == [f"{first.url}/to/{other.url}/pub/x.gz"]
        assert ["cookie" in headers for _, headers in requests_to(first)] == [True]
        assert ["cookie" in headers for _, headers in requests_to(other)] == [False]
