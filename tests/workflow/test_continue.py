"""Models that are trained on: what they add to a run, and one from a published model that is evaluated, fine-tuned and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoConfig, AutoTokenizer

from crawl2llm.core.manifest import Manifest
from tests.unit.training.tiny_published import CONTEXT, write_published
from tests.workflow.conftest import TINY, run
from tests.workflow.plan import planned

MORE: dict[str, Any] = {
    "step": "pretrain.continue",
    "tokens": 16 * CONTEXT,
    "batch_tokens": 4 * CONTEXT,
    "micro_batch": 2,
    "validation_tokens": 2000,
    "learning_rate": 0.01,
    "threads": 1,
}
LONGER = {
    "context": 2 * CONTEXT,
    "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": CONTEXT},
    "shares": {"demo": 1},
    "new_tokens": ["<|tool|>"],
}


def tree(**models: Any) -> dict[str, Any]:
    """The tiny config with its fine-tuned model and these."""
    sft = {"from": "base", "step": "finetune.train"}
    return {**yaml.safe_load(TINY.read_text(encoding="utf-8")), "models": {"sft": sft, **models}}


def test_it_adds_its_own_tasks_alone(complete: Path) -> None:
    added = {"pretrain.continue[more]", "evaluate.model[more]", "evaluate.compare", "report.render"}
    assert planned(complete, tree(more={"from": "base", **MORE})) == added


def test_a_bad_share_is_refused_before_the_run(complete: Path) -> None:
    with pytest.raises(BaseException, match=r"models\.more\.shares names 'wiki', and ingest.extract.sources has demo"):
        planned(complete, tree(more={"from": "base", **MORE, "shares": {"wiki": 0.5}}))


@pytest.mark.slow
def test_a_published_model_trained_on(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder, config, tiny = copy_of(), tmp_path / "more.yaml", write_published(tmp_path / "tiny")
    models = {
        "tiny": {"path": str(tiny)},
        "more": {"from": "tiny", **MORE, **LONGER},
        "tuned": {"from": "more", "step": "finetune.train", "adapter": "lora", "engine": "torch"},
        "give": {"from": "tuned", "step": "compress.export"},
    }
    config.write_text(yaml.safe_dump(tree(**models), sort_keys=False))
    run(folder, config=config)
    results = folder / "results/main"
    summary = Manifest.read(results / "pretrain/continue/more.manifest.json").summary
    assert summary["validation_loss_after"] < summary["validation_loss_before"]
    assert summary["by_group"]["demo"]["tokens"] == summary["tokens"] == 16 * CONTEXT
    texts = {
        name: json.loads((results / f"evaluate/model/{name}.evaluation.json").read_text())["heldout_text"]
        for name in ("tiny", "more", "tuned")
    }
    assert texts["more"]["tokens"] == texts["tiny"]["tokens"], "text is encoded as for the parent"
    assert texts["more"]["bits_per_byte"] < texts["tiny"]["bits_per_byte"]
    given = results / "compress/export/give"
    assert AutoConfig.from_pretrained(given).max_position_embeddings == 2 * CONTEXT
    assert len(AutoTokenizer.from_pretrained(given)("<|tool|>", add_special_tokens=False)["input_ids"]) == 1
    assert "pre-trained further" in (given / "README.md").read_text()
    page = (results / "report/render/report.html").read_text()
    assert "Continued pre-training: more" in page and 'id="model-more' in page
