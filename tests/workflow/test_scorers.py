"""Ready models, a language model of the run and their combination, through the rules; and what an edit of each part runs again."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import tools
from crawl2llm.filters.quality.classifier import Classifier
from crawl2llm.formats.documents import rows
from tests.unit.filters.quality.conftest import SETTINGS, needs_kenlm, sentence
from tests.workflow.conftest import run
from tests.workflow.plan import planned

SCORING = {"quality.train", "quality.score", "quality.ngrams", "quality.fasttext", "quality.lm", "quality.kenlm"}


def config(folder: Path) -> dict[str, Any]:
    """Write sources of good and bad texts and a fastText model; the config reads both."""
    for name, good in (("books", True), ("web", False)):
        lines = [json.dumps({"text": sentence(good, n, 30), "url": f"https://h{n}.org/"}) for n in range(40)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    examples = folder / "examples.txt"
    examples.write_text(
        "".join(f"__label__{'curated' if n % 2 else 'crawl'} {sentence(n % 2 == 1, n)}\n" for n in range(99))
    )
    Classifier.train(examples, SETTINGS).save(folder / "hq.bin")
    sources = [
        {"name": name, "kind": "jsonl", "paths": [f"{name}.jsonl"], "curated": name == "books"}
        for name in ("books", "web")
    ]
    tree: dict[str, Any] = {
        "ingest": {"extract": {"shards": 2, "sources": sources}},
        "filters": ["quality"],
        "quality": {
            "train": {"buckets": 500, "dimensions": 8},
            "ngrams": {"number": 3, "min_documents": 1},
            "fasttext": {"models": [{"name": "hq", "path": "hq.bin", "label": "curated"}]},
            "lm": {"enabled": True, "order": 3},
            "combine": {"require": [[{"scorer": "kenlm", "buckets": ["head", "middle"]}]]},
            "select": {"keep_fraction": 0.5},
        },
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    return tree


@pytest.mark.slow
@needs_kenlm
def test_scorers_through_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tools.KENLM.variable, str(tools.KENLM.folder().absolute()))
    tree = config(tmp_path)
    run(tmp_path, "--until", "quality_select", "quality_ngrams", config=tmp_path / "mine.yaml")
    place = tmp_path / "results/main/quality"
    found = Manifest.read(place / "calibrate/manifest.json").summary["scorers"]
    assert set(found) == {"trained", "hq", "kenlm"} and found["hq"]["roc_auc"] == 1.0
    verdicts = Manifest.read(place / "select/manifest.json")
    assert set(verdicts.counts["dropped"]) == {"kenlm_bucket", "fraction"}
    assert verdicts.counts["in"] == 80 == verdicts.counts["kept"] + sum(verdicts.counts["dropped"].values())
    buckets = [
        row["bucket"]
        for path in sorted((place / "combine").glob("0000?.parquet"))
        for row in rows(path)
        if not row["curated"]
    ]
    assert len(buckets) == 40 and set(buckets) >= {"head", "tail"}  # many texts are alike
    assert len(Manifest.read(place / "ngrams/manifest.json").summary["strongest"]["for"]) == 3

    def reruns(**parts: dict[str, Any]) -> set[str]:
        other = copy.deepcopy(tree)
        for name, keys in parts.items():
            other["quality"].setdefault(name, {}).update(keys)
        return {step for step in planned(tmp_path, other) if step.startswith("quality.")}

    assert reruns() == set()
    assert reruns(combine={"require": []}) == {"quality.combine", "quality.select"}
    assert reruns(calibrate={"method": "reciprocal_rank"}) == {"quality.calibrate", "quality.combine", "quality.select"}
    assert reruns(lm={"order": 2}) == {
        "quality.lm",
        "quality.kenlm",
        "quality.calibrate",
        "quality.combine",
        "quality.select",
    }
    assert reruns(lm={"enabled": False}, combine={"require": []}) == {
        "quality.calibrate",
        "quality.combine",
        "quality.select",
    }
    assert not reruns(select={"method": "threshold"}) & SCORING
