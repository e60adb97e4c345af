"""The whole filter on generated documents, and the choice of keepers against a plain reference."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup import band, components, exact, select, sets, signature, verify
from crawl2llm.formats.documents import DOCUMENT, VERDICT, Writer
from crawl2llm.formats.external_partition import Spill
from crawl2llm.text.shingles import normalise, shingles

CONFIG: dict[str, dict[str, Any]] = {
    "signature": {"shingle_words": 2, "numbers": "zero", "permutations": 8, "bands": 4, "rows": 2, "seed": 1},
    "exact": {"earlier": [], "skipped_by": []},
    "band": {"max_candidates": 64},
    "sets": {},
    "verify": {},
    "select": {"threshold": 0.5, "exact": True, "near": True},
}
Document = dict[str, Any]


def named(name: str) -> str:
    """An id of 32 hex digits for a letter or a number; ids sort as their names do."""
    return name.encode().hex().ljust(32, "0")


def run(folder: Path, documents: list[Document], shards: int, config: dict[str, dict[str, Any]]) -> Path:
    """Run all six steps over documents dealt out to `shards` shards; returns the manifest of dedup.select."""
    names = [f"{number:05d}" for number in range(shards)]
    bands = [f"{number:02d}" for number in range(config["signature"]["bands"])]
    files = []
    for number, name in enumerate(names):
        here = [{"source": "test", **row} for row in documents[number::shards]]
        with Writer(folder / "documents" / f"{name}.parquet", DOCUMENT, batch=2) as writer:
            for row in here:
                writer.add(row)
        Manifest("ingest.extract", "test").write(folder / "documents" / f"{name}.manifest.json", [writer.path])
        with Writer(folder / "verdicts" / f"{name}.parquet", VERDICT) as writer:
            for row in here:
                writer.add({"id": row["id"], "kept": not row.get("gone"), "rules": []})
        files.append(writer.path)
    Manifest("heuristics.select", "test").write(folder / "verdicts" / "manifest.json", files)

    def step(name: str, module: Any, manifest: str, **inputs: list[Path]) -> None:
        options = [part for key, paths in inputs.items() for part in (f"--{key}", *map(str, paths))]
        mark = json.dumps({"step": f"dedup.{name}", "config": config[name]})
        assert module.main(["--config", mark, "--manifest", str(folder / name / manifest), *options]) == 0

    def manifests(name: str, tasks: list[str]) -> list[Path]:
        return [folder / name / f"{task}.manifest.json" for task in tasks]

    pages, one = manifests("documents", names), folder / "exact" / "manifest.json"
    for name, page in zip(names, pages, strict=True):
        verdicts = [folder / "verdicts" / "manifest.json"]
        step("signature", signature, f"{name}.manifest.json", documents=[page], verdicts=verdicts)
    signals = manifests("signature", names)
    step("exact", exact, "manifest.json", signals=signals)
    for number in bands:
        step("band", band, f"{number}.manifest.json", signals=signals, exact=[one])
    pairs = manifests("band", bands)
    for name, page, signal in zip(names, pages, signals, strict=True):
        step("sets", sets, f"{name}.manifest.json", pairs=pairs, exact=[one], documents=[page], signals=[signal])
    parts = [f"{number:03d}" for number in range(number_of_parts(shards))]
    for part in parts:
        step("verify", verify, f"{part}.manifest.json", pairs=pairs, sets=manifests("sets", names))
    step("select", select, "manifest.json", signals=signals, exact=[one], pairs=manifests("verify", parts))
    return folder / "select" / "manifest.json"


def verdicts(manifest: Path) -> dict[str, dict[str, Any]]:
    """All verdicts of dedup.select by id."""
    read = Manifest.read(manifest)
    return {row["id"]: row for name in read.files for row in pq.read_table(read.folder / name).to_pylist()}


def jaccard(one: str, other: str, k: int) -> float:
    a, b = (set(shingles(normalise(text), k)) for text in (one, other))
    return len(a & b) / len(a | b)


def order(row: Document) -> tuple[bool, int, str]:
    """The priority as the documentation states it."""
    return not row["curated"], -len(normalise(row["text"]).split()), row["id"]


DOCUMENTS = st.lists(
    st.builds(
        lambda text, curated, gone: {"text": " ".join(text), "curated": curated, "gone": gone},
        st.lists(st.sampled_from("abcd"), min_size=0, max_size=7),
        st.booleans(),
        st.integers(0, 9).map(lambda n: n == 0),
    ),
    max_size=14,
).map(lambda rows: [{**row, "id": f"{number * 7919 % 101:032x}"} for number, row in enumerate(rows)])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS, st.integers(2, 4), st.integers(0, 99))
@pytest.mark.slow  # seconds
def test_whole_stage(tmp_path_factory: Any, documents: list[Document], shards: int, shuffle: int) -> None:
    manifest = run(tmp_path_factory.mktemp("a"), documents, 1, CONFIG)
    found = verdicts(manifest)
    reached = {row["id"]: row for row in documents if not row["gone"]}
    assert found.keys() == reached.keys()

    counts = Manifest.read(manifest).counts
    assert counts["in"] == len(reached) == counts["kept"] + sum(counts.get("dropped", {}).values())
    assert counts["kept"] == sum(row["kept"] for row in found.values())

    for name, verdict in found.items():
        if verdict["kept"]:
            assert (verdict["rule"], verdict["rules"], verdict["duplicate_of"]) == (None, [], None)
            continue
        keeper = verdict["duplicate_of"]
        assert found[keeper]["kept"]
        assert order(reached[keeper]) < order(reached[name])
        texts = reached[name]["text"], reached[keeper]["text"]
        same = 1.0 if texts[0] == texts[1] else jaccard(*texts, 2)
        assert verdict["similarity"] == same >= 0.5
        assert verdict["rules"][0] == verdict["rule"]
        assert verdict["value"] >= verdict["threshold"] == {"exact": 1.0, "near": 0.5}[verdict["rule"]]

    kept_texts = [reached[name]["text"] for name, verdict in found.items() if verdict["kept"]]
    assert len(set(kept_texts)) == len(kept_texts)

    random.Random(shuffle).shuffle(documents)  # noqa: S311 - another order of the input, nothing secret
    assert verdicts(run(tmp_path_factory.mktemp("b"), documents, shards, CONFIG)) == found


def chain(tmp_path: Path, extra: list[Document] | None = None, **options: bool) -> Path:
    """a ~ b (0.67) and b ~ c (0.64), a and c not alike (0.41); a has the most words, then b."""
    words = [f"w{chr(97 + number)}" for number in range(20)]
    texts = {"a": words[:14], "b": words[3:16], "c": words[6:18]}
    documents = [{"id": named(name), "text": " ".join(text), "curated": False} for name, text in texts.items()]
    one = {**CONFIG["signature"], "bands": 8, "rows": 1}
    config = {**CONFIG, "signature": one, "select": {**CONFIG["select"], **options}}
    return run(tmp_path, documents + (extra or []), 2, config)


def test_a_chain_is_not_merged(tmp_path: Path) -> None:
    found = verdicts(chain(tmp_path))
    assert [found[named(name)]["kept"] for name in "abc"] == [True, False, True]
    assert found[named("b")]["duplicate_of"] == named("a")
    assert found[named("b")]["similarity"] == 10 / 15


COPY = {"id": named("z"), "text": " ".join(f"w{chr(97 + number)}" for number in range(3, 16)), "curated": False}  # of b


def test_an_exact_copy_goes_with_its_keeper(tmp_path: Path) -> None:
    row = verdicts(chain(tmp_path, [COPY]))[named("z")]
    assert (row["rule"], row["rules"], row["duplicate_of"]) == ("near", ["near", "exact"], named("a"))
    assert (row["value"], row["threshold"], row["similarity"]) == (10 / 15, 0.5, 10 / 15)


def test_an_exact_copy_is_in_no_pair(tmp_path: Path) -> None:
    pairs = [Manifest.read(chain(tmp_path / str(len(more)), more)).summary["pairs"] for more in ([], [COPY])]
    assert pairs[0] == pairs[1]


def test_either_rule_can_be_off(tmp_path: Path) -> None:
    row = verdicts(chain(tmp_path / "near", [COPY], exact=False))[named("z")]
    assert (row["rule"], row["rules"], row["duplicate_of"]) == ("near", ["near"], named("a"))
    row = verdicts(chain(tmp_path / "exact", [COPY], near=False))[named("z")]
    assert (row["rule"], row["rules"], row["duplicate_of"]) == ("exact", ["exact"], named("b"))
    assert all(row["kept"] for row in verdicts(chain(tmp_path / "none", [COPY], exact=False, near=False)).values())


def test_curated_is_kept_before_longer(tmp_path: Path) -> None:
    short = {"id": named("y"), "text": " ".join(f"w{chr(97 + number)}" for number in range(12)), "curated": True}
    found = verdicts(chain(tmp_path, [short]))
    assert found[named("y")]["kept"]
    assert (found[named("a")]["rule"], found[named("a")]["duplicate_of"]) == ("near", named("y"))


def test_a_source_that_skips_it_takes_no_part(tmp_path: Path) -> None:
    """Its documents are the longest, the curated ones and exact copies; the others have the verdicts that they have without it."""
    config = {**CONFIG, "exact": {"earlier": [], "skipped_by": ["code", "other"]}}
    words = list("abcdefgh")
    web = [{"id": named(f"{n}"), "text": " ".join(words[n % 3 : 6]), "curated": False} for n in range(6)]
    code = [
        {"id": named(f"x{n}"), "text": " ".join(words[: 6 + n // 2]), "source": "code", "curated": n > 1}
        for n in range(4)
    ]
    mixed = run(tmp_path / "mixed", [*code[:2], *web, *code[2:]], 3, config)
    found = verdicts(mixed)
    assert all(found[row["id"]]["kept"] and found[row["id"]]["rules"] == [] for row in code)
    assert {row["id"]: found[row["id"]] for row in web} == verdicts(run(tmp_path / "web", web, 2, CONFIG))
    counts, alone = (Manifest.read(tmp_path / name / "select/manifest.json").counts for name in ("mixed", "web"))
    assert counts == {"in": 10, "kept": alone["kept"] + 4, "dropped": alone["dropped"]} and alone["kept"] < 6
    assert Manifest.read(mixed).summary["source_exempt"] == 4
    everything = run(tmp_path / "all", code, 2, config)
    assert Manifest.read(everything).counts == {"in": 4, "kept": 4, "dropped": {"exact": 0, "near": 0}}
    assert any(not row["kept"] for row in verdicts(run(tmp_path / "none", code, 2, CONFIG)).values())


def test_summary(tmp_path: Path) -> None:
    documents = [{"id": named(f"{n}"), "text": "the same five words here", "curated": False} for n in range(9)]
    documents += [{"id": named("x"), "text": "quite another text altogether", "curated": True}]
    manifest = Manifest.read(run(tmp_path, documents, 3, CONFIG))
    assert manifest.counts == {"in": 10, "kept": 2, "dropped": {"exact": 8, "near": 0}}
    assert manifest.summary["largest"] == [{"keeper": named("0"), "size": 9}]
    assert manifest.summary["cluster_sizes"] == {"9-16": 1}
    assert sum(manifest.summary["similarity"]) == manifest.summary["pairs"]["verified"] == 0


def test_pairs_in_other_parts_than_there_are_tasks_are_refused(tmp_path: Path) -> None:
    chain(tmp_path)
    select_ = {"step": "dedup.select", "config": CONFIG["select"]}
    verified = str(tmp_path / "verify" / "000.manifest.json")
    signals = [str(path) for path in sorted((tmp_path / "signature").glob("*.manifest.json"))]
    options = [
        "--signals",
        *signals,
        "--exact",
        str(tmp_path / "exact" / "manifest.json"),
        "--pairs",
        verified,
        verified,
    ]
    target = tmp_path / "again" / "manifest.json"
    assert select.main(["--config", json.dumps(select_), "--manifest", str(target), *options]) == 1
    assert not target.exists()


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=3, max_size=7), min_size=8, max_size=30), st.data())
@pytest.mark.slow  # seconds
def test_the_same_with_many_parts_of_everything(
    tmp_path_factory: Any, texts: list[list[str]], data: st.DataObject
) -> None:
    """Hash ranges of three documents, blocks of four shingles, components of two pairs, 16 shards: files as with one of each."""
    documents = [
        {"id": f"{n * 7919 % 101:032x}", "text": " ".join(text), "curated": data.draw(st.booleans())}
        for n, text in enumerate(texts)
    ]
    whole = verdicts(run(tmp_path_factory.mktemp("a"), documents, 2, CONFIG))
    small = {
        "crawl2llm.filters.dedup.exact.HELD_DOCUMENTS": 3,
        "crawl2llm.filters.dedup.band.HELD_DOCUMENTS": 3,
        "crawl2llm.filters.dedup.band.CHUNK": 2,
        "crawl2llm.filters.dedup.sets.BLOCK": 4,
        "crawl2llm.filters.dedup.sets.GROUP_SHINGLES": 5,
        "crawl2llm.filters.dedup.select.PAIRS": 3,
        "crawl2llm.formats.document_numbers.PAIRS": 3,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small.items():
            patch.setattr(name, value)
        for function, value in (
            (verify.measure_similarities, 4),
            (components.choose_by_component, 2),
            (Spill.__init__, 100),
        ):
            patch.setattr(function, "__defaults__", (value,))
        assert verdicts(run(tmp_path_factory.mktemp("b"), documents, 16, CONFIG)) == whole


def table(seed: int) -> str:
    """A table of 40 rows of numbers."""
    draw = random.Random(seed)  # noqa: S311
    return "\n".join(f"{draw.randint(1, 99)} {-draw.random():.3f} {draw.randint(1000, 9999):,}" for _ in range(40))


@pytest.mark.parametrize("numbers", ["zero", "keep", "dense"])
def test_tables_of_numbers(tmp_path: Path, numbers: str) -> None:
    """Two tables are copies of each other where a number is 0; a copy of a table, and of a page with another date, are always such."""
    page = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)} and" for n in range(80))
    texts = {
        "a": table(1),
        "b": table(2),
        "c": table(1) + " ",
        "d": f"{page} seen 17 times",
        "e": f"{page} seen 18 times",
    }
    documents = [{"id": named(name), "text": text, "source": "web", "curated": False} for name, text in texts.items()]
    config = {**CONFIG, "signature": {**CONFIG["signature"], "numbers": numbers}}
    manifest = Manifest.read(run(tmp_path, documents, 1, config))
    gone = {row["id"] for row in pq.read_table(manifest.file("00000.parquet")).to_pylist() if not row["kept"]}
    assert (
        gone >= {named("c"), named("e")}
        and (named("b") in gone) == (numbers == "zero")
        and len(gone) == 2 + (numbers == "zero")
    )
    numeric = 2 if numbers == "zero" else 1
    assert manifest.summary["numeric"] == {"web": {"dropped": numeric + 1, "numeric": numeric}}
    (note,) = manifest.summary["notes"]
    assert note.startswith(f"source web: {numeric} of the {numeric + 1} duplicates dropped are mostly numbers; ")
    assert ("dedup.signature.numbers" in note) == (numbers == "zero")


def test_a_few_drops_that_are_mostly_numbers_are_no_note() -> None:
    found = {"web": {"dropped": 100, "numeric": 1}, "tables": {"dropped": 50, "numeric": 1}}
    assert [note.split(":")[0] for note in select.numeric_notes(found, "zero")] == ["source tables"]
