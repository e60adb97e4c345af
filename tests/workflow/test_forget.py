"""A planted page is followed through every kind of step: `forget` names each result that holds its words, and the edit leaves them out."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from crawl2llm.__main__ import main
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.core.nested_dicts import merge_dicts
from tests.unit.stages.synthesize.writing import page, prompt, says, serving, words  # noqa: F401 - the fixture `endpoint`
from tests.workflow.conftest import TINY, run
from tests.workflow.test_models import LIKED, SCORES, SFT

HOST, WORD = "planted.example", "zyxomorphic"  # on every page of the host, and nowhere else
ALIGNED = {"from": "sft", "step": "align.train", "batch_size": 8, "threads": 1}
MODELS: dict[str, Any] = {
    "sft": SFT, "scores": SCORES, "liked": {**LIKED, "method": "grpo"}, "dpo": {**ALIGNED, "method": "dpo"},
    "kto": {**ALIGNED, "method": "kto"}, "small": {"from": "base", "step": "compress.prune"},
    "int8": {"from": "sft", "step": "compress.quantize"}, "given": {"from": "sft", "step": "compress.export"},
    "gone": {**SFT, "learning_rate": 0.002},
}  # fmt: skip


def config(
    folder: Path, url: str, models: dict[str, Any], variant: bool = True, edit: dict[str, Any] | None = None
) -> Path:
    """The tiny run with pages of the host, and in the variant `more` texts that a model wrote of them."""
    skips = [name for name in FILTERS if name != "url"]
    planted = {"name": "planted", "kind": "jsonl", "paths": ["planted.jsonl"], "skip_filters": skips}
    sources = [{"name": "demo", "kind": "crawl"}, {"name": "reference", "kind": "crawl", "curated": True}, planted]
    written = {"name": "written", "kind": "synthesized", "step": "synthesize.rephrase", "skip_filters": skips}
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["ingest"]["extract"]["sources"] = sources
    tree["corpus"]["split"]["split_by"] = "document"  # pages of the host on both sides
    tree["models"] = models
    tree["align"] = {"pairs": {"files": [{"path": "preferences.jsonl", "heldout": 0.2}]}}
    tree["evaluate"] |= {
        "generate": {"questions": 2, "max_new_tokens": 4, "threads": 1},
        "judge": {"model": "big", "endpoint": url},
        "curve": {"every": 20},
        "common": {"enabled": False},
    }
    tree["pretrain"]["train"]["keep_every"] = 20
    tree["synthesize"] = {"rephrase": {"endpoint": url}}
    own = {"model": "m", "seeds": {"files": [{"name": "planted", "kind": "jsonl", "path": "planted.jsonl"}]}}
    overlay = {"ingest": {"extract": {"sources": [*sources, written]}}, "synthesize": {"rephrase": own}}
    overlay["models"] = dict.fromkeys(models)
    tree["variants"] = {"more": overlay} if variant else {}
    tree = merge_dicts(tree, edit or {})
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def texts(path: Path) -> Iterator[bytes]:
    """The bytes of a file; of a table those of its texts."""
    if path.suffix == ".parquet":
        yield str(pq.read_table(path).to_pylist()).encode()
    yield path.read_bytes()


def holding(folder: Path) -> set[str]:
    """The folders below a run's folder in which a file has the planted word: of steps `results/main/ingest/extract`, `.cache/judge`."""
    found = set()
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and len(name.parts) > 1 and any(WORD.encode() in text for text in texts(path)):
            below = {"results": 6 if name.parts[2] == "unused" else 4}.get(name.parts[0], 2)
            found.add("/".join(name.parts[:below]))
    return found


