"""The commands over the complete tiny run: every document's way, a step's batch, what was read, and a takedown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from crawl2llm.__main__ import main
from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.commands.trace import data_order, document, takedown, words
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from crawl2llm.filters.url import score as url_score
from crawl2llm.filters.url import select as url_select
from tests.workflow.conftest import TINY


@pytest.fixture
def results(complete: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.chdir(complete)
    return Results([TINY])


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--configfile", str(TINY), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_document_is_followed_to_where_it_was_dropped_or_trained_on(results: Results) -> None:
    order = data_order.training_order(results)
    dropped: dict[str, dict[str, Any]] = {}
    written: dict[str, str] = {}
    for shard in results.shards:
        made = Manifest.read(results.manifest_path("corpus.write", shard))
        dropped |= {row["id"]: row for row in pq.read_table(made.file(f"dropped/{shard}.parquet")).to_pylist()}
        for split in ("train", "validation"):
            written |= dict.fromkeys(pq.read_table(made.file(f"{split}/{shard}.parquet"))["id"].to_pylist(), split)
    stages = set()
    for shard, path in results.shard_tables("ingest.extract"):
        for row in pq.read_table(path).to_pylist():
            ((found,), _) = document.find_documents(results, row["id"])
            assert (found["text"], found["shard"]) == (row["text"], shard)
            way = list(document.document_journey(results, found, order))
            last = way[-1]
            if gone := dropped.get(row["id"]):
                assert last["step"].startswith(f"{gone['stage']}.") and not last.get("kept", False)
                assert {key: last.get(key) for key in ("rule", "value")} == {
                    key: gone[key] for key in ("rule", "value")
                }
                stages.add(gone["stage"])
            else:
                split = next(one for one in way if one["step"] == "corpus.split")["split"]
                assert split == written[row["id"]] and (last["step"] == "pretrain.train") == (split == "train")
    assert {"language", "dedup", "quality"} <= stages


def test_a_document_by_its_address(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    path = results.manifest_path("corpus.write", "00000").parent / "train/00000.parquet"
    row = pq.read_table(path).to_pylist()[0]
    (found,) = asked(capsys, "trace", row["url"])["documents"]
    assert found["id"] == row["id"] and found["steps"][-1]["step"] == "pretrain.train"
    assert main(["trace", row["url"], "--configfile", str(TINY)]) == 0
    assert f"document {row['id']}" in capsys.readouterr().out


def test_a_duplicate_is_shown_beside_its_keeper(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [pq.read_table(path).to_pylist() for _, path in results.shard_tables("dedup.select")]
    row = next(row for table in tables for row in table if row["rule"] == "near")
    (found,) = asked(capsys, "trace", row["id"])["documents"]
    assert found["steps"][-1]["keeper"]["id"] == row["duplicate_of"]
    assert main(["trace", row["id"], "--configfile", str(TINY)]) == 0
    assert f"keeper {row['duplicate_of']}" in capsys.readouterr().out
    assert document.side_by_side("a\nb\nc", "a\nx\nc", 1) == ["a   a", "b | x", "c   c"]


def test_what_ingest_dropped(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [pq.read_table(path).to_pylist() for _, path in results.shard_tables("ingest.extract", ".dropped")]
    row = next(row for table in tables for row in table if row["url"])
    assert row["reason"] in {one["reason"] for one in asked(capsys, "trace", row["url"])["dropped"]}


def test_a_step_and_a_token(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "trace", "--step", "3")
    assert len(found["windows"]) == 8 and found["window"] == 129
    assert sum(one["tokens"] for one in found["documents"]) == found["tokens"] <= 8 * 129
    assert len({one["id"] for one in found["documents"]}) == len(found["documents"])
    piece = found["documents"][0]
    base, _, _ = data_order.training_order(results).file_of(piece["shard"], piece["source"])
    token = asked(capsys, "trace", "--tokens", f"{piece['shard']}:{piece['source']}:{piece['stream'][0][0] - base}")
    assert token["document"]["id"] == piece["id"] and 3 in token["read_at"]
    assert piece["text"] and token["document"]["url"] == piece["url"]


def test_the_step_that_stands_out(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "trace", "--spike")
    assert found["step"] == found["spikes"][0]["step"] and len(found["spikes"]) == 5
    assert found["documents"] == asked(capsys, "trace", "--step", str(found["step"]))["documents"]


def test_what_is_said_of_spikes_and_of_old_settings() -> None:
    def said(*deviations: float) -> list[str]:
        spiked = [{"step": 9, "loss": 2.0, "deviations": one} for one in deviations]
        found = {"step": 9, "windows": [1], "window": 5, "tokens": 5, "documents": [], "spikes": spiked}
        return list(words.answer_lines(found))[:-1]

    none = said(1.5, -0.5)
    assert none[0] == "no step stands out (3 standard deviations); the largest:"
    assert "1.5 standard deviations above" in none[1] and "0.5 standard deviations below" in none[2]
    assert len(said(4.0, 1.5)) == 1 and "4.0 standard deviations above" in said(4.0, 1.5)[0]
    assert len(list(words.stale_lines(list("abcde")))) == 5
    *_, last = told = list(words.stale_lines(list("abcdefgh")))
    assert len(told) == 6 and last.startswith("and 3 more; is this the config") and "--configfile" in last


def test_all_that_was_read(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    order = data_order.training_order(results)
    names, tokens = set[str](), set[int]()
    for step in range(1, 41):
        places = order.places_of(order.windows_of(step))
        names |= {piece.document for piece in order.pieces_in(places)}
        tokens |= {at for start, end in places for at in range(start, end)}
    found = asked(capsys, "trace", "--until", "40")
    assert (found["documents"], found["distinct_tokens"]) == (len(names), len(tokens))
    assert found["tokens_read"] == 40 * 8 * 129 >= found["distinct_tokens"]
    assert asked(capsys, "trace", "--until", "1")["distinct_tokens"] <= 8 * 129
    for by in ("by_source", "by_host"):
        assert sum(one["documents"] for one in found[by].values()) == len(names)
        assert sum(one["tokens"] for one in found[by].values()) == len(tokens)


def test_who_wrote(results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = results.manifest_path("corpus.write", "00000").parent / "train/00000.parquet"
    row = pq.read_table(path).to_pylist()[2]
    words = " ".join(row["text"].split()[5:25])
    found = asked(capsys, "who-wrote", f"Nobody ever put it so: {words}")
    assert row["id"] in {one["id"] for one in found["matches"]}
    assert found["longest"] == found["words"] - 5 and found["covered"] >= found["longest"]
    text, folder = f"Nobody ever put it so: {words}", tmp_path / "run"
    folder.mkdir()
    for name in ("results", "config.yaml"):
        (folder / name).symlink_to(Path.cwd() / name)  # what is built lies beside the results
    by_index = asked(capsys, "who-wrote", text, "--index", "--directory", str(folder))
    assert (by_index["by"], found["by"]) == ("index", "scan")
    assert by_index == {**found, "by": "index"} == asked(capsys, "who-wrote", text, "--directory", str(folder))
    # A config that was edited since: the answer is about the corpus that is there.
    assert found["stale"] == []
    other = tmp_path / "other.yaml"
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    other.write_text(yaml.safe_dump(merge_dicts(tree, nest_value("heuristics.select.gopher_quality.words_min", 31))))
    assert main(["who-wrote", text, "--configfile", str(other)]) == 0
    assert "not of today's settings: heuristics.select: " in capsys.readouterr().out


def test_a_takedown_finds_what_the_edit_drops(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "takedown.txt"
    found = asked(capsys, "forget", "--domain", "packaging.docs.demo.example", "--write", str(listed))
    touched = {one["id"] for one in found["documents"]}
    assert touched and found["by_variant"]["main"]["training_tokens"] > 0 and found["models"] == ["base", "sft"]
    assert (
        found["runs_again"]["main"][:2] == ["url.score", "url.select"]
        and found["runs_again"]["main"][-1] == "report.render"
    )
    whole = configuration.validate(configuration.merge_dicts(results.config, found["edit"]))
    dropped = set()
    for shard in results.shards:
        documents, checked = results.manifest_path("ingest.extract", shard), results.manifest_path("ingest.check")
        scored, selected = tmp_path / f"score/{shard}.manifest.json", tmp_path / f"select/{shard}.manifest.json"
        words = ["--documents", str(documents), "--verdicts", str(checked), "--manifest", str(scored)]
        assert url_score.main(["--config", fingerprint("url.score", whole), *words]) == 0
        words = ["--signals", str(scored), "--manifest", str(selected)]
        assert url_select.main(["--config", fingerprint("url.select", whole), *words]) == 0
        table = pq.read_table(selected.with_name(f"{shard}.parquet")).to_pylist()
        dropped |= {row["id"] for row in table if not row["kept"]}
    assert dropped == touched - {one["id"] for one in found["documents"] if one["curated"]}


def test_a_takedown_of_nothing_runs_nothing(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "forget", "--url", "nowhere.example/a")
    assert (found["documents"], found["edit"], found["runs_again"]) == ([], {}, {})
    assert list(takedown.takedown_lines(found)) == ["no document is from nowhere.example/a"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trace", "https://de.pages.demo.example/nothing"], "the nearest are https://de.pages.demo.example/"),
        (["trace", "abc"], "an id has 32 hexadecimal digits"),
        (["trace", "--step", "41"], "--step is 41; the training took the steps 1 to 40"),
        (["trace", "--tokens", "00000:x"], "it is SHARD:OFFSET or SHARD:SOURCE:OFFSET"),
        (["trace", "--tokens", "00009:1"], "the training stream has 00000:demo"),
        (["trace", "--tokens", "00009:1"], "SHARD:SOURCE:OFFSET, such as 00000:demo:1234"),
        (["trace", "--step", "1", "--variant", "other"], "--variant is 'other'; the config has main"),
        (["trace", "--step", "1", "--directory", "/nowhere"], "--directory is /nowhere, which is not a folder"),
        (["who-wrote", "too short"], "the text has 2 words and --words is 8"),
        (["who-wrote", "a b c", "--words", "1"], "--words is 1; it must be 2 or more"),
    ],
)
def test_what_is_wrong_is_named(
    results: Results, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--configfile", str(TINY)]) == 1
    assert said in capsys.readouterr().err


def test_a_run_of_which_nothing_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "x", "--configfile", str(TINY), "--directory", str(tmp_path)]) == 1
    assert "no document was read yet" in capsys.readouterr().err
