"""Exports in a run: what they rerun, where they stand, and one made of the complete run's fine-tuned model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from crawl2llm.commands import partial_report
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import gguf_support
from tests.unit.stages.compress.conftest import needs_llama
from tests.workflow.conftest import TINY, run
from tests.workflow.plan import planned

SFT: dict[str, Any] = {"from": "base", "step": "finetune.train"}
GIVE: dict[str, Any] = {"from": "sft", "step": "compress.export"}
ADDED = {"compress.export[give]", "report.render"}


def tree(models: Any, **more: Any) -> dict[str, Any]:
    """The tiny config with these models."""
    return {**yaml.safe_load(TINY.read_text(encoding="utf-8")), "models": models, **more}


def licensed(licence: str) -> dict[str, Any]:
    """The tiny config's sources, one of them with a licence."""
    sources = [
        {"name": "demo", "kind": "crawl", "licence": licence},
        {"name": "reference", "kind": "crawl", "curated": True},
    ]
    return {"ingest": {"extract": {"shards": 2, "sources": sources}}}


def test_an_export_reruns_nothing_else(complete: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert planned(complete, tree({"sft": SFT, "give": GIVE})) == ADDED
    assert planned(complete, tree({"sft": SFT, "give": {**GIVE, "from": "base"}})) == ADDED
    assert planned(complete, tree({"sft": SFT}, **licensed("MIT"))) == set(), "a licence is for cards alone"
    assert planned(complete, tree({"sft": SFT}, compress={"export": {"types": ["q8_0"]}})) == set()
    monkeypatch.setenv(gguf_support.TOOLS.variable, str(tmp_path))
    with pytest.raises(BaseException, match="make gguf-tools"):
        planned(complete, tree({"sft": SFT, "give": {**GIVE, "types": ["q8_0"]}}, tokenize={"train": {"digits": 1}}))


@pytest.mark.slow
def test_a_run_with_an_export(copy_of: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder loads as it is, the card says what the run measured, and an edit of what stands on it makes it again and nothing else."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, config = copy_of(), tmp_path / "export.yaml"
    models = {"sft": SFT, "give": {**GIVE, "licence": "apache-2.0"}}
    config.write_text(yaml.safe_dump(tree(models), sort_keys=False))
    run(folder, config=config)
    results = folder / "results/main"
    out, manifest = results / "compress/export/give", Manifest.read(results / "compress/export/give.manifest.json")
    assert {name.split("/")[0] for name in manifest.files} == {"give"} and manifest.summary["of"] == "sft"
    given = results / "finetune/train/sft/model"
    assert all((out / path.name).read_bytes() == path.read_bytes() for path in given.iterdir())
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is a heap?"}], return_dict=True, return_tensors="pt"
    )
    assert model.generate(**asked, max_new_tokens=3, do_sample=False).shape[1] > asked["input_ids"].shape[1]

    card = ModelCard.load(out / "README.md")
    evaluation = json.loads((results / "evaluate/model/sft.evaluation.json").read_text())
    results_of = {one.dataset_type: one.metric_value for one in card.data.eval_results}
    assert results_of["crawl2llm/heldout-text"] == evaluation["heldout_text"]["bits_per_byte"]
    assert results_of["crawl2llm/heldout-next_word"] == evaluation["items"]["next_word"]["accuracy"]
    funnel = json.loads((results / "report/render/funnel.json").read_text())
    assert all(
        f"| {row['stage']} | {row['in']:,} | {row['kept']:,} |" in card.text
        for row in funnel
        if row["stage"] in ("language", "dedup")
    )
    assert (
        "evaluate.model give" not in str(manifest.inputs)
        and not (results / "evaluate/model/give.manifest.json").exists()
    )
    page = (results / "report/render/report.html").read_text(encoding="utf-8")
    assert '<a href="../../compress/export/give/">give</a>' in page

    assert planned(folder, tree(models)) == set()
    assert planned(folder, tree({**models, "give": {**models["give"], "licence": "mit"}})) == ADDED
    assert planned(folder, tree(models, **licensed("MIT"))) == ADDED
    with monkeypatch.context() as here:
        here.chdir(folder)
        assert partial_report.main(["--configfile", str(config)]) == 0


@needs_llama
@pytest.mark.long
def test_a_run_with_gguf_files(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """From new tokens on, since llama.cpp has no tokenizer that cuts groups of three digits; the files, the card and the page agree."""
    folder, config = copy_of(), tmp_path / "gguf.yaml"
    models = {"sft": SFT, "gguf": {**GIVE, "types": ["q8_0", "f16"], "max_tokens": 500, "compared_tokens": 100}}
    made = tree(models)
    made["tokenize"]["train"]["digits"] = 1
    config.write_text(yaml.safe_dump(made, sort_keys=False))
    run(folder, config=config)
    results = folder / "results/main"
    manifest = Manifest.read(results / "compress/export/gguf.manifest.json")
    assert sorted(manifest.files) == ["gguf/gguf-F16.gguf", "gguf/gguf-Q8_0.gguf"]
    q8, f16 = manifest.summary["gguf"]
    assert f16["mean_difference"] < q8["mean_difference"] and f16["compared"] == 100
    page = (results / "report/render/report.html").read_text(encoding="utf-8")
    card = ModelCard.load(results / "compress/export/gguf/README.md")
    for one in (q8, f16):
        assert f"<td>{one['type']}</td>" in page and f"`{one['file']}`" in card.text
        assert f"{one['bits_per_byte']:.4f}" in page and f"{one['bits_per_byte']:.4f}" in card.text
    assert card.data.library_name == "gguf" and "gguf" in card.data.tags
    assert planned(folder, made) == set()
    assert planned(folder, {**made, "models": {**models, "gguf": {**models["gguf"], "types": ["f16"]}}}) == {
        "compress.export[gguf]",
        "report.render",
    }
