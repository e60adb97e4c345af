"""compress.merge on a complete run: the checkpoints that it kept, and its models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import merge
from crawl2llm.training.export import export_checkpoint
from crawl2llm.training.model_loading import load_model
from tests.workflow.conftest import TINY

RUN = "results/main"


def merge_models(folder: Path, parent: str, *others: str, **keys: object) -> int:
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    soup = {"from": "base", "step": "compress.merge", **keys}
    tree["models"] = {"sft": {"from": "base", "step": "finetune.train"}, "soup": soup}
    (folder / "merge.yaml").write_text(yaml.safe_dump(tree))
    words = ["--config", "merge.yaml", "--model", f"{RUN}/{parent}", *(["--others", *others] if others else [])]
    return merge.main([*words, "--manifest", "out/soup.manifest.json"])


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}


def test_checkpoints_and_models(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of()
    monkeypatch.chdir(folder)
    base, sft = "pretrain/train/manifest.json", f"{RUN}/finetune/train/sft.manifest.json"
    assert merge_models(folder, base, method="checkpoints", every=30, last=2, weighting="ema") == 0
    (earlier,) = Path("checkpoints").glob("*/step-000030/model/config.json")
    export_checkpoint(earlier.parents[1], folder / "exported", "fp32")
    before, last = tensors_in(folder / "exported"), tensors_in(Path(f"{RUN}/pretrain/train/model"))
    for name, value in tensors_in(Path("out/soup/model")).items():
        expected = 0.8 * before[name].double() + 0.2 * last[name].double()
        torch.testing.assert_close(value, expected.to(last[name].dtype), rtol=1e-6, atol=1e-9)
    load_model("out/soup/model")
    summary = Manifest.read(Path("out/soup.manifest.json")).summary
    assert summary["merged"] == "0.8 × step 30, 0.2 × step 40" and not list(Path("out/soup").glob(".*"))
    assert merge_models(folder, base, method="checkpoints", every=10, last=3) == 1
    assert (
        "compress.merge.every is 10, and " in (error := capfd.readouterr().err)
        and "has no checkpoint of step 20" in error
    )
    assert merge_models(folder, base, method="checkpoints", every=30, last=3) == 1
    assert "a training of 40 steps has 2 such checkpoints, its last model among them" in capfd.readouterr().err
    assert merge_models(folder, base, sft, **{"with": ["sft"]}) == 0
    tuned = tensors_in(Path(f"{RUN}/finetune/train/sft/model"))
    for name, value in tensors_in(Path("out/soup/model")).items():
        assert torch.equal(value, ((tuned[name].double() + last[name].double()) / 2).to(value.dtype)), name
