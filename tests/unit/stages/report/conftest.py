"""A small finished run on disk, written by the real writers: two shards of documents, verdicts, metrics, benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import DOCUMENT, VERDICT, Writer, document_id

WORDS = [
    "the",
    "crawl",
    "holds",
    "pages",
    "and",
    "every",
    "page",
    "has",
    "words",
    "that",
    "a",
    "model",
    "may",
    "learn",
    "from",
    "when",
    "filters",
    "keep",
    "what",
    "people",
    "wrote",
]
HOSTILE = '<script>alert("x")</script><img src="https://example.com/x.png"> \u202e reversed & "quoted" '
DROPPED = pa.schema(
    [("id", pa.string()), ("stage", pa.string())]
    + [column for column in VERDICT if column.name not in ("id", "kept")]
    + [("source", pa.string()), ("url", pa.string())]
)
REJECTED = pa.schema([(name, pa.string()) for name in ("file", "record_id", "url", "reason", "detail")])
SHARDS = ("00000", "00001")
BENCHMARK = (
    "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
    "{s}\t0:00:02\t{rss}\t1\t1\t1\t0\t0\t90\t{cpu}\n"
)


def prose(start: int, length: int) -> str:
    return " ".join(WORDS[(start * 7 + at * (1 + start % 5)) % len(WORDS)] for at in range(length))


def documents(shard: str) -> list[dict[str, Any]]:
    rows = []
    for number in range(30):
        text = prose(int(shard) * 100 + number, 40 + number * 9)
        if number == 3:
            text = HOSTILE + text
        url = f"https://example.org/{shard}/{number}?a=1&b=<2>"
        rows.append({"id": document_id(url), "text": text, "source": "crawl", "curated": number % 5 == 0, "url": url})
    rows[11]["text"] = rows[10]["text"].replace("people", "persons")
    rows[12]["text"] = rows[10]["text"]
    return rows


def verdict(rows: list[dict[str, Any]], number: int) -> dict[str, Any] | None:
    """The stage that drops document `number` of a shard, and why."""
    of = rows[number]["id"]
    if number in (3, 4):
        return {"stage": "language", "rule": "score", "value": 0.4, "threshold": 0.65, "rules": ["score"]}
    if number in (6, 7, 8):
        rules = ["few_words", "short_lines"] if number == 6 else ["few_words"]
        return {"id": of, "stage": "heuristics", "rule": "few_words", "value": 42.0, "threshold": 50.0, "rules": rules}
    if number in (11, 12):
        rule, similarity = ("near", 0.87) if number == 11 else ("exact", 1.0)
        return {"stage": "dedup", "rule": rule, "value": similarity, "threshold": 0.8, "rules": [rule],
                "duplicate_of": rows[10]["id"], "similarity": similarity}  # fmt: skip
    if number >= 26:
        return {"stage": "quality", "rule": "fraction", "value": 0.1, "threshold": 0.3, "rules": ["fraction"]}
    return None


def save(root: Path, step: str, task: str = "", files: list[Path] | None = None, **body: Any) -> Path:
    folder = root / step.replace(".", "/")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (f"{task}.manifest.json" if task else "manifest.json")
    Manifest(step=step, fingerprint="0123456789abcdef", **body).write(path, files or [])
    stage, name = step.split(".")
    tsv = root / "benchmarks" / stage / (f"{name}/{task}.tsv" if task else f"{name}.tsv")
    tsv.parent.mkdir(parents=True, exist_ok=True)
    tsv.write_text(BENCHMARK.format(s=2.5, rss=100.0 + len(step), cpu="NA" if task == "00001" else 1.5))
    return path


def counts(kept: int, **dropped: int) -> dict[str, Any]:
    return {"in": kept + sum(dropped.values()), "kept": kept, "dropped": dropped}


def evaluated(root: Path) -> None:
    """Both models' evaluations, as evaluate.model writes them."""
    folder = root / "evaluate/model"
    folder.mkdir(parents=True)
    for model, acc in (("base", 0.26), ("sft", 0.41)):
        text = {"loss": 3.2, "perplexity": 24.5, "bits_per_byte": 1.91, "documents": 4, "bytes": 940, "tokens": 234}
        text |= {
            "by_source": {
                "crawl": {"bits_per_byte": 1.87, "documents": 3, "bytes": 700},
                "books": {"bits_per_byte": 2.04, "documents": 1, "bytes": 240},
            }
        }
        questions = {"acc": acc, "acc_stderr": 0.016, "acc_z": 1.5, "chance": 0.25, "items": 640}
        found = {"model": model, "heldout_text": text, "questions": questions, "tasks": {"results": {}, "files": {}}}
        (folder / f"{model}.evaluation.json").write_text(json.dumps(found), encoding="utf-8")
        rows = [
            {"kind": "prompt", "decoding": "greedy", "prompt": "The page", "text": f"{model} says <b>"},
            {"kind": "question", "decoding": "greedy", "question": "What?", "text": "", "reference": "That."},
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{model}.samples.jsonl").write_text(lines, encoding="utf-8")
        save(root, "evaluate.model", model, sorted(folder.glob(f"{model}.*.json*")))


def build(root: Path) -> Path:
    """`root`, results/main of a small run; its pre-training has 60 metric rows, one of them torn."""
    for shard in SHARDS:
        rows = documents(shard)
        folder = root / "ingest/extract"
        with Writer(folder / f"{shard}.parquet", DOCUMENT) as out:
            for row in rows:
                out.add(row)
        with Writer(folder / f"{shard}.dropped.parquet", REJECTED) as out:
            for number in range(5):
                out.add({"file": "a.warc.gz", "record_id": f"<urn:{shard}{number}>", "url": "https://example.org/<b>",
                         "reason": "empty", "detail": "no text"})  # fmt: skip
        size = sum(len(row["text"].encode()) for row in rows)
        save(root, "ingest.extract", shard, sorted(folder.glob(f"{shard}*.parquet")), counts=counts(30, empty=5),
             summary={"bytes_read": 9000, "text_bytes": size, "by_source": {"crawl": {"documents": 30, "bytes": size}}})  # fmt: skip
        folder = root / "corpus/write"
        verdicts = {number: verdict(rows, number) for number in range(30)}
        with Writer(folder / f"dropped/{shard}.parquet", DROPPED) as out:
            for number, found in verdicts.items():
                if found:
                    out.add({**found, "id": rows[number]["id"], "source": "crawl", "url": rows[number]["url"]})
        kept = [rows[number] for number, found in verdicts.items() if not found]
        for split, part in (("train", kept[2:]), ("validation", kept[:2])):
            with Writer(folder / f"{split}/{shard}.parquet", DOCUMENT) as out:
                for row in part:
                    out.add(row)
        text = {"train": sum(len(r["text"]) for r in kept[2:]), "validation": sum(len(r["text"]) for r in kept[:2])}
        save(root, "corpus.write", shard, sorted(folder.glob(f"*/{shard}.parquet")), counts=counts(19, quality=11),
             summary={"train": {"documents": 17, "bytes": text["train"]}, "validation": {"documents": 2, "bytes": text["validation"]},
                      "lengths": {"kept": {"256": 5, "512": 8, "1024": 6}, "dropped": {"256": 7, "512": 4}},
                      "by_source": {"crawl": {"documents": 19, "bytes": sum(text.values())}}})  # fmt: skip
        encoded = {split: {"tokens": text[split] // 4, "bytes": text[split], "documents": 1} for split in text}
        by_source = {split: {"crawl": part} for split, part in encoded.items()}
        save(root, "tokenize.encode", shard, counts=counts(19), summary={**encoded, "by_source": by_source})
        save(root, "language.select", shard, counts=counts(28, score=2), summary={
            "languages": {"en": 28, "de": 2} if shard == SHARDS[0] else {"en": 28, "de": 1, "fr": 1}})  # fmt: skip
        save(root, "heuristics.select", shard, counts=counts(25, few_words=3),
             summary={"rules": {"few_words": {"dropped": 3, "unique": 2}, "short_lines": {"dropped": 1, "unique": 0}},
                      "thresholds": {"few_words": 50, "short_lines": 0.67}})  # fmt: skip
    save(root, "dedup.select", counts=counts(46, near=2, exact=2), summary={
        "clusters": 2, "cluster_sizes": {"2": 1, "3-4": 1}, "largest": [{"keeper": "a", "size": 3}],
        "pairs": {"verified": 7, "passed": 4, "cut": 0}, "similarity": [0] * 15 + [2, 1, 0, 2, 2]})  # fmt: skip
    save(root, "quality.train", summary={"roc_auc": 0.91, "heldout": {"positives": 4, "negatives": 9}})
    save(
        root, "quality.select", counts=counts(38, fraction=8), summary={"threshold": 0.3, "histogram": [4, 3, 2, 1, 6]}
    )
    save(
        root,
        "tokenize.train",
        summary={"vocabulary": 512, "bytes_per_token": 3.9, "longest_tokens": [" <b>everything"]},
    )
    evaluated(root)
    for stage, model, parameters in (
        ("pretrain", "", {"total": 123456, "non_embedding": 99999}),
        ("finetune", "sft", 123456),
    ):
        folder = root / stage / "train" / model
        folder.mkdir(parents=True)
        lines = [json.dumps({"step": at, "tokens": at * 1000, "loss": 6 - at / 20, "learning_rate": 1e-3 * (60 - at),
                             "grad_norm": 1.0, "tokens_per_second": 5000 + at % 7}) for at in range(1, 61)]  # fmt: skip
        lines += [json.dumps({"step": at, "validation_loss": 6.1 - at / 25, "bits_per_byte": 2.5 - at / 100})
                  for at in range(20, 61, 20)]  # fmt: skip
        (folder / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 61, "lo', encoding="utf-8")
        save(
            root,
            f"{stage}.train",
            model,
            inputs={"pretrain.train": {}} if model else {},
            summary={"parameters": parameters, "tokens": 60000, "steps": 60, "bits_per_byte": 1.9},
        )
    return root


def manifests_of(root: Path) -> list[Path]:
    return sorted(root.rglob("*manifest.json"))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of one's own."""
    return build(tmp_path / "results" / "main")


@pytest.fixture
def manifests(run_folder: Path) -> list[Path]:
    """The manifests of `run_folder`."""
    return manifests_of(run_folder)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The manifests of a run that all tests read and none changes."""
    return manifests_of(build(tmp_path_factory.mktemp("finished") / "results" / "main"))
