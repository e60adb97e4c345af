"""pii.score and pii.select: places in the original text, masks, documents that are dropped; the same in pairs from files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.pair_masks import pii_masks
from crawl2llm.filters.pii import score, select
from crawl2llm.filters.pii.settings import PiiSettings
from crawl2llm.formats import spans, surviving_texts
from crawl2llm.formats.documents import Writer, rows
from crawl2llm.stages.align.pairs import Task, rows_with_split
from crawl2llm.stages.finetune.pairs import from_files
from crawl2llm.stages.finetune.settings import PairsSettings
from crawl2llm.training.template import Template
from tests.unit import making

TEXTS = {
    "one": "Write to anna@example.com.",
    "none": "Nothing here: version 1.2.3.4.",
    "many": "a@example.com b@example.com c@example.com tel 030 23125 123",
}


def made(
    tmp_path: Path, texts: dict[str, Any], edits: Path | None = None, skipped: str = "", **settings: Any
) -> Manifest:
    """Both steps over documents; settings: of pii.select."""
    given = [value if isinstance(value, dict) else making.document(name, value) for name, value in texts.items()]
    documents = making.documents(tmp_path / "documents", given)
    verdicts = making.checked(tmp_path / "check", documents)
    languages = tmp_path / "language/00000.parquet"
    with Writer(languages, pa.schema([("id", pa.string()), ("language", pa.string())])) as writer:
        for row in given:
            writer.add({"id": row["id"], "language": "de"})
    Manifest("language.score", "test").write(languages.with_name("00000.manifest.json"), [languages])
    argv = ["--config", making.config("pii.score"), "--documents", str(documents), "--verdicts", str(verdicts)]
    argv += [
        "--languages",
        str(languages.with_name("00000.manifest.json")),
        *(["--edits", str(edits)] if edits else []),
    ]
    signals, out = (tmp_path / name / "00000.manifest.json" for name in ("score", "select"))
    assert score.main([*argv, "--manifest", str(signals)]) == 0
    config = making.config("pii.select", [skipped] if skipped else [], **settings)
    assert select.main(["--config", config, "--signals", str(signals), "--manifest", str(out)]) == 0
    return Manifest.read(out)


def left(tmp_path: Path, *before: Path) -> dict[str, str]:
    """What a later filter reads."""
    paths = [tmp_path / name / "00000.manifest.json" for name in ("documents", "select")]
    return {row["id"]: row["text"] for row in surviving_texts.texts(paths[0], paths[1], [*before, paths[1]], [])}


def test_masks(tmp_path: Path) -> None:
    manifest = made(tmp_path, TEXTS)
    assert manifest.counts == {"in": 3, "kept": 3, "dropped": {}}
    assert manifest.summary["masked"] == {"email_address": 4, "phone_number": 1}
    assert left(tmp_path) == {
        "one": "Write to <EMAIL_ADDRESS>.",
        "none": TEXTS["none"],
        "many": "<EMAIL_ADDRESS> <EMAIL_ADDRESS> <EMAIL_ADDRESS> tel <PHONE_NUMBER>",
    }
    signals = Manifest.read(tmp_path / "score/00000.manifest.json")
    assert signals.summary == {"found": {"email_address": {"": 4}, "phone_number": {"DE": 1}}}
    held = signals.file("found/00000.parquet").read_bytes() + signals.file("00000.parquet").read_bytes()
    assert b"example.com" not in held, "where it is, never what it is"


def test_actions_placeholders_and_thresholds(tmp_path: Path) -> None:
    options = {"placeholder": "|||{kind}|||", "replacements": {"phone_number": ""}, "total_max": 3}
    manifest = made(tmp_path / "a", TEXTS, **options)
    assert manifest.counts == {"in": 3, "kept": 2, "dropped": {"total_max": 1}}
    assert left(tmp_path / "a")["one"] == "Write to |||EMAIL_ADDRESS|||."
    manifest = made(tmp_path / "b", TEXTS, actions={"email_address": "drop", "phone_number": "keep"}, drop_from=3)
    assert (
        manifest.counts["dropped"] == {"email_address": 1}
        and left(tmp_path / "b")["one"] == "Write to <EMAIL_ADDRESS>."
    )
    row = next(row for row in rows(manifest.file("00000.parquet")) if not row["kept"])
    assert (row["id"], row["value"], row["threshold"]) == ("many", 3, 3)
    manifest = made(tmp_path / "c", TEXTS, actions={"email_address": "keep"}, replacements={"phone_number": ""})
    assert left(tmp_path / "c")["many"].endswith("c@example.com tel ") and manifest.summary["masked"] == {
        "phone_number": 1
    }


def test_curated_documents_are_masked_and_stay_and_a_source_that_skips_it_is_left_as_it_is(tmp_path: Path) -> None:
    texts = {
        "book": making.document("book", TEXTS["many"], curated=True),
        "wiki": making.document("wiki", TEXTS["many"], source="wiki"),
    }
    manifest = made(tmp_path, texts, skipped="wiki", total_max=0)
    assert manifest.counts["kept"] == 2 and manifest.summary["source_exempt"] == 1
    assert left(tmp_path)["book"].startswith("<EMAIL_ADDRESS>") and left(tmp_path)["wiki"] == TEXTS["many"]


def test_places_are_those_of_the_original_text(tmp_path: Path) -> None:
    text = "Menu\nText, and anna@example.com.\nMenu\nb@example.com"
    edits = making.edits(tmp_path / "lines", [("page", 0, 5, "", "menu"), ("page", 33, 38, "", "menu")])
    made(tmp_path, {"page": text}, edits)
    found = list(rows(Manifest.read(tmp_path / "select/00000.manifest.json").file("spans/00000.parquet")))
    assert [text[row["start"] : row["end"]] for row in found] == ["anna@example.com", "b@example.com"]
    assert left(tmp_path, edits) == {"page": "Text, and <EMAIL_ADDRESS>.\n<EMAIL_ADDRESS>"}
    assert spans.EditedText(text, []).text == text


SETTINGS = {name: configuration.validate({})["pii"][name] for name in ("score", "select")}


def lines(path: Path, *given: dict[str, Any]) -> dict[str, Any]:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return {"path": str(path), "heldout": 0}


def test_pairs_from_files(tmp_path: Path) -> None:
    pairs = [
        {"question": "Who is anna@example.com?", "answer": "Call +49 30 23125 123."},
        {"question": "Why?", "answer": "Since version 1.2.3.4."},
        {"question": "Key?", "answer": "AK" + "IAQ7Z3M2X5K4W6R7T2"},
    ]
    entries = [lines(tmp_path / "a.jsonl", *pairs)]
    settings = PairsSettings(files=entries, seed=1, template="Q: {question}\nA: {answer}")
    assert pii_masks(None) is None
    dropping = {**SETTINGS, "select": {**SETTINGS["select"], "actions": {"secret": "drop"}}}
    mask, dropped = pii_masks(PiiSettings.model_validate(dropping)), Counter[str]()
    assert mask is not None
    found = list(from_files(settings, "train", dropped, mask))
    assert [(row["question"], row["answer"]) for row in found] == [
        ("Who is <EMAIL_ADDRESS>?", "Call <PHONE_NUMBER>."),
        ("Why?", "Since version 1.2.3.4."),
    ]
    assert dropped == {"personal_data": 1} and mask.masked_counts == {"email_address": 1, "phone_number": 1}
    assert [row["answer"] for row in from_files(settings, "train", Counter())] == [row["answer"] for row in pairs]


def test_preferences_from_files(tmp_path: Path) -> None:
    told = [
        {"prompt": "Mail of Bob?", "chosen": "bob@example.com, of course.", "rejected": "No."},
        {"prompt": "Which?", "chosen": "a@example.com", "rejected": "b@example.com"},
    ]
    settings = {"files": [lines(tmp_path / "p.jsonl", *told)], "seed": 1, "pii": SETTINGS}
    dropped, mask = Counter[str](), pii_masks(PiiSettings.model_validate(SETTINGS))
    found = [
        row
        for _, row in rows_with_split(
            Task.model_validate(settings), Path(), Template.parse("Q: {question}\nA: {answer}"), dropped, mask=mask
        )
    ]
    assert [(row["chosen"], row["rejected"]) for row in found] == [("<EMAIL_ADDRESS>, of course.", "No.")]
    assert dropped == {"same_answers": 1}, "they differed in what is masked alone"


@pytest.mark.parametrize("step", ["finetune.pairs", "align.pairs"])
def test_pairs_are_told_of_the_filter_only_where_a_run_uses_it(step: str) -> None:
    """A run without it has the fingerprint that it had."""
    edited = {"pii": {"select": {"placeholder": "X"}}}
    without, with_ = {}, {"filters": ["language", "pii", "dedup"]}
    assert fingerprint(step, configuration.validate(without)) == fingerprint(step, configuration.validate(edited))
    used = json.loads(fingerprint(step, configuration.validate({**with_, **edited})))
    assert used["config"]["pii"]["select"]["placeholder"] == "X"
    of_filter = {name for name in used["code"] if name.startswith("scripts/crawl2llm/filters/pii/")}
    assert of_filter <= {"scripts/crawl2llm/filters/pii/__init__.py"}, "its code is in the corpus's fingerprint"
