"""benchmarks.tuning on a small run's tokens: every case sees as many, and what is known is not trained again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from benchmarks import tuning
from crawl2llm.chain.config import validate
from tests.unit.stages.pretrain.conftest import write_shards, write_tokenizer

STEPS = tuning.parsed(["--results", "x"]).steps


def test_the_default_is_half_of_the_demos_steps() -> None:
    demo = yaml.safe_load(tuning.CONFIG.read_text(encoding="utf-8"))
    assert demo["pretrain"]["train"]["steps"] == 2 * STEPS


@pytest.mark.parametrize("name", tuning.CASES)
def test_every_case_is_valid_and_sees_as_many_tokens(name: str) -> None:
    own, demo = (
        validate(tuning.settings(case, STEPS))["pretrain"]["train"]
        for case in (tuning.CASES[name], tuning.CASES["the demo"])
    )
    assert own["steps"] * own["global_batch_tokens"] == demo["steps"] * demo["global_batch_tokens"]
    assert own == demo or name != "the demo"


@pytest.mark.slow
def test_a_case_is_trained_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenize/train")
    write_shards(tokenizer, tmp_path / "tokenize/encode")
    options = ["--results", str(tmp_path), "--steps", "2", "--only", "batch 4,096", "--out", str(tmp_path / "x.json")]
    assert tuning.main(options) == 0
    found = json.loads((tmp_path / "x.json").read_text())["cases"]
    assert found.keys() == {"batch 4,096"}
    one = found["batch 4,096"]
    assert one["tokens"] == 4096 and 3 < one["bits_per_byte"] < 12 and one["cpu_seconds"] > 1
    said = capsys.readouterr().out
    assert f"| batch 4,096 | {one['bits_per_byte']:.3f} | 4,096 |" in said
    (tmp_path / "tokenize/encode").rename(tmp_path / "gone")  # nothing is trained, so nothing is missing
    assert tuning.main(options) == 0 and capsys.readouterr().out == said
    # Under another config.yaml it would be trained again, also where the case itself names no such key.
    (tmp_path / "config.yaml").write_text(tuning.CONFIG.read_text().replace("warmup: 0.1", "warmup: 0.2"))
    monkeypatch.setattr(tuning, "CONFIG", tmp_path / "config.yaml")
    with pytest.raises(SystemExit, match="has no manifests"):
        tuning.main(options)


def test_a_case_that_is_not_there() -> None:
    with pytest.raises(SystemExit, match="--only muons: not among the demo"):
        tuning.main(["--results", "x", "--only", "muons"])
