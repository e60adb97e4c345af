"""A run whose corpus gets texts that a model wrote of the corpus of main: what it makes, on which side each text is, what it reruns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import SPLITS, rows
from crawl2llm.workflow import stale_results
from tests.unit.stages.synthesize.writing import page, says, serving, words  # noqa: F401 - the fixture `endpoint`
from tests.workflow.conftest import run, snapshot
from tests.workflow.plan import planned

SEEDS = {"corpus": ["results/main/corpus/write"], "share": 0.8}
PAGES = 60


def tree(folder: Path, url: str, written: bool = True, **changes: Any) -> dict[str, Any]:
    """A config over pages of 20 hosts; in the variant `more` texts that a model wrote of main's corpus are a source too."""
    lines = ({**page(number, f"h{number % 20}.org"), "metadata": None} for number in range(PAGES))
    (folder / "web.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    web = {"name": "web", "kind": "jsonl", "paths": ["web.jsonl"]}
    more = {"name": "written", "kind": "synthesized", "step": "synthesize.rephrase"}
    made: dict[str, Any] = {
        "ingest": {"extract": {"shards": 2, "sources": [web]}},
        "filters": ["language"],
        "language": {"select": {"languages": [], "threshold": 0}},
        "corpus": {"split": {"validation_fraction": 0.2}},
        "evaluate": {"common": {"enabled": False}},  # the variant is not compared, so that main stays as it is
    }
    if written:
        made["synthesize"] = {"rephrase": {"endpoint": url, "requests": 3}}
        own = {"model": "m", "seeds": SEEDS, "versions": 2, **changes}
        made["variants"] = {
            "more": {"ingest": {"extract": {"sources": [web, more]}}, "synthesize": {"rephrase": own}},
        }
    (folder / "mine.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    return made


def sides(folder: Path, variant: str) -> dict[str, dict[str, dict[str, Any]]]:
    """{split: {id: document}} of a variant's corpus."""
    place = folder / "results" / variant / "corpus/write"
    return {
        split: {row["id"]: row for path in sorted(place.glob(f"{split}/*.parquet")) for row in rows(path)}
        for split in SPLITS
    }


@pytest.mark.slow
def test_texts_that_a_model_wrote_are_a_source(
    tmp_path: Path,
    endpoint: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, got = endpoint(lambda _, body: (200, says(words(body))))
    tree(tmp_path, url, written=False)
    run(tmp_path, "--until", "corpus_write", config=tmp_path / "mine.yaml")
    before = snapshot(tmp_path)
    assert not any("synthesize" in name for name in before)

    given = tree(tmp_path, url)
    said = run(tmp_path, "--until", "corpus_write", config=tmp_path / "mine.yaml")
    after = snapshot(tmp_path)
    assert {name: held for name, held in after.items() if "/main/" in name} == before, said
    main, more = sides(tmp_path, "main"), sides(tmp_path, "more")
    made = Manifest.read(tmp_path / "results/more/synthesize/rephrase/manifest.json")
    texts = {name: row for split in SPLITS for name, row in more[split].items() if row["source"] == "written"}
    assert len(got) == made.counts["in"] == made.counts["kept"] == len(texts) > 40

    # Each is traced to a training page of main, and is on that page's side, which is the side that the page had.
    facts = {name: json.loads(row["metadata"])["synthesized"] for name, row in texts.items()}
    assert {one["seed"] for one in facts.values()} < main["train"].keys()
    for split in SPLITS:
        pages = {name for name, row in more[split].items() if row["source"] == "web"}
        assert pages == main[split].keys()
        assert {facts[name]["seed"] for name in more[split].keys() & facts.keys()} <= pages
    assert all(main["train"][one["seed"]]["url"] == one["url"] for one in facts.values())
    read = [Manifest.read(path) for path in sorted((tmp_path / "results/more/corpus/write").glob("*.manifest.json"))]
    assert sum(one.summary["by_source"].get("written", {}).get("documents", 0) for one in read) == len(texts)
    assert Manifest.read(tmp_path / "results/more/corpus/split/manifest.json").summary["synthesized"] == {
        "documents": len(texts),
        "heldout": 0,
    }

    # What is made stays, wherever the endpoint is; a prompt, a budget or other seeds run the step again, and what reads from it.
    rest = planned(tmp_path, given)
    assert not {"synthesize.rephrase", "ingest.extract", "corpus.write"} & rest and "tokenize.train" in rest
    elsewhere = {**given, "synthesize": {"rephrase": {"endpoint": "http://127.0.0.1:9/v1", "requests": 1}}}
    assert planned(tmp_path, elsewhere) == rest
    monkeypatch.chdir(tmp_path)
    assert not stale_results.stale_files(Project(configuration.validate(given)).variants), "more files than shards"
    monkeypatch.undo()
    assert {"synthesize.rephrase", "corpus.write"} <= planned(tmp_path, tree(tmp_path, url, max_tokens=999))
    assert "synthesize.rephrase" in planned(tmp_path, {**given, "filters": []}), "main's corpus is made again before"

    # As many texts as a budget lets there be, from the cache: without the endpoint.
    tree(tmp_path, "http://127.0.0.1:9/v1", budget={"tokens": 5000}, files=1)
    run(tmp_path, "--until", "corpus_write", config=tmp_path / "mine.yaml")
    made = Manifest.read(tmp_path / "results/more/synthesize/rephrase/manifest.json")
    kept = {name for split in sides(tmp_path, "more").values() for name in split}
    assert 20 < made.counts["kept"] == len(kept & texts.keys()) < len(texts) and made.counts["dropped"]["budget"]
    assert len(got) == len(texts)
