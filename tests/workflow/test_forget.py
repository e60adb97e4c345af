"""A planted page is followed through every kind of step: `forget` names each result that holds its words, and the edit leaves them out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from scripts.crawl2llm import main
from scripts.workflow.filtering import FILTERS
from tests.unit.synthesize.writing import page, prompt, says, serving, words  # noqa: F401 - the fixture `endpoint`
from tests.workflow.conftest import TINY, run
from tests.workflow.test_models import LIKED, SCORES, SFT

HOST, WORD = "planted.example", "zyxomorphic"  # on every page of the host, and nowhere else
ALIGNED = {"from": "sft", "step": "align.train", "batch_size": 8, "threads": 1}
MODELS: dict[str, Any] = {
    "sft": SFT, "scores": SCORES, "liked": LIKED, "dpo": {**ALIGNED, "method": "dpo"}, "kto": {**ALIGNED, "method": "kto"},
    "grpo": {**LIKED, "method": "grpo", "rewards": [{"reward": "length", "most": 12}]},
    "small": {"from": "base", "step": "compress.prune"}, "int8": {"from": "sft", "step": "compress.quantize"},
    "given": {"from": "sft", "step": "compress.export"}, "gone": {**SFT, "learning_rate": 0.002},
}  # fmt: skip


def config(folder: Path, url: str, models: dict[str, Any], **more: Any) -> Path:
    """The tiny run with pages of the host, and in the variant `more` texts that a model wrote of them."""
    skips = [name for name in FILTERS if name != "url"]
    planted = {"name": "planted", "kind": "jsonl", "paths": ["planted.jsonl"], "skip_filters": skips}
    sources = [{"name": "demo", "kind": "crawl"}, {"name": "reference", "kind": "crawl", "curated": True}, planted]
    written = {"name": "written", "kind": "synthesized", "step": "synthesize.rephrase", "skip_filters": skips}
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["ingest"]["extract"]["sources"] = sources
    tree["models"] = models
    tree["align"] = {"pairs": {"files": [{"path": "preferences.jsonl", "heldout": 0.2}]}}
    tree["evaluate"] |= {
        "generate": {"questions": 4, "samples": 2, "max_new_tokens": 4, "threads": 1},
        "judge": {"model": "big", "endpoint": url},
        "curve": {"every": 20},
        "common": {"enabled": False},
    }
    tree["pretrain"]["train"]["keep_every"] = 20
    tree["synthesize"] = {"rephrase": {"endpoint": url}}
    own = {"model": "m", "seeds": {"files": [{"name": "planted", "kind": "jsonl", "path": "planted.jsonl"}]}}
    overlay = {"ingest": {"extract": {"sources": [*sources, written]}}, "synthesize": {"rephrase": own}}
    overlay["models"] = dict.fromkeys(models)
    tree["variants"] = {"more": overlay}
    for key, value in more.items():
        tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def texts(path: Path) -> Iterator[bytes]:
    """The bytes of a file; of a table those of its texts."""
    if path.suffix == ".parquet":
        yield str(pq.read_table(path).to_pylist()).encode()
    yield path.read_bytes()


def holding(folder: Path) -> set[str]:
    """The folders below a run's folder in which a file has the planted word: `results/main/ingest/extract`, `.cache/judge`."""
    found = set()
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and len(name.parts) > 1 and any(WORD.encode() in text for text in texts(path)):
            found.add("/".join(name.parts[: 4 if name.parts[0] == "results" and name.parts[2] != "unused" else 2]))
    return found


@pytest.mark.slow
@pytest.mark.long
def test_a_planted_page_is_followed_through_every_kind_of_step(
    tmp_path: Path, endpoint: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(_: int, body: dict[str, Any]) -> tuple[int, Any]:
        asks = prompt(body)
        if "Reply with the number alone" in asks:
            return 200, says("7")
        return 200, says(f"{words(body)} It is called {WORD} too." if WORD in asks else words(body))

    url, _ = endpoint(answer)
    rows = [page(number, HOST) for number in range(24)]
    for row in rows:
        row["text"] = f"The {WORD} garden. {row['text']} It stays {WORD}."
        row["metadata"] = None
    (tmp_path / "planted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = (("Yes, it is.", "No."), ("A list of names.", "A b c."))
    pairs = [
        {"prompt": f"What is {number}?", "chosen": answers[number % 2][0], "rejected": answers[number % 2][1]}
        for number in range(60)
    ]
    (tmp_path / "preferences.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))

    run(tmp_path, config=config(tmp_path, url, MODELS))
    left = {name: entry for name, entry in MODELS.items() if name != "gone"}
    run(tmp_path, config=config(tmp_path, url, left))
    monkeypatch.chdir(tmp_path)
    assert main(["who-wrote", "what somebody else would say of it in plain words tonight", "--index"]) == 0
    capsys.readouterr()
    assert main(["forget", "--domain", HOST, "--json", "--write", "takedown.txt"]) == 0
    found = json.loads(capsys.readouterr().out)

    written = [one for one in found["documents"] if one.get("written_by") == "synthesize.rephrase"]
    assert len(found["documents"]) - len(written) >= len(rows) and len(written) == len(rows)
    languages = [name for name in left if name != "given"]
    assert sorted(found["models"]) == sorted(["base", "more/base", "gone (set aside)", *languages])
    assert found["exports"] == ["results/main/compress/export/given"] and found["not_known"] == []
    assert found["checkpoints"] and len(found["set_aside"]) >= 2
    assert {".cache/judge", ".cache/synthesize", ".cache/who-wrote"} <= {*found["caches"]}

    named = {f"results/{variant}/{step.replace('.', '/')}" for variant, own in found["results"].items() for step in own}
    there = holding(tmp_path)
    assert {"results/main/ingest/extract", "results/main/corpus/write", "results/more/synthesize/rephrase"} <= there
    beside = {name for name in there if not name.startswith("results/")}
    assert there - beside <= named, "every result with the word is named"
    assert beside <= {*found["caches"], *found["checkpoints"]} | {
        name for name in beside if name.startswith(("logs/", ".snakemake/"))
    }
    # The word is in no file of a model; what was made is known by lineage alone.
    for step in (
        "pretrain.train",
        "finetune.train",
        "align.reward",
        "align.train",
        "compress.export",
        "evaluate.judge",
        "evaluate.curve",
    ):
        assert step in found["results"]["main"], step
    reached = {step for own in found["results"].values() for step in own}
    made = {
        ".".join(path.relative_to(tmp_path / "results").parts[1:3])
        for path in (tmp_path / "results").glob("*/*/*/*manifest.json")
    }
    assert made - reached <= {"crawl.render", "decontaminate.index"}, "every step that ran is followed"

    # With the edit no corpus has the word: neither in the pages nor in what a model wrote of them.
    run(tmp_path, "--until", "corpus_write", config=config(tmp_path, url, left, **found["edit"]))
    assert not {name for name in holding(tmp_path) if "/corpus/write" in name}
