"""benchmarks.gpu_steps on a CPU: what each setting trains, and what is estimated of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu_steps
from scripts.pretrain import initial


def test_weights_are_given_for_every_name() -> None:
    config = gpu_steps.config_of("tiny", 512, 64)
    model = initial.empty(config)
    drawn = {name: tuple(value.shape) for name, value in gpu_steps.draw_weights(config, "cpu")}
    assert drawn == {name: tuple(value.shape) for name, value in [*model.named_parameters(), *model.named_buffers()]}


@pytest.mark.slow
def test_rows_of_a_tiny_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed as dist

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # what the benchmark sets ends with the test
    try:
        cases = ["bf16", "compiled, stage 1, muon in bf16", "deepspeed"]
        assert gpu_steps.main(["--steps", "2", "--only", *cases, "--out", str(tmp_path / "rows.json")]) == 0
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert list(rows) == cases and all(row["tokens_per_second"] > 0 and row["mfu"] is None for row in rows.values())
    # Muon has one moment of a matrix where AdamW has two.
    assert rows[cases[1]]["estimate"]["optimizer"] < 0.7 * rows[cases[0]]["estimate"]["optimizer"]
    assert capsys.readouterr().out.startswith("No GPU is here")
