"""Freshness: a result is up to date if its manifest says so, and for no other reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.freshness import MODULES_RENAMED, OLD_VERSION, UNKNOWN_CHANGE, Freshness, fingerprint_differences
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, combine_sources, consumed_inputs, digest, record_inputs

CONTENTS = {"00000": "aa", "00001": "bb"}


def mark(step: str, **config: object) -> str:
    return json.dumps({"step": step, "config": config, "code": {}, "files": {}, "upstream": {}})


class Results:
    """Results of two shards and a lone step, written as steps write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for shard in CONTENTS:
            self.ingest(shard, f"text of {shard}")
        for shard in CONTENTS:
            self.make("language.score", shard, [self.place("ingest.extract", shard)], "scores")
        self.make("language.select", "", [self.place("language.score", shard) for shard in CONTENTS], "verdicts")

    def place(self, step: str, task: str) -> Path:
        folder = self.folder / step.replace(".", "/")
        return folder / (f"{task}.manifest.json" if task else "manifest.json")

    def ingest(self, shard: str, text: str, content: str = "") -> None:
        content = content or CONTENTS[shard]
        self.make("ingest.extract", shard, [], text, {shard: content}, {"sources": {"files": content}})

    def make(
        self, step: str, task: str, inputs: list[Path], text: str, sources: dict | None = None, more: dict | None = None
    ) -> None:
        path = self.place(step, task)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.with_name(f"{task or 'all'}.parquet")
        data.write_text(text)
        with record_inputs() as opened:
            for read in inputs:
                Manifest.read(read).file(read.name.replace("manifest.json", "parquet"))
        made = Manifest(step, digest(mark(step)), inputs={**consumed_inputs(opened), **(more or {})})
        made.sources = combine_sources([sources or {}, *(found.sources for found in opened.values())])
        record.write(path, mark(step), {})
        made.write(path, [data])

    def ask(self, step: str, *tasks: str, contents: dict[str, str] = CONTENTS, **config: object) -> str | None:
        return Freshness(self.place, contents).why_stale(step, tasks or [""], mark(step, **config))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def all_fresh(results: Results) -> bool:
    steps = [("ingest.extract", *CONTENTS), ("language.score", *CONTENTS), ("language.select", "")]
    return not any(results.ask(*step) for step in steps)


def test_complete_results_are_up_to_date(results: Results) -> None:
    assert all_fresh(results)
    manifest = Manifest.read_unchecked(results.place("language.select", ""))
    assert set(manifest.inputs) == {"language.score {00000..00001}"} and set(manifest.sources) == {"all"}
    assert Manifest.read_unchecked(results.place("language.score", "00001")).sources == {"00001": "bb"}


def test_an_edit_is_named_with_both_values(results: Results) -> None:
    assert results.ask("language.select", threshold=0.7) == "threshold not set → 0.7"


def test_results_of_other_settings_are_told_from_those_that_lack_something(results: Results) -> None:
    held = Freshness(results.place, CONTENTS)
    results.place("language.score", "00001").with_name("00001.parquet").unlink()
    assert held.why_stale("language.score", CONTENTS, mark("language.score"))
    assert not held.has_other_fingerprint("language.score", CONTENTS, mark("language.score"))
    assert held.has_other_fingerprint("language.score", CONTENTS, mark("language.score", threshold=0.7))
    assert not held.has_other_fingerprint("quality.score", CONTENTS, mark("quality.score"))  # none there


def test_any_shard_of_a_task_counts(results: Results) -> None:
    results.place("language.score", "00001").unlink()
    assert results.ask("language.score", "00000") is None
    assert results.ask("language.score", "00000", "00001") == "not made yet"


def test_an_input_that_was_made_anew(results: Results) -> None:
    results.ingest("00001", "the same")
    results.ingest("00001", "text of 00001")  # the same bytes again
    assert all_fresh(results)
    results.ingest("00001", "other text")
    assert results.ask("language.score", "00000") is None
    assert results.ask("language.score", "00000", "00001") == "ingest.extract 00001 holds other data"


