"""Which documents are seeds, how they are cut into passages, what is refused before a run, and what a fingerprint tracks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config as configuration
from crawl2llm.chain import fingerprint, steps
from crawl2llm.chain.project import Project
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.formats.documents import uniform_hash
from crawl2llm.stages.ingest.settings import ExtractSettings, ExtractSource
from crawl2llm.stages.ingest.text import TextReader
from crawl2llm.stages.synthesize.passages import passages
from crawl2llm.stages.synthesize.prompts import Seed
from crawl2llm.stages.synthesize.seeds import Seeds
from crawl2llm.stages.synthesize.settings import SeedSources
from crawl2llm.workflow.project_checks import check_project
from tests.unit.stages.synthesize.writing import corpus, page, settings

STEP = "synthesize.rephrase"


def found(named: dict[str, Any], folder: Path, seed: int = 0) -> tuple[list[Seed], Counter[str]]:
    """The seeds that `named` chooses, in their order, and the counts."""
    seeds = Seeds(SeedSources(**named), seed, f"{STEP}.seeds")
    folder.mkdir()
    files, total = seeds.write_seeds(folder, lambda _: 1)
    made = list(seeds.seeds_in_order(files))
    assert total == len(made) + seeds.counts["repeated"]
    return made, seeds.counts


def test_seeds_are_chosen_and_ordered_by_hash(tmp_path: Path) -> None:
    rows = [page(number) for number in range(300)]
    where = str(corpus(tmp_path / "corpus", {"00000": {"train": rows[:200]}, "00001": {"train": rows[200:]}}))
    every, counts = found({"corpus": [where]}, tmp_path / "a")
    places = {row["id"]: uniform_hash(0, row["id"], "seeds") for row in rows}
    assert [seed.id for seed in every] == sorted(places, key=lambda name: places[name]) and counts["chosen"] == 300
    some, _ = found({"corpus": [where], "share": 0.2}, tmp_path / "b")
    assert some == every[: len(some)] and 40 <= len(some) <= 80
    for number in (1, 7, 300, 999):
        few, counts = found({"corpus": [where], "number": number}, tmp_path / f"n{number}")
        assert few == every[:number] and counts["documents"] == 300
    both, _ = found({"corpus": [where], "number": 100, "share": 0.2}, tmp_path / "c")
    assert both == some[:100]
    other, _ = found({"corpus": [where]}, tmp_path / "d", seed=1)
    assert other != every and set(other) == set(every)


def test_a_document_that_is_there_twice_is_one_seed(tmp_path: Path) -> None:
    one = corpus(tmp_path / "one", {"00000": {"train": [page(number) for number in range(5)]}})
    other = corpus(tmp_path / "other", {"00000": {"train": [page(number) for number in range(3, 9)]}})
    made, counts = found({"corpus": [str(one), str(other)]}, tmp_path / "a")
    assert len({seed.id for seed in made}) == len(made) == 9 and counts["repeated"] == 2
    few, _ = found({"corpus": [str(one), str(other)], "number": 4}, tmp_path / "b")
    assert few == made[:4]


def test_files_have_the_ids_and_origins_that_a_source_of_the_same_name_has(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"books/{name}.txt").write_text(
            "\n\n".join(f"Paragraph {n} of book {name}, of eight words." for n in range(20))
        )
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "A row.", "url": "https://www.e.org/1"}) + "\nbroken\n")
    entries = [
        {"name": "books", "kind": "text", "path": str(tmp_path / "books"), "chunk_words": 40},
        {"name": "rows", "kind": "jsonl", "path": str(tmp_path / "rows.jsonl")},
    ]
    made, counts = found({"files": entries}, tmp_path / "out")
    assert counts["rejected"] == 1 and counts["chosen"] == len(made) == 9
    read = TextReader(ExtractSource(name="books", kind="text", chunk_words=40), ExtractSettings())
    pages = [one for name in ("a", "b") for one in read(tmp_path / f"books/{name}.txt", f"{name}.txt")]
    assert {one.id for one in pages} < {seed.id for seed in made}  # type: ignore[union-attr]
    assert {seed.origin for seed in made} == {"file:books/a.txt", "file:books/b.txt", "e.org"}


def test_what_is_no_corpus_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"synthesize\.rephrase\.seeds\.corpus: .*empty: no manifests in it"):
        found({"corpus": [str(tmp_path / "empty")]}, tmp_path / "a")
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(0)]}})
    (where / "train/00000.parquet").unlink()
    with pytest.raises(InputError, match=r"corpus: .*00000\.parquet is missing"):
        found({"corpus": [str(where)]}, tmp_path / "b")


@given(st.text(alphabet="ab .!\n。", max_size=400), st.integers(1, 50))
def test_passages_are_the_text(text: str, most: int) -> None:
    made = list(passages(text, most))
    assert all(0 < len(piece) <= most and piece == piece.strip() for piece in made)
    assert "".join("".join(made).split()) == "".join(text.split())


def test_where_passages_end() -> None:
    text = "One two three. Four five six seven.\n\nEight nine ten. Eleven twelve.\nThirteen."
    first, *rest = passages(text, 40)
    assert first == "One two three. Four five six seven." and rest == ["Eight nine ten. Eleven twelve.\nThirteen."]
    assert list(passages(text, 39))[1:] == ["Eight nine ten. Eleven twelve.", "Thirteen."]
    assert list(passages(text, 25))[:2] == ["One two three.", "Four five six seven."]
    assert list(passages("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5]


def config(**changes: Any) -> dict[str, Any]:
    """A config with a synthesized source, and `changes` laid over synthesize.rephrase."""
    source = {"name": "written", "kind": "synthesized", "step": STEP}
    return {
        "ingest": {"extract": {"sources": [{"name": "demo", "kind": "crawl"}, source]}},
        "synthesize": {"rephrase": {"model": "m", **changes}},
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, r"synthesize\.rephrase\.seeds names nothing: set"),
        ({"model": None}, r"synthesize\.rephrase\.model is null: name the model"),
        ({"styles": {}}, r"synthesize\.rephrase\.styles is empty"),
        ({"request": {"stream": True}}, r"synthesize\.rephrase\.request has 'stream', which the step sets"),
        ({"refusals": ["("]}, r"synthesize\.rephrase\.refusals\[0\] is '\(', no regular expression"),
        ({"budget": {"money": 3}}, r"synthesize\.rephrase\.budget\.money is 3, and synthesize\.rephrase\.prices are 0"),
        ({"seeds": {"corpus": ["results/main/corpus/write"]}}, r"seeds\.corpus has '.*', a result of this run"),
        ({"seeds": {"corpus": ["elsewhere"]}}, r"seeds\.corpus is 'elsewhere': no manifests in it, or no such folder"),
    ],
)
def test_what_a_plan_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    seeds = (
        {} if not changes or "seeds" in changes else {"seeds": {"corpus": [str(corpus(tmp_path / "c", {"00000": {}}))]}}
    )
    with pytest.raises((ConfigError, InputError), match=told):
        check_project(Project(configuration.validate(config(**seeds, **changes))))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"kind": "synthesized"}, "a source of kind synthesized has a `step`"),
        ({"kind": "crawl", "step": STEP}, "no other has one"),
        ({"kind": "synthesized", "step": STEP, "paths": ["a"]}, r"paths: a source of kind synthesized has none"),
    ],
)
def test_what_is_refused_of_a_source(source: dict[str, Any], told: str) -> None:
    given_ = configuration.validate({"ingest": {"extract": {"sources": [{"name": "a", **source}]}}})
    with pytest.raises(ConfigError, match=told):
        Project(given_)


def test_a_prompt_without_the_text_and_two_sources_of_a_step_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"text with \{text\}"):
        configuration.validate(config(styles={"easy": "Write."}))
    where = corpus(tmp_path / "c", {"00000": {}})
    made = config(seeds={"corpus": [str(where)]})
    made["ingest"]["extract"]["sources"].append({"name": "more", "kind": "synthesized", "step": STEP})
    with pytest.raises(
        ConfigError, match=r"sources\[2\]\.step is synthesize\.rephrase, which .*sources\[1\] already uses"
    ):
        check_project(Project(configuration.validate(made)))


def test_what_is_tracked(tmp_path: Path) -> None:
    """A run without such a source has no such step; the seeds' manifests and files are in the fingerprint, the endpoint is not."""
    plain = configuration.validate({})
    assert not set(steps.SYNTHESIZE) & set(steps.used_steps(plain)) and "synthesize" not in json.dumps(
        [fingerprint.tracked_settings(step, plain) for step in steps.used_steps(plain)]
    )
    where = corpus(tmp_path / "c", {"00000": {"train": [page(0)]}})
    before = settings(STEP, where)
    assert settings(STEP, where, endpoint="http://127.0.0.1:9/v1", requests=3, cache="x", key="K") == before
    assert settings(STEP, where, temperature=0) != before != settings(STEP, where, budget={"tokens": 5})
    corpus(tmp_path / "c", {"00000": {"train": [page(1)]}})
    assert settings(STEP, where) != before
    (tmp_path / "a.txt").write_text("one")
    files = {"files": [{"name": "a", "kind": "text", "path": str(tmp_path / "a.txt")}]}
    before = settings(STEP, files)
    (tmp_path / "a.txt").write_text("two")
    assert settings(STEP, files) != before
    used = configuration.validate(config(seeds={"corpus": [str(where)]}))
    assert steps.used_steps(used)[:3] == ["crawl.render", STEP, "ingest.extract"]
    assert (STEP, "") in steps.upstream_tasks("ingest.extract", used)
