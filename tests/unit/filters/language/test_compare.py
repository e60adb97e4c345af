"""language.compare: small real models with labels of both kinds, one code for a language, scripts, and the rules that follow."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core import language_codes
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.language import compare, known_labels, score, select
from crawl2llm.filters.quality.classifier import zeroed_memory
from crawl2llm.formats import language_identifier
from crawl2llm.formats.documents import rows
from crawl2llm.text import unicode_scripts
from tests.unit import making

pytest.importorskip("langcodes")
DATA = Path(os.environ.get("CRAWL2LLM_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
UDHR = DATA / "langid" / "udhr2.zip"
FILES = {"eng_Latn": "eng", "fin_Latn": "fin", "rus_Cyrl": "rus", "cmn_Hani": "cmn_hans", "arb_Arab": "arb"}


@pytest.mark.parametrize(
    ("label", "code"),
    [
        ("en", "en"), ("eng_Latn", "en"), ("arb_Arab", "ar"), ("ar", "ar"), ("cmn_Hani", "zh"), ("zsm_Latn", "ms"), ("pes_Arab", "fa"),
        ("nob_Latn", "no"), ("no", "no"), ("als_Latn", "sq"), ("als", "gsw"), ("gsw_Latn", "gsw"), ("ekk_Latn", "et"), ("swh_Latn", "sw"),
        ("und", "und"), ("no code at all", "und"),
    ],
)  # fmt: skip
def test_one_code_for_a_language(label: str, code: str) -> None:
    assert language_codes.language_code(label) == code


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("en", ("en",)), ("als", ("als",)), ("eng_Latn", ("eng_Latn", "en")), ("cmn_Hani", ("cmn_Hani", "zh")),
        ("als_Latn", ("als_Latn", "sq")), ("hrv_Latn", ("hrv_Latn", "hr")), ("nob_Latn", ("nob_Latn", "nb", "no")), ("x_y", ("x_y",)),
        ("tgl_Latn", ("tgl_Latn", "fil", "tl")), ("fil_Latn", ("fil_Latn", "fil", "tl")),
    ],
)  # fmt: skip
def test_names_of_a_label(label: str, known: tuple[str, ...]) -> None:
    """Of a table by language the narrowest counts; a label of lid.176 is never another's."""
    found = language_codes.label_names(label)
    assert [name for name in found if name in {*known, *known_labels.LID_176.split()}] == list(known)
    assert language_codes.lookup_label(dict.fromkeys(known, 1), label) == 1 and language_codes.is_listed(
        label, known[-1:]
    )
    assert language_codes.lookup_label({"xx": 1}, label) is None


def test_every_label_of_the_bundled_model_has_a_code_and_a_script() -> None:
    """No two of its languages have one code, but for those that are one to other models."""
    found = {label: language_codes.language_code(label) for label in known_labels.LID_176.split()}
    assert "und" not in found.values() and all(unicode_scripts.scripts_of_language(label) for label in found)
    known = set(unicode_scripts.SCRIPTS)
    assert {label for label in found if not unicode_scripts.scripts_of_language(label) <= known} == set()


def test_scripts_of_languages() -> None:
    assert (
        unicode_scripts.scripts_of_language("ja")
        == unicode_scripts.scripts_of_language("jpn_Jpan")
        == {"Hira", "Kana", "Hani"}
    )
    assert unicode_scripts.scripts_of_language("sr") == {"Cyrl", "Latn"} and unicode_scripts.scripts_of_language(
        "srp_Cyrl"
    ) == {"Cyrl"}
    assert unicode_scripts.scripts_of_language("zh") == unicode_scripts.scripts_of_language("cmn_Hani") == {
        "Hani"
    } and unicode_scripts.scripts_of_language("th") == {"Thai"}


def test_letters_by_script() -> None:
    assert unicode_scripts.letters_by_script("Hello, мир 123! 世界 ไทย") == {"Latn": 5, "Cyrl": 3, "Hani": 2, "Thai": 3}
    assert (
        unicode_scripts.majority_script({"Latn": 5, "Cyrl": 3}) == "Latn"
        and unicode_scripts.majority_script({}) is None
    )
    assert (
        unicode_scripts.script_share({"Latn": 3, "Cyrl": 1}, frozenset({"Cyrl"})) == 0.25
        and unicode_scripts.script_share({}, frozenset({"Cyrl"})) is None
    )


@given(st.text(max_size=60))
def test_a_text_has_no_more_letters_than_characters(text: str) -> None:
    counts = unicode_scripts.letters_by_script(text)
    assert sum(counts.values()) <= len(text)
    found = unicode_scripts.script_share(counts, frozenset(unicode_scripts.SCRIPTS))
    assert found is None or found == pytest.approx(1.0)


