"""A takedown over variants, on results made by hand: a document that main dropped and a variant trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.commands.trace import takedown
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.workflow import unused
from tests.unit import making

HOST = "bad.example"
CONFIG: dict[str, Any] = {
    "ingest": {"extract": {"shards": 1, "sources": [{"name": "web", "kind": "crawl"}]}},
    "filters": ["language", "dedup"],
    "variants": {
        "wide": {"filters": ["dedup"]},
        "listed": {"filters": ["url", "dedup"], "url": {"score": {"domains": []}}},
        "fast": {"pretrain": {"train": {"steps": 7}}},
    },
}


MODELS = {
    "sft": "finetune.train", "scores": "align.reward", "liked": "align.train", "given": "compress.export", "gone": "compress.quantize",
    "old": "compress.prune",
}  # fmt: skip


def table(path: Path, **columns: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def made(results: Results, name: str, trained: bool, tokens: int = 5) -> None:
    """The corpus and the model of a variant; the document is in its training text, or was dropped."""
    one = results.of_variant(name)
    if not (path := one.manifest_path("corpus.write", "00000")).exists():
        rows = [("y", "dedup", "x"), ("z", "corpus", "x")]
        if not trained:
            rows.append(("x", "language", None))
        columns = dict(zip(("id", "stage", "duplicate_of"), map(list, zip(*rows, strict=True)), strict=True))
        dropped = table(path.parent / "dropped/00000.parquet", **columns)
        Manifest("corpus.write", "test", sources={"00000": "x"}).write(path, [dropped])
    if not (path := one.manifest_path("tokenize.encode", "00000")).exists():
        columns = {"id": ["x"], "tokens": [tokens]} if trained else {"id": [], "tokens": []}
        told = table(path.parent / "train/00000.docs.parquet", **columns)
        read(one, ("corpus.write", "00000"), "tokenize.encode", "00000", [told])
    if not one.manifest_path("pretrain.train").exists():
        read(one, ("tokenize.encode", "00000"), "pretrain.train")


def read(results: Results, given: tuple[str, str], step: str, task: str = "", files: Sequence[Path] = ()) -> None:
    """A result that was made from another: from all that its manifest says."""
    above, path = Manifest.read_unchecked(results.manifest_path(*given)), results.manifest_path(step, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    inputs = {" ".join(given).rstrip(): {"*": str(above.digest_of("*"))}}
    Manifest(step, "test", inputs=inputs).write(path, files)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def begin(curated: bool = False, **config: Any) -> Results:
        Path("config.yaml").write_text(yaml.safe_dump({**CONFIG, **config}, sort_keys=False))
        folder = Path("results/main/ingest/extract")
        folder.mkdir(parents=True)
        mine = making.document("x", "text", url=f"https://{HOST}/a", curated=curated)
        others = [making.document(name, "text", url=f"https://copy.example/{name}") for name in ("y", "z")]
        making.documents(folder, [mine, *others])
        return Results([])

    return begin


def asked(results: Results, variant: str | None = None) -> dict[str, Any]:
    return takedown.takedown_report(results, [HOST], [], None, variant)


def test_what_main_dropped_and_a_variant_trained_on_is_found(run: Any) -> None:
    results = run()
    for name, trained in (("main", False), ("wide", True), ("listed", False), ("fast", False)):
        made(results, name, trained)
    found = asked(results)
    assert found["models"] == ["wide/base"]
    assert found["by_variant"]["wide"] == {"documents": 1, "by_fate": {"train": 1}, "training_tokens": 5}
    assert (
        found["by_variant"]["main"] == found["by_variant"]["fast"]
        and not found["by_variant"]["main"]["training_tokens"]
    )
    assert len(found["documents"]) == 3  # of fast and main once
    assert found["edit"] == {
        "filters": ["url", "language", "dedup"],
        "url": {"score": {"domains": ["takedown.txt"]}},
        "variants": {
            "wide": {"filters": ["url", "dedup"]},
            "listed": {"url": {"score": {"domains": ["takedown.txt"]}}},
        },
    }
    whole = configuration.validate(configuration.merge_dicts(CONFIG, found["edit"]))
    for name in ("main", *CONFIG["variants"]):
        own = config_of_variant(whole, name)
        assert "url" in own["filters"] and "takedown.txt" in own["url"]["score"]["domains"], name
    assert found["lacking"] == [] and "url.select" in found["runs_again"]["main"]
    assert "corpus.write" in found["runs_again"]["wide"] and "corpus.write" not in found["runs_again"]["fast"]
    text = "\n".join(takedown.takedown_lines(found))
    assert "models that learnt from them: wide/base" in text and "1 document (wide): 1 train; 5 tokens" in text
    # What was dropped as a duplicate of it has its text, and may come back where it goes.
    assert found["copies"] == [
        {"id": name, "url": f"https://copy.example/{name}", "source": "web", "duplicate_of": "x"} for name in "yz"
    ]
    assert "addresses that were dropped as duplicates of these: 2. With the edit" in text and "copy.example/y" in text
    assert found["originals"] == []
    only = asked(results, "main")
    assert only["models"] == [] and list(only["by_variant"]) == ["main"] and only["edit"] == {}


def test_the_document_that_a_dropped_one_is_a_duplicate_of_is_named(run: Any) -> None:
    """Its text is read all the same, under another address; not where that one was dropped too."""
    results = run(variants={})
    made(results, "main", False)
    path = results.manifest_path("corpus.write", "00000")
    for kept in (True, False):
        gone = {"id": ["x", "z"] if kept else ["x", "y", "z"]}
        columns = {"stage": ["dedup"] * len(gone["id"]), "duplicate_of": [*"yyy"][: len(gone["id"])]}
        again = table(path.parent / "dropped/00000.parquet", **gone, **columns)
        Manifest("corpus.write", "test").write(path, [again])
        found = asked(Results([]))
        text = "\n".join(takedown.takedown_lines(found))
        assert found["copies"] == [] and found["edit"] == {}
        original = {"id": "y", "url": "https://copy.example/y", "source": "web", "duplicate": "x"}
        assert found["originals"] == ([original] if kept else [])
        assert ("whose text stays: 1. To leave them out" in text) is kept


def test_what_learnt_from_it_is_found_by_lineage(run: Any) -> None:
    """Also a reward model, an export, checkpoints, a model that is set aside, and a text that a model wrote of the page."""
    results = run(variants={}, models={name: {"from": "base", "step": step} for name, step in MODELS.items()})
    path = results.manifest_path("ingest.extract", "00000")
    facts = {"synthesized": {"by": "synthesize.seed", "seed": "x", "url": f"https://www.{HOST}/a", "origin": HOST}}
    theirs = {"synthesized": {**facts["synthesized"], "url": "https://good.example/", "origin": "good.example"}}
    rows = [
        making.document("x", "text", url=f"https://{HOST}/a"),
        making.document("w", "text", url="synthesized:x/0", metadata=json.dumps(facts), source="written"),
        making.document("v", "text", url="synthesized:u/0", metadata=json.dumps(theirs), source="written"),
    ]
    making.documents(path.parent, rows)
    results.manifest_path("synthesize.seed").parent.mkdir(parents=True)
    Manifest("synthesize.seed", "test").write(results.manifest_path("synthesize.seed"), [])
    made(results, "main", True)
    read(results, ("pretrain.train", ""), "finetune.train", "sft")
    read(results, ("finetune.train", "sft"), "align.reward", "scores")
    read(results, ("align.reward", "scores"), "align.train", "liked")
    read(results, ("align.train", "liked"), "compress.export", "given")
    read(results, ("finetune.train", "sft"), "compress.quantize", "gone")
    read(results, ("finetune.train", "sft"), "compress.prune", "old")
    damaged = results.manifest_path("compress.prune", "old")
    damaged.write_text(damaged.read_text().replace('"*": "', '"*": "0'))
    left = {name: entry for name, entry in results.config["models"].items() if name != "gone"}
    unused.make_moves(unused.moves_aside({"main": {**results.config, "models": left}}))
    place = Path("checkpoints/0123")
    place.mkdir(parents=True)
    pointer = {"manifest": str(results.manifest_path("align.reward", "scores")), "fingerprint": "x", "others": {}}
    (place / "training.json").write_text(json.dumps(pointer))
    # Those of the model that is set aside, and of a training that did not end.
    for name, step, model in (("4567", "compress.quantize", "gone"), ("89ab", "align.train", "begun")):
        Path("checkpoints", name).mkdir()
        pointer = {
            "manifest": str(
                results.manifest_path("finetune.train", "sft").parents[2]
                / step.replace(".", "/")
                / f"{model}.manifest.json"
            ),
            "fingerprint": "x",
            "others": {},
        }
        Path("checkpoints", name, "training.json").write_text(json.dumps(pointer))
    Path("results/another").mkdir()
    caches = [".cache/judge", "results/main/report/now"]
    for name in caches:
        Path(name).mkdir(parents=True)

    found = asked(Results([]))
    assert {(one["id"], one.get("written_by")) for one in found["documents"]} == {("x", None), ("w", "synthesize.seed")}
    assert found["models"] == ["base", "sft", "scores", "liked", "gone (set aside)"]
    assert found["exports"] == ["results/main/compress/export/given"]
    assert found["not_known"] == ["results/main/compress/prune/old.manifest.json", "checkpoints/89ab"]
    assert found["not_of_config"] == ["another"]
    assert found["checkpoints"] == ["checkpoints/0123", "checkpoints/4567"] and found["caches"] == caches
    assert len(found["set_aside"]) == 1 and found["set_aside"][0].startswith(
        "results/main/unused/compress/quantize/gone."
    )
    assert found["results"]["main"][:2] == ["synthesize.seed", "ingest.extract"]
    text = "\n".join(takedown.takedown_lines(found))
    assert "texts among them that a model wrote of such pages: 1" in text
    assert (
        "files to give away that hold such a model; copies that were given away are not known here: results/main/compress/export/given"
        in text
    )
    assert "nobody knows of them: results/main/compress/prune/old.manifest.json" in text


def test_no_model_learnt_from_a_document_that_is_held_out(run: Any) -> None:
    results = run(variants={})
    made(results, "main", False)
    path = results.manifest_path("corpus.write", "00000")
    columns = {"id": ["y", "z"], "stage": ["dedup"] * 2, "duplicate_of": ["x"] * 2}
    again = table(path.parent / "dropped/00000.parquet", **columns)
    Manifest("corpus.write", "test", sources={"00000": "x"}).write(path, [again])
    encoded = table(
        results.manifest_path("tokenize.encode").parent / "validation/00000.docs.parquet", id=["x"], tokens=[5]
    )
    read(results, ("corpus.write", "00000"), "tokenize.encode", "00000", [encoded])
    read(results, ("tokenize.encode", "00000"), "pretrain.train")
    read(results, ("tokenize.encode", "00000"), "evaluate.items")
    found = asked(Results([]))
    assert found["by_variant"]["main"]["by_fate"] == {"validation": 1} and found["models"] == []
    assert "evaluate.items" in found["results"]["main"] and "pretrain.train" not in found["results"]["main"]


def test_a_corpus_that_is_not_encoded_yet_has_its_documents(run: Any) -> None:
    results = run(variants={})
    path = results.manifest_path("corpus.write", "00000")
    columns = {"id": ["y", "z"], "stage": ["dedup"] * 2, "duplicate_of": ["x"] * 2}
    files = [
        table(path.parent / "dropped/00000.parquet", **columns),
        table(path.parent / "train/00000.parquet", id=["x"]),
    ]
    Manifest("corpus.write", "test", sources={"00000": "x"}).write(path, files)
    read(results, ("corpus.write", "00000"), "finetune.pairs")
    found = asked(Results([]))
    assert found["by_variant"]["main"] == {"documents": 1, "by_fate": {"train": 1}, "training_tokens": 0}
    assert found["results"]["main"][-2:] == ["corpus.write", "finetune.pairs"] and found["models"] == []


def test_copies_of_a_document_that_stays_are_not_to_be_listed(run: Any) -> None:
    results = run(curated=True, variants={})
    made(results, "main", True)
    assert asked(results)["copies"] == []


def test_what_sweep_sets_is_named(run: Any) -> None:
    results = run(variants={}, sweep={"grid": {"filters": [["dedup"], ["url", "dedup"]]}})
    made(results, "main", True)
    found = asked(results)
    assert len(found["lacking"]) == 1 and "variants" not in found["edit"]
    assert f"sweep sets the filters or lists of {found['lacking'][0]}" in "\n".join(takedown.takedown_lines(found))


@pytest.mark.parametrize(
    ("curated", "said"), [(True, "take them out of the source's files"), (False, "none of them is in a")]
)
def test_what_the_edit_would_not_change_is_no_edit(run: Any, curated: bool, said: str) -> None:
    results = run(curated=curated, variants={})
    made(results, "main", curated)
    found = asked(results)
    *_, last = takedown.takedown_lines(found)
    assert (found["edit"], found["runs_again"]) == ({}, {})
    assert last.startswith("nothing to do: ") and said in last
    json.dumps(found)


@pytest.mark.parametrize("domain", ["uk", "co.uk", "blogspot.com", "UK", "рф", "xn--p1ai"])
def test_a_public_suffix_is_no_domain_of_anybody(domain: str) -> None:
    with pytest.raises(InputError, match=r"a public suffix, .* --domain \.\S+; .* alone: --url"):
        takedown.check_domains(["bad.example", domain])
    takedown.check_domains([f".{domain}", f"*.{domain}"])


@pytest.mark.parametrize("domain", ["https://bad.example/a", "bad.example/a", "//bad.example"])
def test_an_address_is_no_domain(domain: str) -> None:
    with pytest.raises(InputError, match=r"a domain without scheme and path, such as bad\.example, .* --url"):
        takedown.check_domains(["bad.example", domain])
