"""toxicity: listed words as wholes and in scripts without spaces, shares, classifiers. The listed words here are harmless."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality.classifier import zeroed_memory
from crawl2llm.filters.toxicity import score, select
from crawl2llm.filters.toxicity.classifiers import Classifier
from crawl2llm.filters.toxicity.settings import ScoreClassifier
from crawl2llm.filters.toxicity.terms import Lists, Terms, files_by_language
from crawl2llm.formats.documents import Writer, rows
from tests.unit import making

LISTS = {
    "en": "Turnip\nsour plum\nsour plum jam\nt-bone\n🥦\n",
    "de": "Rübe\nPflaume\n",
    "zh": "萝卜\nleek\n",
    "th": "หัวไชเท้า\n",
    "hi": "मूली\n",
    "README.md": "Turnip is a word\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in LISTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("language", "text", "words", "hits"),
    [
        ("en", "A TURNIP, two turnips; turnip's leaf.", 7, {"turnip": 2}),
        ("en", "Sour plum jam is no sour plum, nor a plum.", 10, {"sour plum jam": 1, "sour plum": 1}),
        ("en", "A T-bone, not tbone", 5, {"t bone": 1}),
        ("en", "Eat🥦now", 2, {"🥦": 1}),
        ("de", "Die RÜBE und die Rübensuppe", 5, {"rübe": 1}),
        ("zh", "我喜欢萝卜汤，leeks和leek。", 9, {"萝卜": 1, "leek": 1}),
        ("th", "ฉันชอบหัวไชเท้ามาก", len("ฉันชอบหัวไชเท้ามาก"), {"หัวไชเท้า": 1}),
        ("hi", "मूली और मूलीवाला", 3, {"मूली": 1}),
        ("fr", "Un turnip", 2, {}),
        ("eng_Latn", "A turnip", 2, {"turnip": 1}),
        ("cmn_Hani", "我喜欢萝卜汤", 6, {"萝卜": 1}),
        ("en", "", 0, {}),
    ],
)
def test_hits(folder: Path, language: str, text: str, words: int, hits: dict[str, int]) -> None:
    assert Lists([str(folder)], [])(text, language) == (words, hits)


def test_files_are_called_by_languages(folder: Path) -> None:
    (folder / "fr-CA-u-sd-caqc").write_text("navet\n")
    (folder / "fr.txt").write_text("prune\n")
    found = files_by_language([str(folder)])
    assert sorted(found) == ["de", "en", "fr", "hi", "th", "zh"] and len(found["fr"]) == 2
    with pytest.raises(InputError, match="has no file that is called by a language's code"):
        files_by_language([str(folder / "none")])
    with pytest.raises(InputError, match=r"toxicity\.score\.always has 'xx'; .* has lists of de, en"):
        Lists([str(folder)], ["xx"])


def test_entries_that_do_not_count(folder: Path) -> None:
    (folder / "pl").write_text("13.\nrzepa\n")
    assert Lists([str(folder)], [], {"pl": ["Rzepa"]})("rzepa 13 i 13.", "pl") == (4, {"13.": 1}), (
        "a number alone is no listed word"
    )


def test_lists_for_all_documents(folder: Path) -> None:
    lists = Lists([str(folder)], ["en"])
    assert lists("Turnip und Rübe", "de")[1] == {"turnip": 1, "rübe": 1}
    assert lists("Turnip", "xx")[1] == {"turnip": 1} and lists.documents_without_list == {"de": 0, "xx": 1}


@given(st.lists(st.sampled_from(["turnip", "sour", "plum", "jam", "and"]), max_size=12))
def test_single_words_are_counted_as_a_loop_counts_them(words: list[str]) -> None:
    made = Terms([])
    made.phrases, made.firsts = {"turnip": [("turnip",)], "jam": [("jam",)]}, frozenset({"turnip", "jam"})
    number, hits = made(", ".join(words))
    assert number == len(words) and hits.total() == sum(word in ("turnip", "jam") for word in words)


def test_time_is_in_proportion_to_the_text(folder: Path) -> None:
    lists = Lists([str(folder)], [])
    for part, language in (("sour ", "en"), ("sour plum ", "en"), ("萝", "zh"), ("a", "en"), ("\u0301", "en")):
        start = time.process_time()
        lists(part * (400_000 // len(part)), language)
        assert time.process_time() - start < 2, part


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fastText model of two labels, trained on harmless words."""
    import fasttext

    folder = tmp_path_factory.mktemp("model")
    lines = ["__label__toxic turnip plum radish", "__label__clean bread cheese water"] * 50
    (folder / "train.txt").write_text("\n".join(lines))
    with zeroed_memory():
        made = fasttext.train_supervised(
            str(folder / "train.txt"), epoch=60, lr=0.2, dim=8, bucket=100, thread=1, verbose=0
        )
    made.save_model(str(folder / "model.bin"))
    return folder / "model.bin"


