"""corpus.reference and corpus.heldout: what main holds out, and what is like it, is found in a variant's training text."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import Writer, rows
from crawl2llm.stages.corpus import heldout, reference, write
from crawl2llm.stages.corpus.split_table import DOCUMENT_HELD, NEAR_HELD, ORIGIN_HELD, SPLIT_TABLE
from crawl2llm.text.shingles import jaccard, shingle_set
from tests.unit import making

Row = dict[str, Any]
WORDS = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400)]


def text(seed: int, words: int = 120) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))  # noqa: S311 - not for secrets


def changed(of: str, places: Sequence[int]) -> str:
    """The text with other words at these places."""
    words = of.split()
    for place in places:
        words[place] = f"other{chr(97 + place % 26)}"
    return " ".join(words)


def corpus(
    folder: Path, shards: dict[str, list[tuple[str, str, str]]], hosts: dict[str, str] | None = None, by: str = "origin"
) -> dict[str, Any]:
    """Documents (id, side, text) by shard, as ingest.extract and corpus.split leave them; each of a host of its own, or that of `hosts`."""
    made: dict[str, Any] = {"documents": [], "shards": sorted(shards)}
    files = []
    for shard, found in shards.items():
        given = [
            making.document(name, body, url=f"https://{(hosts or {}).get(name, name)}.org/{name}")
            for name, _, body in found
        ]
        made["documents"].append(making.documents(folder / "documents", given, shard))
        files.append(folder / "split" / f"{shard}.parquet")
        with Writer(files[-1], SPLIT_TABLE) as writer:
            for name, side, _ in found:
                writer.add({"id": name, "split": side})
    made["split"] = folder / "split/manifest.json"
    number = sum(map(len, shards.values()))
    manifest = Manifest("corpus.split", "test", {"in": number, "kept": number, "dropped": {}}, {"by": by})
    manifest.write(made["split"], files)
    return made


def refer(folder: Path, main: dict[str, Any], edits: Sequence[Path] = ()) -> Path:
    """corpus.reference of a main run; returns the manifest's path."""
    out = folder / "reference/manifest.json"
    argv = ["--config", making.config("corpus.reference"), "--documents", *map(str, main["documents"])]
    assert (
        reference.main([*argv, "--split", str(main["split"]), "--edits", *map(str, edits), "--manifest", str(out)]) == 0
    )
    return out


def search(folder: Path, variant: dict[str, Any], of: Path, edits: Sequence[Path] = ()) -> dict[str, Row]:
    """The verdicts of corpus.heldout on all shards of a variant, by id."""
    found: dict[str, Row] = {}
    for path, shard in zip(variant["documents"], variant["shards"], strict=True):
        out = folder / "heldout" / f"{shard}.manifest.json"
        argv = ["--config", making.config("corpus.heldout"), "--documents", str(path), "--split", str(variant["split"])]
        assert heldout.main([*argv, "--reference", str(of), "--edits", *map(str, edits), "--manifest", str(out)]) == 0
        made = Manifest.read(out)
        judged = {row["id"]: row for row in rows(made.file(f"{shard}.parquet"))}
        assert made.counts["in"] == len(judged) == made.counts["kept"] + sum(made.counts["dropped"].values())
        assert made.counts["kept"] == sum(row["kept"] for row in judged.values())
        found |= judged
    return found


def rules(found: dict[str, Row]) -> dict[str, str | None]:
    return {name: row["rule"] for name, row in found.items()}


HELD = {f"held{n}": text(n) for n in range(3)}


@pytest.fixture
def main(tmp_path: Path) -> dict[str, Any]:
    """A main run that holds out three documents, over two shards."""
    held = [(name, "validation", body) for name, body in HELD.items()]
    return corpus(
        tmp_path / "main",
        {"00000": [*held[:2], ("a", "train", text(50))], "00001": [held[2], ("b", "train", text(51))]},
    )


