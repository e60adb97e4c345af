"""topics.train: a sample by hash, topics by language, and a map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import MAP
from crawl2llm.filters.language.score import SIGNAL
from crawl2llm.formats.documents import Writer, parquet_file, rows
from crawl2llm.stages.topics import train
from crawl2llm.stages.topics.train import sample_ids
from tests.unit import making


def languages(folder: Path, documents: list[Path], unseen: str = "") -> list[Path]:
    """What language.score would write: `zh` for the Chinese documents, `en` for others; nothing of `unseen`."""
    made = []
    for path in documents:
        out = folder / path.name
        with Writer(folder / f"{parquet_file(path).name}", SIGNAL) as writer:
            for row in rows(parquet_file(path), ["id"]):
                language = "zh" if row["id"].startswith(("food", "rail")) else "en"
                if row["id"] != unseen:
                    writer.add({"id": row["id"], "source": "web", "language": language, "score": 1.0, "characters": 1})
        Manifest("language.score", "test").write(out, [folder / parquet_file(path).name])
        made.append(out)
    return made


def trained(folder: Path, documents: list[Path], spoken: list[Path], **settings: Any) -> Path:
    settings = {"clusters": 3, "least": 50, "dimensions": 10, **settings}
    argv = ["--config", making.config("topics.train", **settings), "--documents", *map(str, documents)]
    assert train.main([*argv, "--languages", *map(str, spoken), "--manifest", str(folder / "manifest.json")]) == 0
    return folder / "manifest.json"


def test_each_language_has_topics_of_its_own(crawl: list[Path], tmp_path: Path) -> None:
    made = Manifest.read(trained(tmp_path / "train", crawl, languages(tmp_path, crawl)))
    assert made.summary["documents"] == {"en": 120, "zh": 60} and made.summary["left_out"] == {}
    assert sorted(made.summary["topics"]) == ["en-01", "en-02", "en-03", "zh-01", "zh-02", "zh-03"]
    assert [made.summary["topics"][f"en-0{number}"]["documents"] for number in (1, 2, 3)] == [40, 40, 40]
    points = list(rows(made.file(MAP)))
    assert len(points) == 180 and all(0 <= row["x"] <= 1 and 0 <= row["y"] <= 1 for row in points)


def test_a_language_with_few_documents_has_none(crawl: list[Path], tmp_path: Path) -> None:
    made = Manifest.read(trained(tmp_path / "train", crawl, languages(tmp_path, crawl), least=100, map=0))
    assert made.summary["documents"] == {"en": 120} and made.summary["left_out"] == {"zh": 60}
    assert not list(rows(made.file(MAP)))


def test_all_documents_together(crawl: list[Path], tmp_path: Path) -> None:
    made = Manifest.read(trained(tmp_path / "train", crawl, [], by="all", clusters=5))
    assert made.summary["documents"] == {"all": 180} and set(made.summary["topics"]) == {
        f"topic-0{n}" for n in range(1, 6)
    }


def test_no_documents_are_no_error(tmp_path: Path) -> None:
    made = Manifest.read(trained(tmp_path / "train", [making.documents(tmp_path, [])], [], by="all"))
    assert made.summary["topics"] == {} and "no topics" in made.summary["notes"][0]


def test_the_sample_depends_on_ids_alone(crawl: list[Path]) -> None:
    whole = sample_ids(crawl, 60, 0)
    assert 30 < sum(map(len, whole.values())) < 90
    names = [name for ids in whole.values() for name in ids]
    for path in crawl:
        every = [row["id"] for row in rows(parquet_file(path), ["id"])]
        share = 60 / 180 * len(every)
        assert sample_ids([path], round(share), 0)[path] == [name for name in every if name in names]
    assert sample_ids(crawl, 60, 1) != whole


def test_the_same_bytes_again(crawl: list[Path], tmp_path: Path) -> None:
    spoken = languages(tmp_path, crawl)
    one, other = (trained(tmp_path / name, crawl, spoken) for name in ("one", "other"))
    assert Manifest.read(one).files == Manifest.read(other).files