def test_a_classifier(model: Path, tmp_path: Path) -> None:
    entry = ScoreClassifier(name="hate", path=str(model), label="toxic")
    ask = Classifier(0, entry)
    assert ask("turnip\nradish") > 0.9 > 0.1 > ask("bread cheese") and ask(" \n") == 0
    assert Classifier(0, entry.model_copy(update={"label": "__label__toxic"}))("turnip") == ask("turnip")
    with pytest.raises(InputError, match=r"classifiers\[1\]\.label is 'nsfw'; .* has __label__clean, __label__toxic"):
        Classifier(1, entry.model_copy(update={"label": "nsfw"}))
    (tmp_path / "x.bin").write_text("no model")
    with pytest.raises(InputError, match=r"classifiers\[0\]\.path: .* is not a fastText model"):
        Classifier(0, entry.model_copy(update={"path": str(tmp_path / "x.bin")}))


def made(
    tmp_path: Path, given: list[dict[str, Any]], scored: dict[str, Any], **settings: Any
) -> dict[str, dict[str, Any]]:
    """Verdicts by id of both steps; scored: settings of toxicity.score."""
    documents = making.documents(tmp_path / "documents", given)
    verdicts = making.checked(tmp_path / "check", documents)
    languages = tmp_path / "language/00000.parquet"
    with Writer(languages, pa.schema([("id", pa.string()), ("language", pa.string())])) as writer:
        for row in given:
            writer.add({"id": row["id"], "language": "en"})
    Manifest("language.score", "test").write(languages.with_name("00000.manifest.json"), [languages])
    signals, out = (tmp_path / name / "00000.manifest.json" for name in ("score", "select"))
    argv = ["--config", making.config("toxicity.score", **scored), "--documents", str(documents)]
    argv += ["--verdicts", str(verdicts), "--languages", str(languages.with_name("00000.manifest.json"))]
    assert score.main([*argv, "--manifest", str(signals)]) == 0
    config = making.config("toxicity.select", ["free"], **settings)
    assert select.main(["--config", config, "--signals", str(signals), "--manifest", str(out)]) == 0
    return {row["id"]: row for row in rows(Manifest.read(out).file("00000.parquet"))}


GIVEN = [
    making.document("cook", "A turnip soup: one turnip, two turnip leaves. " + "And water. " * 20),
    making.document("worse", "Turnip, sour plum, T-bone and so on."),
    making.document("clean", "Bread and cheese."),
    making.document("book", "Turnip, sour plum.", curated=True),
    making.document("skips", "Turnip, sour plum.", source="free"),
]


def test_both_steps(folder: Path, tmp_path: Path) -> None:
    found = made(tmp_path / "a", GIVEN, {"lists": [str(folder)]})
    assert {name for name, row in found.items() if not row["kept"]} == {"worse"}, (
        "one word alone, however often, drops nothing"
    )
    assert (found["worse"]["rule"], found["worse"]["value"]) == ("share", 3 / 8)
    as_c4 = made(tmp_path / "b", GIVEN, {"lists": [str(folder)]}, terms_max=0, share_max=None)
    assert {name: row["value"] for name, row in as_c4.items() if not row["kept"]} == {"cook": 1, "worse": 3}
    as_roots = made(tmp_path / "c", GIVEN, {"lists": [str(folder)]}, share_terms_min=1)
    assert {name for name, row in as_roots.items() if not row["kept"]} == {"cook", "worse"}


def test_classifiers_and_their_thresholds(model: Path, tmp_path: Path) -> None:
    entry = {"name": "hate", "path": str(model), "label": "toxic"}
    scored = {"classifiers": [entry, {**entry, "name": "clean", "label": "clean"}]}
    given = [making.document("bad", "turnip plum"), making.document("good", "bread cheese")]
    found = made(tmp_path / "a", given, scored, thresholds={"clean": 1.0})
    assert [(row["kept"], row["rule"], row["detail"]) for row in found.values()] == [
        (False, "classifier", "hate"),
        (True, None, None),
    ]
    assert Manifest.read(tmp_path / "a/score/00000.manifest.json").summary["notes"] == []
    made(tmp_path / "b", given, {})
    assert (
        "neither lists nor classifiers" in Manifest.read(tmp_path / "b/score/00000.manifest.json").summary["notes"][0]
    )