def declaration(archive: zipfile.ZipFile, name: str) -> list[str]:
    text = archive.read(f"udhr2/{name}.txt").decode().split("---", 1)[-1]
    return [line.strip() for line in text.split("\n") if len(line.strip()) > 20]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fastText model with GlotLID's kind of labels, trained on half of the lines of the Declaration in five languages."""
    import fasttext

    if not UDHR.is_file():
        pytest.skip(f"no {UDHR}: set CRAWL2LLM_DATA to the folder of the real data")
    folder = tmp_path_factory.mktemp("model")
    with zipfile.ZipFile(UDHR) as archive:
        lines = [
            f"__label__{label} {line}" for label, name in FILES.items() for line in declaration(archive, name)[::2]
        ]
    (folder / "train.txt").write_text("\n".join(lines), encoding="utf-8")
    with zeroed_memory():
        made = fasttext.train_supervised(
            str(folder / "train.txt"), minn=1, maxn=3, dim=8, epoch=60, lr=1.0, bucket=20000, thread=1, verbose=0
        )
    made.save_model(str(folder / "own.bin"))
    return folder / "own.bin"


def test_two_models_agree_on_lines_that_neither_was_shown(model: Path) -> None:
    """Across both kinds of labels; a text in a third language is what they differ on."""
    first = language_identifier.Identifier(language_identifier.model_path(language_identifier.BUNDLED))
    other = language_identifier.Identifier(model)
    with zipfile.ZipFile(UDHR) as archive:
        found = [
            compare.language_signals(" ".join(part), first(" ".join(part))[0], [other], True)
            for name in FILES.values()
            for lines in [declaration(archive, name)[1::2]]
            for part in (lines[start : start + 4] for start in range(0, 20, 4))
        ]
        assert sum(row["agreement"] == 1.0 for row in found) >= 0.9 * len(found)
        assert all(row["script_share"] > 0.9 for row in found) and {row["script"] for row in found} == {
            "Latn",
            "Cyrl",
            "Hani",
            "Arab",
        }
        polish = " ".join(declaration(archive, "pol")[:9])
        assert compare.language_signals(polish, "pl", [other], True)["agreement"] == 0.5


def test_steps_drop_what_models_differ_on_and_what_is_in_another_script(model: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(UDHR) as archive:
        texts = {label: " ".join(declaration(archive, name)[1:9]) for label, name in FILES.items()}
        texts["pol"] = " ".join(declaration(archive, "pol")[1:9])
    texts["mixed"] = texts["eng_Latn"] + " " + texts["cmn_Hani"] + " " + texts["rus_Cyrl"] * 2
    documents = making.documents(tmp_path / "extract", [making.document(name, text) for name, text in texts.items()])
    verdicts = making.checked(tmp_path / "checked", documents)
    tree = {"language": {
        "compare": {"models": [str(model)], "script": True},
        "select": {"languages": [], "threshold": 0, "agreement_min": 1, "script_min": 0.8},
    }}  # fmt: skip
    complete = config.validate(tree)
    known_labels.check_language_filter(complete["language"])
    mark = {step: fingerprint(f"language.{step}", complete) for step in ("score", "compare", "select")}
    out = {step: tmp_path / step / "00000.manifest.json" for step in mark}
    texts_of = ["--documents", str(documents), "--verdicts", str(verdicts)]
    assert score.main(["--config", mark["score"], *texts_of, "--manifest", str(out["score"])]) == 0
    argv = ["--config", mark["compare"], *texts_of, "--languages", str(out["score"])]
    assert compare.main([*argv, "--manifest", str(out["compare"])]) == 0
    argv = ["--config", mark["select"], "--signals", str(out["score"]), "--compared", str(out["compare"])]
    assert select.main([*argv, "--manifest", str(out["select"])]) == 0
    made = Manifest.read(out["select"])
    found = {row["id"]: row for row in rows(made.file("00000.parquet"))}
    assert {name for name, row in found.items() if row["kept"]} == set(FILES)
    assert (found["pol"]["rules"], found["pol"]["value"], found["pol"]["threshold"]) == (["agreement_min"], 0.5, 1)
    assert "script_min" in found["mixed"]["rules"]
    assert made.counts["kept"] == 5


def test_a_rule_without_what_it_compares_is_refused() -> None:
    for key, lack in (("agreement_min", "models"), ("script_min", "script")):
        complete = config.validate({"language": {"select": {key: 0.5}}})
        with pytest.raises(InputError, match=f"language.select.{key} is 0.5, and language.compare.{lack}"):
            known_labels.check_language_filter(complete["language"])
