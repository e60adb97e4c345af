"""A crawl that is read over the network from a cluster: streamed by its jobs, or copied first on the login node."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT, Drive, until
from tests.unit.stages.ingest.servers import Server, http_server
from tests.unit.stages.ingest.warcs import members, page

CRAWL = "CC-MAIN-2026-08"
FILES, PAGES = 3, 4


class Ingest(Drive):
    """The real Snakefile up to ingest.extract, on the server's crawl."""

    snakefile = ROOT / "Snakefile"

    def __init__(self, folder: Path, base: str, fetch: bool) -> None:
        super().__init__(folder, {})
        source = {"name": "web", "kind": "commoncrawl", "crawl": CRAWL, "files": FILES, "base": base, "patience": 120}
        ingest = {"fetch": {"enabled": fetch}, "extract": {"shards": 2, "sources": [source]}}
        (folder / "config.yaml").write_text(yaml.safe_dump({"ingest": ingest}), encoding="utf-8")

    def said(self, step: str) -> str:
        """The log of a step, or nothing."""
        path = self.folder / f"logs/main/ingest/{step}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def jobs(self) -> set[str]:
        """The rules that had a job of SLURM's."""
        return {path.name.removeprefix("rule_ingest_") for path in (self.folder / "logs/slurm").iterdir()}

    def documents(self) -> dict[str, bytes]:
        """The files of documents, by name."""
        return {
            path.name: path.read_bytes() for path in (self.folder / "results/main/ingest/extract").glob("*.parquet")
        }


def crawl(server: Server) -> list[str]:
    """Serve a small crawl, a part of each file before the connection is cut; its files."""
    names = [f"crawl-data/{CRAWL}/segments/1/warc/{number:05d}.warc.gz" for number in range(FILES)]
    for number, name in enumerate(names):
        server.put(name, members(*(page(100 * number + each) for each in range(PAGES))), drop=300)
    server.put(f"crawl-data/{CRAWL}/warc.paths.gz", gzip.compress("\n".join(names).encode()))
    return names


@pytest.fixture
def ingest(cluster: Cluster, tmp_path: Path) -> Callable[..., Ingest]:
    return lambda base, fetch: Ingest(tmp_path / ("copied" if fetch else "streamed"), base, fetch)


def test_a_crawl_from_a_server_that_is_busy_for_a_while(ingest: Callable[..., Ingest]) -> None:
    """A job waits for its server and ends well in its first attempt; copies that the login node made give the same documents."""
    with http_server() as server:
        names = crawl(server)
        busy = server.files[f"/{names[1]}"]
        busy.statuses = [503] * 1000
        streamed, copied = ingest(server.url, fetch=False), ingest(server.url, fetch=True)
        try:
            for run in (streamed, copied):
                run.start("--until", "ingest_extract", "--retries=0")
            waits = re.compile(rf"{names[1]}: .*503.*; again in ")
            until("a job waits for its server", lambda: waits.search(streamed.said("extract/00000")))
            until(
                "a copy waits for its server", lambda: any(waits.search(copied.said(f"fetch/0000{n}")) for n in (0, 1))
            )
            busy.statuses = []
            for run in (streamed, copied):
                run.finish()
                assert "Error in rule" not in run.output
        finally:
            streamed.stop()
            copied.stop()
    made = (streamed.folder / "results/main/ingest/extract").glob("*.manifest.json")
    assert sum(Manifest.read(path).counts["kept"] for path in made) == FILES * PAGES
    assert streamed.jobs() == copied.jobs() == {"extract"}, "list and fetch are the login node's"
    assert streamed.documents() == copied.documents() and len(streamed.documents()) >= 2
    assert len(list((copied.folder / "results/main/ingest/fetch").rglob("*.warc.gz"))) == FILES
    assert not (streamed.folder / "results/main/ingest/fetch").exists()