def test_one_of_many_inputs_is_named(results: Results) -> None:
    """Made anew with other data, with the same, or gone."""
    shards = [f"{number:05d}" for number in range(12)]
    for shard in shards:
        results.make("dedup.sets", shard, [], f"sets of {shard}")
    results.make("dedup.verify", "003", [results.place("dedup.sets", shard) for shard in shards], "pairs")
    assert list(Manifest.read_unchecked(results.place("dedup.verify", "003")).inputs) == ["dedup.sets {00000..00011}"]
    held = Freshness(results.place, CONTENTS)

    def asked() -> str | None:
        held.__post_init__()
        held._manifests.clear()
        held._stale_reasons.clear()
        return held.damage_reason(Manifest.read_unchecked(results.place("dedup.verify", "003")))

    results.make("dedup.sets", "00007", [], "sets of 00007")
    results.place("dedup.sets", "00004").unlink()
    assert "all" not in held.contents and asked() is None
    results.make("dedup.sets", "00007", [], "others")
    assert asked() == "dedup.sets 00007 holds other data"
    body = json.loads(results.place("dedup.verify", "003").read_text())
    body["inputs"] = {"dedup.sets {00000..00011}": {"{}.parquet": "too few"}}
    results.place("dedup.verify", "003").write_text(json.dumps(body))
    assert results.ask("dedup.verify", "003") == "damaged manifest"


def test_a_replaced_source_file(results: Results) -> None:
    now = {**CONTENTS, "00001": "replaced"}
    assert results.ask("ingest.extract", "00000", contents=now) is None
    assert results.ask("language.score", "00000", contents=now) is None
    for step in ("ingest.extract", "language.score"):
        assert str(results.ask(step, "00001", contents=now)).startswith("other source files in shard 00001")
    assert results.ask("language.select", contents=now) == "other source files"


def test_a_step_that_was_deleted_counts_as_unchanged_while_the_sources_are_the_same(results: Results) -> None:
    for shard in CONTENTS:
        results.place("ingest.extract", shard).unlink()
        results.place("language.score", shard).unlink()
    assert results.ask("language.select") is None
    now = {**CONTENTS, "00000": "replaced"}
    assert results.ask("language.select", contents=now) == "other source files"


def test_damage_is_seen_by_size(results: Results) -> None:
    (results.folder / "language/select/all.parquet").unlink()
    assert "is missing" in str(results.ask("language.select"))
    results.place("language.select", "").write_text("{")
    assert results.ask("language.select") == "damaged manifest"


def test_results_of_an_earlier_version_are_named(results: Results) -> None:
    path = results.place("language.select", "")
    body = json.loads(path.read_text())
    del body["inputs"], body["sources"]
    path.write_text(json.dumps(body))
    assert results.ask("language.select") == OLD_VERSION
    path.write_text(json.dumps({**body, "fingerprint": "of then"}))
    record.path_of(path).unlink()
    assert results.ask("language.select") == OLD_VERSION


def test_a_result_without_its_record_is_not_told_key_by_key(results: Results) -> None:
    path = results.place("language.select", "")
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprint": "another"}))
    record.path_of(path).unlink()
    assert results.ask("language.select") == UNKNOWN_CHANGE


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (1, "1", "key 1 → '1'"),
        (True, "True", "key True → 'True'"),
        (0.4, 0.77, "key 0.4 → 0.77"),
        (["words"] * 9, ["words"] * 8 + ["pages"], "key ..., 'words', 'words'] → ..., 'words', 'pages']"),
        ("x" * 60 + "a", "x" * 60 + "b", f"key ...{'x' * 12}a → ...{'x' * 12}b"),
        ("a" + "x" * 60, "b" + "x" * 60, f"key a{'x' * 36}... → b{'x' * 36}..."),
        ("x" * 60, "x" * 60 + "y" * 40, f"key ...{'x' * 12} → ...{'x' * 12}{'y' * 22}..."),
        (None, "null", "key null → 'null'"),
    ],
)
def test_both_sides_of_an_arrow_differ(before: Any, now: Any, words: str) -> None:
    (told,) = fingerprint_differences({"config": {"key": before}}, {"config": {"key": now}})
    assert told == words


def test_modules_that_have_other_names_are_one_line() -> None:
    """Few of many may be new, gone or edited, and are named; if most are gone, the code was renamed."""
    before = {"code": {f"scripts/{name}.py": name for name in "abcd"}, "config": {"key": 1}}
    edited = {"code": {**before["code"], "scripts/a.py": "other", "scripts/e.py": "e"}, "config": {"key": 1}}
    renamed = {"code": {f"scripts/core/{name}.py": name for name in "abcd"}, "config": {"key": 2}}
    assert fingerprint_differences(before, edited) == ["code of scripts/a.py, scripts/e.py"]
    assert fingerprint_differences(before, renamed) == ["key 1 → 2", MODULES_RENAMED]
    assert len(fingerprint_differences(before, renamed, whole=True)[1].split(", ")) == 8, "accept names all"
    assert fingerprint_differences({"code": {}}, renamed)[-1].startswith("code of "), (
        "a result that names no code was made otherwise"
    )
