"""Variants are compared on what main holds out: no variant trains on it, and to compare them reruns nothing of main."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.commands.verify import find_problems
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.text.shingles import jaccard, shingle_set
from tests.workflow.conftest import TINY, run
from tests.workflow.test_variants import planned_for

WORDS = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400)]
OTHERS = [name for name in yaml.safe_load(TINY.read_text(encoding="utf-8"))["filters"] if name != "dedup"]


def twins(path: Path, number: int = 40) -> None:
    """Documents of 100 words, each with a twin on another host: the same in other lines, with two other words."""
    with path.open("w", encoding="utf-8") as out:
        for at in range(number):
            words = random.Random(at).choices(WORDS, k=100)  # noqa: S311 - not for secrets
            out.write(json.dumps({"text": " ".join(words), "url": f"https://one{at}.org/"}) + "\n")
            twin = "\n".join(["other", *words[1:50], "another", *words[51:]])
            out.write(json.dumps({"text": twin, "url": f"https://two{at}.org/"}) + "\n")


def tree(**more: Any) -> dict[str, Any]:
    """A run over twins with dedup, and a variant without it."""
    source = {"name": "web", "kind": "jsonl", "paths": ["twins.jsonl"]}
    return {
        "ingest": {"extract": {"shards": 2, "sources": [source]}},
        "filters": ["dedup"],
        "corpus": {"split": {"validation_fraction": 0.2}},
        "variants": {"copies": {"filters": []}},
        **more,
    }


def texts(folder: Path, variant: str, split: str) -> list[str]:
    paths = sorted((folder / "results" / variant / "corpus/write").glob("0*.manifest.json"))
    return [
        row["text"]
        for path in paths
        for row in rows(Manifest.read(path).file(f"{split}/{path.name.split('.')[0]}.parquet"))
    ]


def leaks(folder: Path, variant: str) -> int:
    """How many training documents of a variant are near-duplicates of what main holds out."""
    held = [shingle_set(text, 5) for text in texts(folder, "main", "validation")]
    train = [shingle_set(text, 5) for text in texts(folder, variant, "train")]
    assert held and train
    return sum(any(jaccard(own, other) >= 0.5 for other in held) for own in train)


def test_a_variant_without_dedup_trains_on_no_copy_of_what_main_holds_out(tmp_path: Path) -> None:
    twins(tmp_path / "twins.jsonl")
    config = tmp_path / "config.yaml"
    until = [f"results/{name}/corpus/write/00000.manifest.json" for name in ("main", "copies")]
    config.write_text(yaml.safe_dump(tree(evaluate={"common": {"enabled": False}})))
    run(tmp_path, *until, config=config)
    before = leaks(tmp_path, "copies")
    assert before >= 5 and leaks(tmp_path, "main") == 0
    whole = len(texts(tmp_path, "copies", "train"))
    marks = {path: path.read_bytes() for path in (tmp_path / "results/main").rglob("*manifest.json")}

    config.write_text(yaml.safe_dump(tree()))
    run(tmp_path, *until, config=config)
    assert leaks(tmp_path, "copies") == 0
    assert {path: path.read_bytes() for path in marks} == marks, "main is as it was"
    kept = len(texts(tmp_path, "copies", "train"))
    made = [
        Manifest.read(path) for path in sorted((tmp_path / "results/copies/corpus/heldout").glob("0*.manifest.json"))
    ]
    dropped = [sum(found.counts["dropped"].values()) for found in made]
    assert sum(found.counts["in"] for found in made) == whole == kept + sum(dropped) and sum(dropped) >= before
    gone = [
        row
        for path in sorted((tmp_path / "results/copies/corpus/write/dropped").glob("*.parquet"))
        for row in rows(path)
        if row["rule"] == "near_heldout"
    ]
    held = {
        row["id"]
        for path in sorted((tmp_path / "results/main/corpus/write/validation").glob("*.parquet"))
        for row in rows(path)
    }
    assert gone and all(row["duplicate_of"] in held and row["similarity"] >= 0.5 for row in gone)
    assert not find_problems(tmp_path / "results", deep=False).faults


def test_to_add_variants_makes_nothing_of_main_again(complete: Path, tmp_path: Path) -> None:
    """What is added to main is its own evaluation on what it holds out; the variant with main's documents shares them."""
    made = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    made["variants"] = {"hotter": {"pretrain": {"train": {"learning_rate": 0.001}}}, "copies": {"filters": OTHERS}}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(made))
    planned = planned_for(complete, config)
    of = {
        name: {path.split("/", 2)[2] for path in planned if path.startswith(f"results/{name}/")}
        for name in ("main", "hotter", "copies")
    }
    common = {f"evaluate/common/{name}.manifest.json" for name in ("base", "sft")}
    assert of["main"] == common | {"report/compare/manifest.json"}
    assert common <= of["hotter"] & of["copies"] and not any(path.startswith("corpus") for path in of["hotter"])
    assert {"corpus/reference/manifest.json", "corpus/heldout/00000.manifest.json"} <= of["copies"]
    made["evaluate"]["common"] = {"enabled": False}
    config.write_text(yaml.safe_dump(made))
    without = planned_for(complete, config)
    assert without and not [
        path for path in without if "common" in path or "heldout" in path or "corpus/reference" in path
    ]


