"""topics.count: documents and bytes of each topic before each filter and dropped by it, as counted one by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from crawl2llm.formats.documents import parquet_file, rows
from crawl2llm.stages.topics import count
from tests.unit import making
from tests.unit.stages.topics.test_score import scored
from tests.unit.stages.topics.test_train import trained


def test_counts_are_those_of_a_loop(crawl: list[Path], tmp_path: Path) -> None:
    model = trained(tmp_path / "train", crawl, [], by="all")
    topics = scored(tmp_path / "score", crawl[0], model, [])
    signals = {row["id"]: row for row in rows(parquet_file(topics))}
    ids = {"00000": list(signals)}
    made = [making.checked(tmp_path / "check", crawl[0])]
    made += making.judged(tmp_path / "some", ids, lambda name: "7" in name, "url.select")
    ids["00000"] = [name for name in ids["00000"] if "7" not in name]
    made.append(making.verdicts(tmp_path / "other", ids, lambda name: name.startswith("sea"), "dedup.select"))
    argv = ["--config", making.config("topics.count"), "--topics", str(topics), "--verdicts", *map(str, made)]
    assert count.main([*argv, "--manifest", str(tmp_path / "count/00000.manifest.json")]) == 0
    wanted = Counter[tuple[str, str, int, str]]()
    for step, path in zip(("ingest.check", "url.select", "dedup.select"), made, strict=True):
        for verdict in rows(parquet_file(path, "00000")):
            of = signals[verdict["id"]]
            for name, by in (("documents", 1), ("bytes", of["bytes"])):
                wanted[step, of["topic"], of["part"], name] += by
                if not verdict["kept"]:
                    wanted[step, of["topic"], of["part"], "dropped" if by == 1 else "dropped_bytes"] += by
    found = Counter(
        {
            (row["step"], row["topic"], row["part"], name): row[name]
            for row in rows(tmp_path / "count/00000.parquet")
            for name in ("documents", "bytes", "dropped", "dropped_bytes")
        }
    )
    assert +found == +wanted
    assert sum(found[key] for key in found if key[0] == "dedup.select" and key[3] == "dropped") > 0


def test_documents_without_a_topic_are_counted_too(tmp_path: Path) -> None:
    documents = making.documents(tmp_path, [making.document("one", "")])
    model = trained(tmp_path / "train", [documents], [], by="all")
    topics = scored(tmp_path / "score", documents, model, [])
    argv = ["--config", making.config("topics.count"), "--topics", str(topics)]
    argv += ["--verdicts", str(making.checked(tmp_path / "check", documents))]
    assert count.main([*argv, "--manifest", str(tmp_path / "count/00000.manifest.json")]) == 0
    (row,) = rows(tmp_path / "count/00000.parquet")
    assert row["topic"] == "other" and row["documents"] == 1 and row["bytes"] == 0
