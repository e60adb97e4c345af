"""What `crawl2llm new` wrote for remote files and a crawl is planned, without a network."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.commands.new.test_new import ENGLISH
from tests.unit.stages.ingest.servers import http_server
from tests.unit.stages.ingest.warcs import members, page
from tests.workflow.conftest import ROOT, environment

CRAWL = "CC-MAIN-2026-08"


def said(folder: Path, *options: str) -> str:
    """What `crawl2llm` prints in a folder."""
    command = [sys.executable, "-m", "crawl2llm", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_it_is_planned(tmp_path: Path) -> None:
    with http_server() as server:
        names = [f"crawl-data/{CRAWL}/segments/1/warc/{number:05d}.warc.gz" for number in range(3)]
        for name in names:
            server.put(name, members(*(page(each, ENGLISH) for each in range(5))))
        server.put(f"crawl-data/{CRAWL}/warc.paths.gz", gzip.compress("\n".join(names).encode()))
        (tmp_path / "list.txt").write_text("# files\n" + "".join(f"{server.url}/{name}\n" for name in names))
        said(tmp_path, "new", "mine.yaml", "--from", "@list.txt", CRAWL, "--files", "2", "--base", server.url)
    plan = said(tmp_path, "plan", "--profile", str(ROOT / "profiles/local"), "--configfile", "mine.yaml")
    assert "ingest_list" in plan and "ingest_extract" in plan and "report_render" in plan