def project(monkeypatch: pytest.MonkeyPatch, folder: Path, **more: Any) -> Project:
    monkeypatch.chdir(folder)
    twins(folder / "twins.jsonl", 2)
    return Project(configuration.validate(tree(**more)))


def used(found: Project, step: str) -> set[str]:
    from crawl2llm.chain import steps

    return {name for name, config in found.variants.items() if steps.is_used(step, config)}


def test_which_variants_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with other documents than main's; all of them where main's own split leaves near-duplicates in the training text."""
    variants = {"copies": {"filters": []}, "hotter": {"pretrain": {"train": {"learning_rate": 0.001}}}}
    with_dedup = project(monkeypatch, tmp_path, variants=variants)
    assert used(with_dedup, "corpus.heldout") == used(with_dedup, "corpus.reference") == {"copies"}
    assert used(with_dedup, "evaluate.common") == {"main", "copies", "hotter"}
    assert with_dedup.step_folder("hotter", "corpus.write") == "results/main/corpus/write"
    for changes in (
        {"filters": []},
        {"corpus": {"split": {"drop_near_duplicates": False}}},
        {
            "ingest": {
                "extract": {
                    "sources": [{"name": "web", "kind": "jsonl", "paths": ["twins.jsonl"], "skip_filters": ["dedup"]}]
                }
            }
        },
    ):
        found = project(
            monkeypatch, tmp_path, variants={"copies": {"filters": []}, "hotter": variants["hotter"]}, **changes
        )
        assert used(found, "corpus.heldout") == {"main", "copies", "hotter"}
        assert found.step_folder("hotter", "corpus.heldout") == "results/main/corpus/heldout", (
            "with main's documents it is main's"
        )
    alone = project(monkeypatch, tmp_path, variants={})
    assert not used(alone, "evaluate.common") and not used(alone, "corpus.heldout")


def test_fingerprints_do_not_depend_on_other_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant's files are the same alone, with others, and of whichever main they were made with; another main is another comparison."""
    copies, hotter = {"filters": []}, {"pretrain": {"train": {"learning_rate": 0.001}}}
    steps_ = ("corpus.reference", "corpus.heldout", "corpus.write", "evaluate.common")
    alone = project(monkeypatch, tmp_path, variants={"copies": copies})
    beside = project(monkeypatch, tmp_path, variants={"hotter": hotter, "copies": copies})
    longer = project(monkeypatch, tmp_path, variants={"copies": copies}, corpus={"split": {"validation_fraction": 0.3}})
    for step in steps_:
        task = "base" if step == "evaluate.common" else ""
        assert alone.fingerprint("copies", step, task) == beside.fingerprint("copies", step, task)
        assert alone.fingerprint("copies", step, task) != longer.fingerprint("copies", step, task), step
    plain = project(monkeypatch, tmp_path, variants={})
    for step in ("corpus.write", "pretrain.train", "report.render"):
        assert plain.fingerprint("main", step) == alone.fingerprint("main", step)


@pytest.mark.long
def test_all_variants_score_the_same(tmp_path: Path) -> None:
    """A whole run with a variant without dedup and one of another training; the next start has nothing to do."""
    made = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    made["variants"] = {"hotter": {"pretrain": {"train": {"learning_rate": 0.001}}}, "copies": {"filters": OTHERS}}
    made["evaluate"]["curve"] = {"every": 20, "threads": 1}
    made["pretrain"]["train"]["keep_every"] = 20
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(made))
    run(tmp_path, config=config)
    found = {
        (name, model): Manifest.read(tmp_path / f"results/{name}/evaluate/common/{model}.manifest.json")
        for name in ("main", "hotter", "copies")
        for model in ("base", "sft")
    }
    first = found["main", "base"]
    for (_, model), one in found.items():
        assert (one.summary["set"], one.summary["items"]) == (first.summary["set"], first.summary["items"])
        lines = one.rows(f"{model}.heldout.jsonl")
        assert [line["document"] for line in lines] == [line["document"] for line in first.rows("base.heldout.jsonl")]
    assert len({one.summary["bits_per_byte"] for one in found.values()}) == len(found), "they are different models"
    for name in ("main", "hotter", "copies"):
        points = found[name, "base"].rows("base.curve.jsonl")
        assert [point["step"] for point in points] == [20, 40]
        assert points[-1]["bits_per_byte"] == found[name, "base"].summary["bits_per_byte"]
    page = json.loads((tmp_path / "results/main/report/compare/compare.json").read_text())
    base = page["models"]["base"]
    assert base["set"] == first.summary["set"] and base["settings"] == ["main", "hotter", "copies"]
    assert [row["verdict"] for row in base["measures"][0]["to_main"]] == ["unknown", "unknown"], "one seed each"
    assert list(page["curves"]) == ["main", "hotter", "copies"] and "sft" in page["models"]
    assert not planned_for(tmp_path, config)
    assert not find_problems(tmp_path / "results", deep=False).faults
    made["variants"].pop("hotter")
    config.write_text(yaml.safe_dump(made))
    planned = {path.split("/", 2)[2] for path in planned_for(tmp_path, config)}
    assert planned == {"report/compare/manifest.json"}, "a variant's files are those of a run without the others"
