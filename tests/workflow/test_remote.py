"""Remote sources in the workflow: what is planned without a network, what is read again after a new listing, and copies."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from tests.unit.stages.ingest.servers import Server, http_server
from tests.unit.stages.ingest.warcs import members, page
from tests.workflow import forked
from tests.workflow.conftest import ROOT, environment

CRAWL = "CC-MAIN-2026-08"
CHECK = "results/main/ingest/check/manifest.json"


def crawl(server: Server, files: int) -> None:
    names = [f"crawl-data/{CRAWL}/segments/1/warc/{number:05d}.warc.gz" for number in range(files)]
    for number, name in enumerate(names):
        server.put(name, members(*(page(100 * number + each) for each in range(5))), drop=300)
    server.put(f"crawl-data/{CRAWL}/warc.paths.gz", gzip.compress("\n".join(names).encode()))


def config(folder: Path, base: str, files: int, fetch: bool = False) -> None:
    source = {"name": "web", "kind": "commoncrawl", "crawl": CRAWL, "files": files, "base": base, "patience": 20}
    ingest = {"fetch": {"enabled": fetch}, "extract": {"shards": 3, "sources": [source]}}
    (folder / "mine.yaml").write_text(yaml.safe_dump({"ingest": ingest}))


def said(folder: Path, *options: str, program: tuple[str, ...] = ("snakemake",)) -> str:
    """What a program of the project prints in a folder."""
    line = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", "mine.yaml"]
    line += ["--profile", str(ROOT / "profiles/local"), *options]
    if program == ("snakemake",):
        done = forked.snakemake(*line, cwd=folder, env=environment())
    else:
        command = [sys.executable, "-m", *program, *line]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_again(folder: Path) -> set[str]:
    """The shards whose documents were written by the last start."""
    log = (folder / "logs/main/ingest/extract/00000.log").read_text(encoding="utf-8")
    return set(re.findall(r"ingest\.extract (\d{5}): reading", log))


@pytest.mark.slow
@pytest.mark.long
def test_a_crawl_by_its_name(tmp_path: Path) -> None:
    config(tmp_path, "https://nowhere.invalid/", 6)
    assert "ingest_list" in said(tmp_path, "--dry-run", "--quiet", "rules"), "a plan needs no network"
    with http_server() as server:
        crawl(server, 9)
        config(tmp_path, server.url, 6)
        said(tmp_path, "--cores", "2", CHECK)
        assert Manifest.read(tmp_path / CHECK).counts["kept"] == 30
        assert "Nothing to be done" in said(tmp_path, "--cores", "2", CHECK)
        asked = len(server.asked)
        said(tmp_path, "--cores", "2", CHECK, "--forcerun", "ingest_list")
        assert not read_again(tmp_path), "the list is the same"
        assert len(server.asked) == asked + 7, "the paths and 6 lengths"
        config(tmp_path, server.url, 7)
        said(tmp_path, "--cores", "2", CHECK)
        assert 1 <= len(read_again(tmp_path)) <= 2 and Manifest.read(tmp_path / CHECK).counts["kept"] == 35


@pytest.mark.slow
@pytest.mark.long
def test_copies_first(tmp_path: Path) -> None:
    with http_server() as server:
        crawl(server, 4)
        config(tmp_path, server.url, 4, fetch=True)
        said(tmp_path, "--cores", "2", "--until", "ingest_list")
        plan = said(tmp_path, "--until", "ingest_check", program=("crawl2llm.__main__", "plan"))
        assert re.search(r"ingest\.fetch copies 0\.0 MB below results/\.", plan)
        said(tmp_path, "--cores", "2", "--until", "ingest_fetch")
    said(tmp_path, "--cores", "2", CHECK)  # the server is gone
    assert Manifest.read(tmp_path / CHECK).counts["kept"] == 20
    for path in (tmp_path / "results/main/ingest/fetch").rglob("*.warc.gz"):
        path.unlink()
    for path in (tmp_path / "results/main/ingest/fetch").glob("*.json"):
        path.unlink()
    config(tmp_path, server.url, 4)
    assert "Nothing to be done" in said(tmp_path, "--cores", "2", CHECK), "copies are not needed any more"


@pytest.mark.slow
@pytest.mark.long
def test_a_list_here_of_urls(tmp_path: Path) -> None:
    source = {"name": "web", "kind": "warc", "paths": ["@list.txt"], "patience": 20}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"ingest": {"extract": {"shards": 3, "sources": [source]}}}))
    with http_server() as server:
        crawl(server, 6)
        urls = [f"{server.url}{name}\n" for name in sorted(server.files) if name.endswith(".warc.gz")]
        (tmp_path / "list.txt").write_text("# files\n" + "".join(urls[:5]))
        said(tmp_path, "--cores", "2", CHECK)
        assert Manifest.read(tmp_path / CHECK).counts["kept"] == 25
        (tmp_path / "list.txt").touch()
        assert "Nothing to be done" in said(tmp_path, "--cores", "2", CHECK)
        (tmp_path / "list.txt").write_text("# one more file\n" + "".join(urls))
        said(tmp_path, "--cores", "2", CHECK)
        assert 1 <= len(read_again(tmp_path)) <= 2 and Manifest.read(tmp_path / CHECK).counts["kept"] == 30
    (tmp_path / "list.txt").write_text(f"{urls[0]}here.warc.gz\n")
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "mine.yaml"]
    done = subprocess.run(
        [*command, "-n"], cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode and "the list list.txt has files here (line 2: 'here.warc.gz')" in done.stdout + done.stderr
