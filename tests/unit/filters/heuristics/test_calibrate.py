"""heuristics.calibrate: thresholds of a language from its own distribution."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.chain import steps as steps_of
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.heuristics import calibrate, score, select, thresholds
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.heuristics.rules import Rule
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.formats.documents import Writer, rows
from tests.unit import making

WORDS = Rule("gopher_quality.mean_word_length_max", "gopher_quality_mean_word_length", False, 10)
PUNCTUATED = Rule("fineweb.punctuated_lines_min", "fineweb_punctuated_lines", True, 0.12)
VALUES = st.lists(st.floats(0, 30) | st.integers(0, 30).map(float), min_size=1, max_size=80).map(np.array)


def derived(
    method: str, rule: Rule, own: np.ndarray, reference: np.ndarray, kind: str = "ratio", tail: float = 0.1
) -> float | None:
    return thresholds.derive_threshold(
        method, rule, kind, thresholds.value_histogram(own), thresholds.value_histogram(reference), tail
    )


def dropped(rule: Rule, threshold: float, values: np.ndarray) -> float:
    return float(np.mean(values < threshold if rule.low else values > threshold))


@given(VALUES, VALUES, st.booleans(), st.floats(0, 31))
def test_a_quantile_drops_no_larger_share_than_the_reference_does(
    own: np.ndarray, reference: np.ndarray, low: bool, threshold: float
) -> None:
    rule = Rule("r", "m", low, threshold)
    found = derived("quantile", rule, own, reference)
    assert found is not None and dropped(rule, found, own) <= dropped(rule, threshold, reference) + 1e-9


@given(VALUES, st.booleans(), st.floats(0.01, 0.99))
def test_a_tail_drops_at_most_its_share_and_the_next_bin_would_drop_more(
    own: np.ndarray, low: bool, tail: float
) -> None:
    rule = Rule("r", "m", low, 1.0)
    found = derived("tail", rule, own, own, tail=tail)
    assert found is not None and dropped(rule, found, own) <= tail + 1e-9
    stricter = found * 1.006 + 0.0021 if low else found / 1.006 - 0.0021
    assert (
        dropped(rule, stricter, own) > tail - 1e-9 or len(np.unique(thresholds.bin_indices(own))) == 1 or stricter < 0
    )


@given(VALUES)
def test_the_reference_itself_keeps_its_threshold(own: np.ndarray) -> None:
    for method in ("mean_std", "median_ratio"):
        found = derived(method, WORDS, own, own)
        assert found is None or found == pytest.approx(WORDS.threshold, abs=0.002)


def test_as_many_standard_deviations_from_the_mean() -> None:
    english, finnish = np.random.default_rng(0).normal(5, 0.5, 20_000), np.random.default_rng(1).normal(8, 1.0, 20_000)
    found = derived("mean_std", Rule("r", "m", False, 6.5), finnish, english)
    assert found == pytest.approx(8 + 3 * 1.0, rel=0.02), "6.5 is three deviations above 5"
    assert derived("median_ratio", Rule("r", "m", False, 6.5), finnish, english) == pytest.approx(6.5 * 8 / 5, rel=0.01)
    assert derived("quantile", Rule("r", "m", False, 5.5), finnish, english) == pytest.approx(9.0, rel=0.02)
    assert derived("tail", WORDS, finnish, english) == pytest.approx(8 + 1.2816, rel=0.01)
    assert derived("mean_std", WORDS, finnish, np.full(9, 5.0)) is None, "the reference does not vary"
    assert derived("median_ratio", WORDS, finnish, np.zeros(9)) is None


def test_what_a_threshold_can_be() -> None:
    shares = np.array([0.2, 0.9, 0.95, 1.0])
    assert derived("mean_std", Rule("r", "m", False, 0.99), shares, np.array([0.5, 0.51]), "share") == 1.0
    assert derived("mean_std", Rule("r", "m", True, 0.01), shares, np.array([0.5, 0.51]), "share") == 0.0
    counts = np.array([3.0, 5, 5, 8, 50])
    assert derived("tail", Rule("r", "m", True, 2), counts, counts, "count", 0.2) == 5
    assert derived("tail", Rule("r", "m", False, 2), counts, counts, "count", 0.2) == 8


def test_bins_hold_every_value() -> None:
    values = np.array([0, 0.0005, 0.001, 0.999, 1, 1.002, 10, 12.34, 1e5, 1e9])
    found = thresholds.bin_indices(values)
    assert (np.diff(found) >= 0).all() and found[0] == found[1] == 0 and found[2] == 1
    inside = values[:-1]
    assert (thresholds.EDGES[found[:-1]] <= inside).all() and (inside < thresholds.UPPER[found[:-1]]).all()
    assert thresholds.value_histogram(np.array([np.nan, 0.5])).sum() == 1


def documents(number: int = 60) -> list[dict[str, Any]]:
    """Measures in three languages: English words of 4 to 7 letters, Finnish of 6 to 13, and two Swedish documents."""
    draw = random.Random(3)  # noqa: S311
    found = []
    for place in range(number):
        language, low, high = ("en", 4, 7) if place % 2 else ("fi", 6, 13)
        row = dict.fromkeys(MEASURES, 0) | {"gopher_quality_words": 500, "gopher_quality_alphabetic_words": 1.0}
        row |= {
            "gopher_quality_mean_word_length": draw.uniform(low, high),
            "gopher_quality_stop_words": 4,
            "c4_sentences": 20,
        }
        row |= {"fineweb_punctuated_lines": 0.9}
        found.append({"id": f"{place:03}", "source": "web", "curated": False, "language": language, **row})
    found += [{**found[0], "id": f"sv{number}", "language": "sv"} for number in range(2)]
    return [*found, {**found[0], "id": "book", "curated": True, "gopher_quality_mean_word_length": 90.0}]


def steps(
    folder: Path, shards: list[list[dict[str, Any]]], calibrated: dict[str, Any], chosen: dict[str, Any]
) -> tuple[Manifest, list[Manifest]]:
    """heuristics.calibrate and, of each shard, heuristics.select over these measures."""
    tree = config.validate({"heuristics": {"calibrate": calibrated, "select": chosen}})
    languages = score.pa.schema([("id", score.pa.string()), ("language", score.pa.string())])
    given: dict[str, list[str]] = {"score": [], "language": []}
    for number, part in enumerate(shards):
        for name, schema in (("score", score.SIGNAL), ("language", languages)):
            with Writer(folder / name / f"{number:05}.parquet", schema) as writer:
                for row in part:
                    writer.add({key: row[key] for key in schema.names})
            given[name].append(str(folder / name / f"{number:05}.manifest.json"))
            Manifest(f"{name}.score", "x").write(Path(given[name][-1]), [writer.path])
    made = folder / "calibrate" / "manifest.json"
    argv = [
        "--config",
        fingerprint("heuristics.calibrate", tree),
        "--signals",
        *given["score"],
        "--languages",
        *given["language"],
    ]
    assert calibrate.main([*argv, "--manifest", str(made)]) == 0
    judged = []
    for signals, language in zip(given["score"], given["language"], strict=True):
        out = folder / "select" / Path(signals).name
        argv = ["--config", fingerprint("heuristics.select", tree), "--signals", signals, "--languages", language]
        assert select.main([*argv, "--thresholds", str(made), "--manifest", str(out)]) == 0
        judged.append(Manifest.read(out))
    return Manifest.read(made), judged


CALIBRATED = {"method": "quantile", "least": 10}


def test_thresholds_by_language_are_found_and_used(tmp_path: Path) -> None:
    made, (judged,) = steps(tmp_path, [documents()], CALIBRATED, {})
    found = json.loads(made.file("thresholds.json").read_text())
    assert set(found) == {"fi"} and made.summary["default"] == {"sv": 2}
    assert made.summary["reference_documents"] == 30 and made.summary["documents"] == {"fi": 30}
    assert 12 < found["fi"]["gopher_quality.mean_word_length_max"] < 13.1, (
        "English loses none; the curated 90 does not count"
    )
    assert judged.counts["dropped"].get("gopher_quality.mean_word_length_max", 0) == sum(
        row["gopher_quality_mean_word_length"] > 10 for row in documents() if row["language"] == "sv"
    )
    assert judged.summary["languages"]["fi"] == {"documents": 31, "dropped": 0}
    _, (plain,) = steps(tmp_path / "plain", [documents()], {"method": "quantile", "least": 1000}, {})
    assert plain.counts["dropped"]["gopher_quality.mean_word_length_max"] > 5, (
        "with the config's 10 it is another matter"
    )


def test_the_configs_own_threshold_of_a_language_holds_first(tmp_path: Path) -> None:
    own = {"languages": {"fi": {"gopher_quality": {"mean_word_length_max": 6.5, "words_min": 501}}}}
    _, (judged,) = steps(tmp_path, [documents()], CALIBRATED, own)
    found = {row["id"]: row for row in rows(judged.file("00000.parquet"))}
    assert found["000"]["rules"][0] == "gopher_quality.words_min" and found["000"]["threshold"] == 501
    assert found["001"]["kept"], "English words keep their thresholds"


def test_the_same_thresholds_from_any_number_of_shards(tmp_path: Path) -> None:
    """Whatever the order: means and deviations are those of histograms."""
    for method in ("mean_std", "quantile", "median_ratio", "tail"):
        shuffled = random.Random(5).sample(documents(), len(documents()))  # noqa: S311
        found = []
        for number, shards in enumerate(([documents()], [shuffled[:9], [], shuffled[9:]])):
            made, _ = steps(tmp_path / f"{method}{number}", shards, {**CALIBRATED, "method": method}, {})
            found.append(made.file("thresholds.json").read_bytes())
        assert found[0] == found[1]


def thresholds_of(language: str, settings: SelectSettings, calibrated: dict[str, Any]) -> dict[str, float]:
    """The thresholds of the rules that are active for a language."""
    active = select.Tally(settings, calibrated, {}).active_rules(language)
    return {name: rule.threshold_for(language, settings) for name, rule in active.items()}


def test_rules_of_a_language() -> None:
    settings = SelectSettings(languages={"th": {"c4": {"sentences_min": None, "policy_lines_max": 0.5}}})
    calibrated = {"th": {"c4.sentences_min": 3.0}, "fi": {"c4.sentences_min": 4.0}}
    tally = select.Tally(settings, calibrated, {})
    thai = thresholds_of("th", settings, calibrated)
    assert "c4.sentences_min" not in thai and thai["c4.policy_lines_max"] == 0.5
    assert thresholds_of("fi", settings, calibrated)["c4.sentences_min"] == 4.0
    assert thresholds_of("en", settings, calibrated) == thresholds_of("", settings, calibrated)
    assert "c4.policy_lines_max" in tally.names_of_active_rules()


def test_without_languages_nothing_changes(tmp_path: Path) -> None:
    """heuristics.select of a run that asks for none: the fingerprint, and the summary, have no word of languages."""
    tree = config.validate({})
    assert "languages" not in json.loads(fingerprint("heuristics.select", tree))["config"]
    assert making.config("heuristics.select", []) == fingerprint("heuristics.select", tree)


def test_good_text_of_these_languages_has_looser_thresholds() -> None:
    def of(language: str, **more: Any) -> dict[str, float]:
        return thresholds_of(language, SelectSettings(**more), {})

    assert of("ko")["gopher_quality.mean_word_length_min"] == 1 and of("en")["gopher_quality.mean_word_length_min"] == 3
    assert "fineweb.punctuated_lines_min" not in of("th") and of("zh")["c4.sentences_min"] == 3
    assert of("zh", c4={"sentences_min": 2})["c4.sentences_min"] == 2, "the config's is looser still"
    assert "c4.sentences_min" not in of("zh", c4={"sentences_min": None})
    assert of("zh", languages={"zh": {"c4": {"sentences_min": 7}}})["c4.sentences_min"] == 7


def test_an_english_run_does_not_read_languages_again() -> None:
    def reads(**tree: Any) -> bool:
        return steps_of.is_read("language.score", "heuristics.select", config.validate(tree))

    assert (
        not reads()
        and reads(language={"select": {"languages": ["en", "ko"]}})
        and reads(language={"select": {"languages": []}})
    )
    assert reads(heuristics={"calibrate": {"method": "tail"}})