def test_copies_are_found_whatever_stands_between_the_words(tmp_path: Path, main: dict[str, Any]) -> None:
    wrapped = HELD["held1"].replace(" word", "\nWord", 30) + "."
    near, far = changed(HELD["held2"], [0, 60]), changed(HELD["held2"], range(0, 120, 6))
    there = [
        ("exact", HELD["held0"]), ("wrapped", wrapped), ("near", near), ("far", far), ("other", text(99)), ("empty", ""),
        ("half", HELD["held0"][: len(HELD["held0"]) // 3]),
    ]  # fmt: skip
    variant = corpus(tmp_path / "v", {"00000": [(name, "train", body) for name, body in there]})
    found = search(tmp_path, variant, refer(tmp_path, main))
    assert rules(found) == {name: None for name, _ in there} | dict.fromkeys(("exact", "wrapped", "near"), NEAR_HELD)
    assert [found[name]["duplicate_of"] for name in ("exact", "wrapped", "near", "far")] == [
        "held0",
        "held1",
        "held2",
        None,
    ]
    exact = jaccard(shingle_set(near, 5), shingle_set(HELD["held2"], 5))
    assert found["near"]["similarity"] == found["near"]["value"] == exact > 0.8 and found["exact"]["similarity"] == 1
    assert found["near"]["threshold"] == 0.5 > jaccard(shingle_set(far, 5), shingle_set(HELD["held2"], 5)) > 0


def test_what_main_holds_out_and_its_origins_are_found_by_id_and_host(tmp_path: Path, main: dict[str, Any]) -> None:
    sides = [
        ("held0", "train", "another text now"),
        ("page", "train", text(70)),
        ("held1", "validation", HELD["held1"]),
    ]
    variant = corpus(tmp_path / "v", {"00000": sides}, hosts={"page": "held2"})
    found = search(tmp_path, variant, refer(tmp_path, main))
    assert rules(found) == {"held0": DOCUMENT_HELD, "page": ORIGIN_HELD}, "its own validation is not judged"
    assert [found[name]["duplicate_of"] for name in ("held0", "page")] == ["held0", "held2"]


def test_origins_do_not_count_where_main_splits_by_document(tmp_path: Path) -> None:
    main = corpus(tmp_path / "main", {"00000": [("held", "validation", text(1))]}, by="document")
    variant = corpus(tmp_path / "v", {"00000": [("page", "train", text(2))]}, hosts={"page": "held"})
    assert rules(search(tmp_path, variant, refer(tmp_path, main))) == {"page": None}


def test_texts_are_compared_as_they_are_trained_on_and_scored(tmp_path: Path) -> None:
    """Both sides with their edits: a frame of 200 words around a text makes it another one until a filter takes it out."""
    body, frame = text(1), text(2, 200)
    framed, start = f"{frame} {body}", len(frame) + 1
    main = corpus(tmp_path / "main", {"00000": [("held", "validation", framed)]})
    variant = corpus(tmp_path / "v", {"00000": [("copy", "train", body), ("whole", "train", framed)]})
    cut = making.edits(tmp_path / "edits", [("held", 0, start, "", "frame")])
    both = making.edits(tmp_path / "both", [("whole", 0, start, "", "frame")])
    assert rules(search(tmp_path / "1", variant, refer(tmp_path / "1", main))) == {"copy": None, "whole": NEAR_HELD}
    edited = refer(tmp_path / "2", main, [cut])
    assert rules(search(tmp_path / "2", variant, edited)) == {"copy": NEAR_HELD, "whole": None}
    assert rules(search(tmp_path / "3", variant, edited, [both])) == {"copy": NEAR_HELD, "whole": NEAR_HELD}


def test_nothing_held_out(tmp_path: Path) -> None:
    main = corpus(tmp_path / "main", {"00000": [("a", "train", text(1))]})
    assert rules(search(tmp_path, main, refer(tmp_path, main))) == {"a": None}


def test_corpus_write_drops_them_and_says_why(tmp_path: Path, main: dict[str, Any]) -> None:
    sides = [
        ("held0", "train", HELD["held0"]),
        ("copy", "train", HELD["held1"]),
        ("own", "validation", HELD["held1"]),
        ("good", "train", text(90)),
    ]
    variant = corpus(tmp_path / "v", {"00000": sides})
    search(tmp_path, variant, refer(tmp_path, main))
    checked, out = making.checked(tmp_path / "checked", *variant["documents"]), tmp_path / "write/00000.manifest.json"
    argv = ["--documents", str(variant["documents"][0]), "--verdicts", str(checked), "--split", str(variant["split"])]
    argv += ["--heldout", str(tmp_path / "heldout/00000.manifest.json"), "--manifest", str(out)]
    assert write.main(["--config", making.config("corpus.write"), *argv]) == 0
    made = Manifest.read(out)
    assert made.counts == {"in": 4, "kept": 2, "dropped": {f"corpus.{DOCUMENT_HELD}": 1, f"corpus.{NEAR_HELD}": 1}}
    assert [row["id"] for row in rows(made.file("train/00000.parquet"))] == ["good"]
    assert [row["id"] for row in rows(made.file("validation/00000.parquet"))] == ["own"]
    gone = {row["id"]: row for row in rows(made.file("dropped/00000.parquet"))}
    assert (
        gone["copy"]["duplicate_of"] == "held1"
        and gone["copy"]["similarity"] == 1
        and gone["copy"]["stage"] == "corpus"
    )
    assert gone["held0"]["bytes"] == len(HELD["held0"])


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_number_of_shards_finds_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """What is found does not depend on which shard a document is in, on either side."""
    folder = tmp_path_factory.mktemp("any")
    held = [(f"h{n}", "validation", text(n, 60)) for n in range(6)] + [("h6", "validation", text(0, 60))]
    seen = [(f"t{n}", "train", changed(text(n % 8, 60), range(n % 5))) for n in range(24)]
    found = []
    for number in range(2):
        sides = {}
        for name, documents in (("main", held), ("variant", seen)):
            places = data.draw(st.lists(st.integers(0, 2), min_size=len(documents), max_size=len(documents)))
            shards = {f"{n:05d}": [row for row, at in zip(documents, places, strict=True) if at == n] for n in range(3)}
            sides[name] = corpus(folder / str(number) / name, shards)
        found.append(search(folder / str(number), sides["variant"], refer(folder / str(number), sides["main"])))
    one, other = found
    assert one.keys() == other.keys() and all(one[name] == other[name] for name in one)
    assert {row["duplicate_of"] for row in one.values()} >= {"h0", None}, "of equal documents the first id"


def test_what_a_model_wrote_of_a_held_out_document_is_not_trained_on_whatever_main_splits_by(tmp_path: Path) -> None:
    of = refer(
        tmp_path,
        corpus(tmp_path / "main", {"00000": [("d1", "validation", text(1)), ("d2", "train", text(2))]}, by="document"),
    )
    written = [
        making.document(
            f"w{number}",
            text(10 + number),
            url=f"synthesized:{number}",
            metadata=json.dumps({"synthesized": {"seed": f"d{number}", "origin": "example.org"}}),
        )
        for number in (1, 2)
    ]
    variant = corpus(tmp_path / "variant", {"00000": [(row["id"], "train", row["text"]) for row in written]})
    variant["documents"] = [making.documents(tmp_path / "written", written)]
    found = search(tmp_path, variant, of)
    assert (found["w1"]["rule"], found["w1"]["duplicate_of"], found["w2"]["kept"]) == (ORIGIN_HELD, "d1", True)
