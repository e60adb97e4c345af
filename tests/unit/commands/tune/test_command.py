"""The command on a CPU, with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl2llm.commands.tune import command

TINY = """
tokenize: {train: {vocabulary: 512}}
pretrain:
  train:
    model: {hidden_size: 16, intermediate_size: 32, layers: 2, heads: 2, kv_heads: 1, context: 32}
    engine: torch
    device: cpu
    zero_stage: 0
    micro_batch: 1
    steps: 3
    global_batch_tokens: 64
"""


def test_a_tiny_model_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text(TINY)
    options = ["--configfile", str(tmp_path / "config.yaml"), "--directory", str(tmp_path)]
    assert command.main([*options, "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert [row["micro_batch"] for row in found["trials"]][:2] == [1, 2], "two sequences are a step"
    assert all(row["tokens_per_second"] > 0 and row["mfu"] is None for row in found["trials"])
    assert found["change"].keys() <= {"micro_batch", "activation_checkpointing", "selective_checkpointing"}
    assert "s of about 120, 1 tried" in shown.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml"], "it changes nothing"


def test_the_table_and_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(TINY)
    options = ["--configfile", str(tmp_path / "config.yaml"), "--directory", str(tmp_path)]
    monkeypatch.setattr(command, "estimate_note", lambda *_: "not tried: about 1.0 GB would be needed")
    assert command.main(options) == 1
    shown = capsys.readouterr()
    assert "| 1 | nothing | no | not tried: about 1.0 GB would be needed | – | – |" in shown.out
    assert " tried, " not in shown.err, "no terminal: a line would cut the table apart"
    assert command.main([*options, "--variant", "other"]) == 1
    assert "--variant is 'other'; the config has main" in capsys.readouterr().err
    for old, new in (("vocabulary: 512", "vocabulary: auto"), ("layers: 2", "layers: auto")):
        (tmp_path / "config.yaml").write_text(TINY.replace(old, new))
        assert command.main(options) == 1
        shown = capsys.readouterr().err
        assert (
            "auto: known " in shown and "; give --directory a run in which tokenize has ended, or set the keys" in shown
        )
