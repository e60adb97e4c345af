"""The steps: what is collected, found, dropped and cut, the counts, and the accuracy with found items apart."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain.config import validate
from crawl2llm.chain.filter_order import DECONTAMINATE, edit_steps
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.steps import used_steps
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.filters.decontaminate import cuts, index, items, score, select
from crawl2llm.filters.decontaminate.pairs import Guard
from crawl2llm.filters.pair_masking import GuardSettings
from crawl2llm.filters.pair_masks import pii_masks
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import document_id, rows
from crawl2llm.stages.align.pairs import Task, rows_with_split
from crawl2llm.stages.evaluate import found
from crawl2llm.stages.finetune.pairs import from_files
from crawl2llm.stages.finetune.settings import PairsSettings
from crawl2llm.training.template import Template
from crawl2llm.workflow.config_checks import check_decontaminated
from tests.unit import making

FIRST = "Which of these four animals of the savannah sleeps for the shortest time in each night, as far as anybody has measured it?"
SECOND = "A train leaves the northern station at nine and meets a slower train from the south at noon; how far apart were they at ten?"
PAGE = "This page tells of many things that have happened in the town, and of people who live there. " * 4


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """decontaminate.index over a local file of two items and one that is too short."""
    file = tmp_path / "own.jsonl"
    asked = [(FIRST, "The giraffe"), (SECOND, "240 km"), ("Why?", "So.")]
    file.write_text("".join(json.dumps({"q": question, "a": answer}) + "\n" for question, answer in asked))
    out = tmp_path / "index/manifest.json"
    config = making.config("decontaminate.index", files=[{"path": str(file), "question": ["q"], "answer": "a"}])
    assert index.main(["--config", config, "--manifest", str(out)]) == 0
    return out


def run(folder: Path, indexed: Path, *skipped: str, **settings: Any) -> tuple[Path, Path]:
    """(documents, manifest of select) over a page with an item, one with two, a clean one, and one of the source `books`."""
    texts = {
        "one": ("web", f"{PAGE}\n{FIRST.upper()} The giraffe!\n{PAGE}"),
        "two": ("web", f"{FIRST} {SECOND}"),
        "clean": ("web", PAGE),
        "book": ("books", f"{PAGE} {SECOND}"),
    }
    given = [making.document(name, text, source=source) for name, (source, text) in texts.items()]
    documents = making.documents(folder / "documents", given)
    verdicts = making.checked(folder / "check", documents)
    scored, selected = (folder / name / "00000.manifest.json" for name in ("score", "select"))
    argv = ["--documents", str(documents), "--verdicts", str(verdicts), "--index", str(indexed)]
    assert score.main(["--config", making.config("decontaminate.score"), *argv, "--manifest", str(scored)]) == 0
    config = making.config("decontaminate.select", skipped, **settings)
    assert select.main(["--config", config, "--signals", str(scored), "--manifest", str(selected)]) == 0
    return documents, selected


def test_index(indexed: Path) -> None:
    made = Manifest.read(indexed)
    assert made.counts == {"in": 3, "kept": 2, "dropped": {"short": 1}}
    assert made.summary["sets"] == {"own": {"items": 3, "short": 1}}
    assert made.summary["search"] == {"method": "ngram", "words": 13, "short_words": 8}
    assert items.read_items(indexed)[0][0].id == document_id("own", canonical_json([FIRST, "The giraffe"]), "0")


def test_drop(tmp_path: Path, indexed: Path) -> None:
    documents, selected = run(tmp_path, indexed, "books")
    made = Manifest.read(selected)
    assert made.counts == {"in": 4, "kept": 2, "dropped": {"overlap_max": 2}}
    assert made.summary["fates"] == {"dropped": 2, "cut": 0, "left": 1} and made.summary["source_exempt"] == 1
    assert made.summary["sets"] == {"own": {"documents": 3, "matches": 4}}
    kept = list(surviving_texts.texts(documents, selected, [selected], []))
    assert [row["id"] for row in kept] == ["clean", "book"] and kept[1]["text"].endswith(SECOND)
    (told,) = [row for row in rows(made.file("found/00000.parquet")) if row["id"] == "one"]
    text = f"{PAGE}\n{FIRST.upper()} The giraffe!\n{PAGE}"
    assert text[told["start"] : told["end"]] == f"{FIRST.upper()} The giraffe" and told["fate"] == "dropped"
    assert (told["set"], told["overlap"], told["answered"], told["url"]) == (
        "own",
        1.0,
        True,
        "https://example.org/one",
    )


def test_cut(tmp_path: Path, indexed: Path) -> None:
    """The item alone goes; of a document that is hardly anything else, the document."""
    documents, selected = run(tmp_path, indexed, action="cut")
    made = Manifest.read(selected)
    assert made.counts == {"in": 4, "kept": 3, "dropped": {"cut_max": 1}}
    texts = {row["id"]: row["text"] for row in surviving_texts.texts(documents, selected, [selected], [])}
    assert texts["one"] == f"{PAGE}\n!\n{PAGE}" and texts["clean"] == PAGE and "train" not in texts["book"]
    assert made.summary["fates"] == {"dropped": 1, "cut": 2, "left": 0}


@pytest.mark.parametrize("gone", ["", "Removed by a filter before. " * 40])
def test_the_share_that_is_cut_is_of_the_text_that_was_searched(tmp_path: Path, indexed: Path, gone: str) -> None:
    """Whatever an earlier filter took out of the midst of an item counts for nothing."""
    item = f"{FIRST[:60]}{gone}{FIRST[60:]} The giraffe"
    documents = making.documents(tmp_path / "documents", [making.document("one", f"{PAGE}{item}. {PAGE}")])
    verdicts = making.checked(tmp_path / "check", documents)
    edits = making.spans_of(tmp_path / "lines", {"one": [(len(PAGE) + 60, len(PAGE) + 60 + len(gone), "")]})
    scored, selected = (tmp_path / name / "00000.manifest.json" for name in ("score", "select"))
    argv = ["--documents", str(documents), "--verdicts", str(verdicts), "--edits", str(edits), "--index", str(indexed)]
    assert score.main(["--config", making.config("decontaminate.score"), *argv, "--manifest", str(scored)]) == 0
    config = making.config("decontaminate.select", action="cut", cut_max=0.2)
    assert select.main(["--config", config, "--signals", str(scored), "--manifest", str(selected)]) == 0
    assert Manifest.read(selected).summary["fates"] == {"dropped": 0, "cut": 1, "left": 0}
    (text,) = (row["text"] for row in surviving_texts.texts(documents, selected, [edits, selected], []))
    assert text == f"{PAGE}. {PAGE}"


def test_masks_hide_no_item() -> None:
    """Decontamination reads what stood there; all else reads the placeholders."""
    filters = ["language", "lines", "pii", "dedup", DECONTAMINATE]
    assert edit_steps(filters, DECONTAMINATE) == ["lines.score"]
    assert edit_steps(filters, "dedup") == ["lines.score", "pii.select"]
    assert edit_steps(filters) == ["lines.score", "pii.select", "decontaminate.select"]


def test_a_threshold_that_no_overlap_is_above_drops_nothing(tmp_path: Path, indexed: Path) -> None:
    made = Manifest.read(run(tmp_path, indexed, overlap_max=1)[1])
    assert made.counts == {"in": 4, "kept": 4, "dropped": {}} and made.summary["sets"] == {}


def test_found(tmp_path: Path, indexed: Path) -> None:
    _, selected = run(tmp_path, indexed, "books")
    names = {one.questions[0].split()[0]: one.id for one in items.read_items(indexed)[0]}
    public = tmp_path / "public/base.manifest.json"
    public.parent.mkdir()
    lines = [{"task": "own", "id": names[word], "right": word != "why"} for word in ("which", "a", "why")]
    lines += [{"task": "own", "id": "other", "right": False}, {"task": "copa", "id": "x", "right": True}]
    public.with_name("base.items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Manifest("evaluate.public", "test").write(public, [public.with_name("base.items.jsonl")])
    out = tmp_path / "found/manifest.json"
    argv = ["--index", str(indexed), "--selected", str(selected), "--public", str(public), "--manifest", str(out)]
    assert found.main(["--config", making.config("evaluate.found"), *argv]) == 0
    told = Manifest.read(out)
    assert told.counts == {"in": 2, "kept": 0, "dropped": {"found": 2}}
    by = {line["item"]: (line["fate"], line["documents"]) for line in told.rows("found.jsonl")}
    assert by == {names["which"]: ("removed", 2), names["a"]: ("left", 2)}
    parts = told.summary["tasks"]["own"]["base"]
    assert {name: part["items"] for name, part in parts.items()} == {
        "all": 4,
        "not_found": 1,
        "removed": 1,
        "left": 1,
        "short": 1,
    }
    assert parts["all"]["accuracy"] == 0.5 and parts["removed"]["accuracy"] == 1 and parts["not_found"]["accuracy"] == 0
    assert told.summary["not_searched"] == ["copa"]
    assert told.summary["notes"][0].startswith("Evaluated, and not searched for in the training text: copa")


def test_pairs_from_files_of_an_evaluation_set_are_dropped_and_counted_by_set(tmp_path: Path, indexed: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    pairs = [(FIRST, "The giraffe"), ("Who wrote the old book on the shelf?", "Nobody knows who."), ("Say it:", SECOND)]
    file.write_text("".join(json.dumps({"instruction": q, "input": "", "output": a}) + "\n" for q, a in pairs))
    given = PairsSettings(files=[{"path": str(file), "layout": "alpaca", "heldout": 0}])
    dropped = Counter[str]()
    kept = list(from_files(given, "train", dropped, guard=Guard(indexed, GuardSettings(overlap_max=None))))
    assert [row["answer"] for row in kept] == ["Nobody knows who."] and dropped == {"in_own": 2}
    assert len(list(from_files(given, "train", dropped, guard=Guard(None, None)))) == 3
    with pytest.raises(InputError, match="does not use the filter decontaminate"):
        Guard(indexed, None)


def test_preferences_that_hold_an_item_are_dropped_though_it_is_masked(tmp_path: Path, indexed: Path) -> None:
    mail = "Write to the station master, whose address is station.master@example-railway.org, when the last train leaves the town"
    own = tmp_path / "mails.jsonl"
    own.write_text(json.dumps({"q": mail, "a": "tonight"}) + "\n")
    out = tmp_path / "mails/manifest.json"
    asked = making.config(
        "decontaminate.index", files=[{"path": str(own), "question": ["q"], "answer": "a"}], words=20, short_words=8
    )
    assert index.main(["--config", asked, "--manifest", str(out)]) == 0
    file = tmp_path / "preferences.jsonl"
    row = {"instruction": mail, "input": "", "chosen": "Yes, I will.", "rejected": "No, never."}
    file.write_text(json.dumps(row) + "\n")
    full = validate({})
    entry = {"path": str(file), "layout": "preference", "heldout": 0}
    given = {**full["align"]["pairs"], "files": [entry], "decontaminate": {"overlap_max": None}, "pii": full["pii"]}
    template, dropped = Template.parse(full["finetune"]["pairs"]["template"]), Counter[str]()
    settings = Task.model_validate(given)
    mask = pii_masks(settings.pii)
    found = rows_with_split(settings, tmp_path, template, dropped, mask=mask, guard=Guard(out, settings.decontaminate))
    assert list(found) == [] and dropped == {"in_mails": 1}
    ((_, kept),) = rows_with_split(settings, tmp_path, template, Counter(), mask=pii_masks(settings.pii))
    assert "station.master" not in kept["question"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda one: (one[0], sum(one)))))
def test_places_are_joined_without_a_character_more_or_less(spans: list[tuple[int, int]]) -> None:
    found = cuts.merge_spans(spans)
    assert {at for span in found for at in range(*span)} == {at for span in spans for at in range(*span)}
    assert all(before[1] < after[0] for before, after in pairwise(found))


def test_a_run_without_anything_to_search_for_has_no_step_of_it_and_the_same_fingerprints() -> None:
    without = validate({"filters": ["language", "heuristics", "dedup", "quality"]})
    assert used_steps(validate({})) == used_steps(without)
    assert all(fingerprint(step, validate({})) == fingerprint(step, without) for step in used_steps(without))


def test_what_is_evaluated_is_searched_for_or_the_run_refused(tmp_path: Path) -> None:
    asked = {"evaluate": {"public": {"presets": ["copa"]}}}
    order = {"filters": ["language"]}
    with pytest.raises(ConfigError, match=r"evaluate.public.presets is \['copa'\], and filters.* lacks decontaminate"):
        check_decontaminated(validate(asked | order))
    check_decontaminated(validate(asked))
    check_decontaminated(validate(asked | order | {"decontaminate": {"index": {"tasks": []}}}))
    assert "decontaminate.score" in used_steps(validate(asked)) and "evaluate.found" in used_steps(validate(asked))
    assert "decontaminate.score" not in used_steps(validate(asked | {"decontaminate": {"index": {"tasks": []}}}))


def test_tasks_that_are_fixed_are_those_of_before_whatever_else_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "b.jsonl").write_text("{}\n")
    data = {name: str(tmp_path / f"{name}.jsonl") for name in "ab"}
    before = validate({"evaluate": {"public": {"presets": ["copa"], "data": [data["a"]]}}})
    fixed = {"decontaminate": {"index": {"tasks": ["copa"], "data": [data["a"]]}}}
    after = validate(
        {"evaluate": {"public": {"presets": ["piqa", "copa"], "data": [data["a"], data["b"]], "limit": 5}}, **fixed}
    )
    assert fingerprint("pretrain.train", before) == fingerprint("pretrain.train", after)
    other = validate({"evaluate": {"public": {"presets": ["piqa", "copa"], "data": [data["a"]]}}})
    assert fingerprint("pretrain.train", before) != fingerprint("pretrain.train", other)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"other": "x"}\n', "column 'text' is None; it must be text. The row has other"),
        ("no json\n", "line 1: not JSON"),
        ("", "no items"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, said: str) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(written)
    config = making.config("decontaminate.index", files=[{"path": str(file)}])
    assert index.main(["--config", config, "--manifest", str(tmp_path / "out/manifest.json")]) == 1
    assert said in capsys.readouterr().err