def given(folder: Path) -> int:
    """Write pages of the host, and preferences; the number of pages."""
    rows = [page(number, HOST) for number in range(24)]
    for row in rows:
        row |= {"text": f"The {WORD} garden. {row['text']} It stays {WORD}.", "metadata": None}
    (folder / "planted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = (("Yes, it is.", "No."), ("A list of names.", "A b c."))
    pairs = [
        {"prompt": f"What is {number}?", "chosen": answers[number % 2][0], "rejected": answers[number % 2][1]}
        for number in range(60)
    ]
    (folder / "preferences.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    return len(rows)


def answer(_: int, body: dict[str, Any]) -> tuple[int, Any]:
    """What the endpoint says: a judge's number, or a text with the word where the page has it."""
    asks = prompt(body)
    if "Reply with the number alone" in asks:
        return 200, says("7")
    return 200, says(f"{words(body)} It is called {WORD} too." if WORD in asks else words(body))


def forgotten(*options: str) -> dict[str, Any]:
    """The answer of `crawl2llm forget` in the working directory."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["forget", "--domain", HOST, "--json", *options]) == 0
    found: dict[str, Any] = json.loads(said.getvalue())
    return found


@pytest.mark.slow
@pytest.mark.long
def test_a_planted_page_is_followed_through_every_kind_of_step(
    tmp_path: Path, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = endpoint(answer)
    number = given(tmp_path)
    run(tmp_path, config=config(tmp_path, url, MODELS, variant=False))
    monkeypatch.chdir(tmp_path)
    follow(tmp_path, url, number)


def follow(folder: Path, url: str, number: int) -> None:
    """Set a model aside, have a model write of the pages, and see what `forget` finds. number: of pages."""
    left = {name: entry for name, entry in MODELS.items() if name != "gone"}
    corpora = [f"results/{variant}/corpus/write/00000.manifest.json" for variant in ("more", "main")]
    run(folder, "results/main/report/render/manifest.json", *corpora, config=config(folder, url, left))
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["who-wrote", "what somebody else would say of it in plain words tonight", "--index"]) == 0
    found = forgotten("--write", "takedown.txt")

    written = [one for one in found["documents"] if one.get("written_by") == "synthesize.rephrase"]
    pages = {one["id"] for one in found["documents"]} - {one["id"] for one in written}
    assert len(pages) == number and len(written) == number
    assert all(one["fate"] in ("train", "validation") for one in written), "they are in a corpus"
    models = sorted(["base", "gone (set aside)", *(name for name in left if name != "given")])
    assert sorted(found["models"]) == models
    assert found["exports"] == ["results/main/compress/export/given"] and found["not_known"] == []
    assert found["checkpoints"] and len(found["set_aside"]) >= 2
    assert {".cache/judge", ".cache/synthesize", ".cache/who-wrote"} <= {*found["caches"]}

    named = {f"results/{variant}/{step.replace('.', '/')}" for variant, own in found["results"].items() for step in own}
    there = holding(folder)
    assert {"results/main/ingest/extract", "results/main/corpus/write", "results/more/synthesize/rephrase"} <= there
    elsewhere = {name for name in there if not name.startswith("results/")}
    assert there - elsewhere <= named | {*found["set_aside"]}, "every result with the word is named"
    known = {*found["caches"], *found["checkpoints"]}
    assert {name for name in elsewhere - known if not name.startswith(("logs/", ".snakemake/"))} == set()
    # The word is in no file of a model: what was made is known by lineage alone.
    for step in (
        "pretrain.train",
        "align.reward",
        "align.train",
        "compress.export",
        "evaluate.judge",
        "evaluate.curve",
    ):
        assert step in found["results"]["main"], step
    made = {".".join(path.parts[2:4]) for path in Path("results").glob("*/*/*/*manifest.json")}
    followed = {step for own in found["results"].values() for step in own}
    assert made - followed <= {"crawl.render", "decontaminate.index"}, "every step that ran is followed"

    # With the edit no corpus has the word: neither in the pages nor in what a model wrote of them.
    edited = config(folder, url, left, edit=found["edit"])
    run(folder, *corpora, config=edited)
    assert not {name for name in holding(folder) if "/corpus/write" in name}
    assert "synthesize.rephrase" in {one.get("written_by") for one in forgotten()["documents"]}
