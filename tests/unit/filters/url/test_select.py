"""url: from documents and lists to verdicts."""

from __future__ import annotations

import json
from pathlib import Path

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.url import score, select
from crawl2llm.formats.documents import rows
from tests.unit import making


def of(page: str) -> str:
    """The metadata of a text that a model wrote of a page."""
    return json.dumps({"synthesized": {"by": "synthesize.seed", "seed": "x", "url": page, "origin": page}})


def test_both_steps(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("bad.com\n")
    (tmp_path / "words").write_text("casino\nloan\n")
    given = [
        making.document("on a list", "a", url="https://www.bad.com/page"),
        making.document("curated", "a", url="https://www.bad.com/page", curated=True),
        making.document("two words", "a", url="https://good.org/casino-loan"),
        making.document("one word", "a", url="https://good.org/casino"),
        making.document("clean", "a", url="https://good.org/"),
        making.document("a book", "a", url="file:casino.txt#1"),
        making.document("no url", "a", url=None),
        making.document("gone before", "a", url="https://www.bad.com/page"),
        making.document("written of a page on a list", "a", url="synthesized:x/0", metadata=of("https://bad.com/page")),
        making.document("written of a clean page", "a", url="synthesized:y/0", metadata=of("https://good.org/")),
        making.document("written of a book", "a", url="synthesized:z/0", metadata=of("")),
    ]
    documents = making.documents(tmp_path / "documents", given)
    names = [row["id"] for row in given]
    verdicts = making.verdicts(tmp_path / "check", {"00000": names}, lambda name: name == "gone before", "ingest.check")
    out = tmp_path / "score/00000.manifest.json"
    config = making.config("url.score", domains=[str(tmp_path / "domains")], words=[str(tmp_path / "words")])
    argv = ["--config", config, "--documents", str(documents), "--verdicts", str(verdicts), "--manifest", str(out)]
    assert score.main(argv) == 0
    assert Manifest.read(out).summary == {"without_host": 3, "notes": []}

    argv = ["--config", making.config("url.select", words_max=1), "--signals", str(out)]
    assert select.main([*argv, "--manifest", str(tmp_path / "select/00000.manifest.json")]) == 0
    manifest = Manifest.read(tmp_path / "select/00000.manifest.json")
    assert manifest.counts == {"in": 10, "kept": 7, "dropped": {"domain": 2, "words": 1}}
    found = {row.pop("id"): row for row in rows(manifest.file("00000.parquet"))}
    assert list(found) == [name for name in names if name != "gone before"]
    assert not found["written of a page on a list"]["kept"] and found["written of a clean page"]["kept"]
    assert (found["on a list"]["rule"], found["on a list"]["detail"]) == ("domain", "bad.com")
    assert (found["two words"]["value"], found["two words"]["threshold"]) == (2, 1)
    assert found["curated"]["kept"] and found["curated"]["rules"] == ["domain"] and found["curated"]["rule"] is None


def test_a_source_that_skips_it_stays(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("bad.com\n")
    facts = {"url": "https://bad.com/", "source": "wiki"}
    given = [
        making.document("wiki", "a", **facts),
        making.document("both", "a", **facts, curated=True),
        making.document("web", "a", url="https://bad.com/"),
        making.document("clean", "a", source="wiki"),
    ]
    documents = making.documents(tmp_path / "documents", given)
    out = tmp_path / "score/00000.manifest.json"
    config = making.config("url.score", domains=[str(tmp_path / "domains")])
    argv = ["--config", config, "--documents", str(documents)]
    argv += ["--verdicts", str(making.checked(tmp_path / "check", documents)), "--manifest", str(out)]
    assert score.main(argv) == 0
    argv = ["--config", making.config("url.select", ["wiki", "other"]), "--signals", str(out)]
    assert select.main([*argv, "--manifest", str(tmp_path / "select/00000.manifest.json")]) == 0
    manifest = Manifest.read(tmp_path / "select/00000.manifest.json")
    assert manifest.counts == {"in": 4, "kept": 3, "dropped": {"domain": 1}}
    assert manifest.summary["source_exempt"] == 1, "a curated document stays for that reason already"
    found = {row["id"]: row for row in rows(manifest.file("00000.parquet"))}
    assert found["wiki"]["rules"] == found["web"]["rules"] == ["domain"] and found["clean"]["rules"] == []
    assert [found["wiki"][key] for key in ("kept", "rule", "value", "threshold", "detail")] == [True, *[None] * 4]


def test_without_lists_it_says_so(tmp_path: Path) -> None:
    documents = making.documents(tmp_path / "documents", [making.document("1", "a")])
    verdicts = making.checked(tmp_path / "check", documents)
    out = tmp_path / "score/00000.manifest.json"
    argv = ["--config", making.config("url.score"), "--documents", str(documents), "--verdicts", str(verdicts)]
    assert score.main([*argv, "--manifest", str(out)]) == 0
    assert Manifest.read(out).summary["notes"] == ["url.score names no list: no URL was compared."]


def test_public_suffixes_of_a_list_are_counted_in_a_note(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("uk\ncom\nuk\nbad.com\n.xxx\n")
    documents = making.documents(tmp_path / "documents", [making.document("1", "a", url="https://www.bbc.co.uk/")])
    out = tmp_path / "score/00000.manifest.json"
    argv = ["--config", making.config("url.score", domains=[str(tmp_path / "domains")]), "--documents", str(documents)]
    argv += ["--verdicts", str(making.checked(tmp_path / "check", documents)), "--manifest", str(out)]
    assert score.main(argv) == 0
    manifest = Manifest.read(out)
    assert manifest.summary["notes"] == [
        "2 listed domains are public suffixes and block no host below them: com, uk. Write .com to block all below it."
    ]
    assert [row["domain"] for row in rows(manifest.file("00000.parquet"))] == [None]
