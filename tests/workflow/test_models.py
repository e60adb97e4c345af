"""Models of the registry: what an edit of one reruns, variants of one, and a run with a model that is made from a fine-tuned one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.commands import partial_report, verify
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress import quantize_tools
from crawl2llm.workflow import unused
from tests.unit.stages.evaluate.endpoints import says, serving  # noqa: F401 - the fixture `served`
from tests.workflow.conftest import TINY, run
from tests.workflow.plan import planned
from tests.workflow.test_look import page

SFT: dict[str, Any] = {"from": "base", "step": "finetune.train"}
SFT2: dict[str, Any] = {**SFT, "from": "sft", "learning_rate": 0.0005}
INT8: dict[str, Any] = {"from": "sft", "step": "compress.quantize"}
SMALL: dict[str, Any] = {"from": "base", "step": "compress.prune"}
PRUNED = {"compress.prune[small]", "evaluate.model[small]", "evaluate.compare", "report.render"}
QUANTIZED = {"compress.quantize[int8]", "evaluate.model[int8]", "evaluate.compare", "report.render"}
MADE = {"finetune.train[sft]", "evaluate.model[sft]", "evaluate.compare", "report.render"}
INT4: dict[str, Any] = {"from": "sft", "step": "compress.quantize", "method": "int4", "group_size": 32}
SCORES: dict[str, Any] = {"from": "sft", "step": "align.reward", "batch_size": 8, "threads": 1}
LIKED: dict[str, Any] = {
    "from": "sft", "step": "align.train", "method": "ppo", "rewards": [{"reward": "model", "name": "scores"}],
    "generations": 2, "max_new_tokens": 6, "batch_size": 8, "heldout_prompts": 4, "threads": 1,
}  # fmt: skip
WITHOUT = {"finetune.pairs", "evaluate.model[base]", "evaluate.model[untrained]", "evaluate.compare", "report.render"}
ADDED = {"finetune.train[sft2]", "evaluate.model[sft2]", "evaluate.compare", "report.render"}


def tree(models: Any, **more: Any) -> dict[str, Any]:
    """The tiny config with these models."""
    return {**yaml.safe_load(TINY.read_text(encoding="utf-8")), "models": models, **more}


@pytest.mark.parametrize(
    ("models", "runs"),
    [
        ({"sft": SFT}, set()),
        ({"sft": {**SFT, "learning_rate": 0.001}}, set()),  # the value that the section has
        ({"sft": {**SFT, "learning_rate": 0.002}}, MADE),
        ({"sft": {**SFT, "threads": 2}}, MADE),
        ({"sft": {**SFT, "processes": 2, "tensorboard": True, "checkpoint_every": 1}}, set()),
        ({"sft": SFT, "sft2": SFT2}, ADDED),
        ({"sft2": SFT2, "sft": {**SFT, "epochs": 2}}, MADE | ADDED),
        ({"sft": SFT, "sft2": {**SFT2, "processes": 2}}, ADDED),
        ({"other": SFT}, {"finetune.train[other]", "evaluate.model[other]", "evaluate.compare", "report.render"}),
        ({"sft": SFT, "int8": INT8}, QUANTIZED),
        ({"sft": SFT, "int8": {**INT8, "method": "nf4"}, "sft2": SFT2}, QUANTIZED | ADDED),
        ({"sft": SFT, "small": SMALL, "sft2": {**SFT2, "from": "small"}}, PRUNED | ADDED),
        # finetune.pairs has no note then; what reads its pairs ends at once, since they are the same.
        ({}, WITHOUT),
        ({"sft": None}, WITHOUT),
    ],
)
def test_an_edit_of_the_registry_reruns(complete: Path, models: Any, runs: set[str]) -> None:
    assert planned(complete, tree(models)) == runs


def test_a_variant_of_one_model_shares_the_others(complete: Path) -> None:
    def variant(**overlay: Any) -> set[str]:
        found = planned(complete, tree({"sft": SFT}, variants={"v": overlay}))
        common = {f"evaluate.common[{name}]" for name in ("base", "sft")}  # of main, which now has a variant
        assert common <= found
        return {step for step in found if not step.startswith(("evaluate.common", "report.compare"))}

    assert variant(models={"sft": {"learning_rate": 0.002}}) == MADE
    assert variant(models={"sft2": SFT2}) == ADDED
    assert variant(models={"sft": None}) == WITHOUT
    assert variant(finetune={"train": {"epochs": 2}}) == MADE


class Columns(HTMLParser):
    """The headings of the columns of the evaluation's tables, and the sections of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inside = False
        self.heads: list[str] = []
        self.sections: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "section" and given.get("id"):
            self.sections.append(str(given["id"]))
        if tag == "th" and given.get("scope") == "col" and self.sections[-1:] == ["evaluation"]:
            self.inside = True
            self.heads.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "th"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.heads[-1] += data


@pytest.mark.slow
def test_a_run_with_a_model_made_from_a_fine_tuned_one(
    copy_of: Callable[[], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second model is added to a complete run, and taken away again; an old result without a model's name is not taken for one."""
    folder, config = copy_of(), tmp_path / "models.yaml"
    results = folder / "results/main"
    before = {path: path.read_bytes() for path in results.rglob("*sft*.json")}
    old = results / "finetune/train/manifest.json"
    old.write_bytes((results / "finetune/train/sft.manifest.json").read_bytes())
    config.write_text(yaml.safe_dump(tree({"sft": SFT, "sft2": SFT2}), sort_keys=False))
    said = run(folder, config=config)
    assert f"{old.relative_to(folder)} is of an earlier version, whose model had no name" in said
    old.unlink()

    manifest = Manifest.read(results / "finetune/train/sft2.manifest.json")
    assert "finetune.train sft" in manifest.inputs and "pretrain.train" not in manifest.inputs
    assert {name.split("/")[0] for name in manifest.files} == {"sft2"}
    assert all(path.read_bytes() == held for path, held in before.items()), "what was there is as it was"
    written = Columns((results / "report/render/report.html").read_text(encoding="utf-8"))
    assert written.heads[:5] == ["Measure", "Base model", "sft from base", "sft2 from sft", "Measured on"]
    assert [name for name in written.sections if name.startswith("model-")] == ["model-base", "model-sft", "model-sft2"]
    counts = json.loads((results / "report/render/counts.json").read_text(encoding="utf-8"))
    assert [(made["name"], made["from"]) for made in counts["models"]] == [
        ("base", None),
        ("sft", "base"),
        ("sft2", "sft"),
    ]
    assert all(made["training"] and made["evaluation"]["heldout_text"] for made in counts["models"])
    assert not verify.find_problems(folder / "results", deep=True).faults
    capsys.readouterr()
    assert partial_report.main(["--results", str(results), "--configfile", str(config)]) == 0
    printed = capsys.readouterr().out
    assert "\nsft2 " in printed and "missing" not in printed and "outdated" not in printed

    (folder / "checkpoints/mine").mkdir(parents=True)
    (folder / "checkpoints/mine/sft2.run.json").write_text("{}")
    trained = {path: path.read_bytes() for path in results.rglob("*sft2*") if path.is_file() and path.suffix != ".tsv"}
    assert any(path.suffix == ".json" for path in trained)
    announced, said = " ".join(page(folder, TINY).split()), run(folder)
    aside = re.search(
        r"set aside (\d+ files \([\d.]+ [kM]B\) of the model sft2, which this config no longer has)", said
    )
    assert aside and f"the run first sets aside {aside[1]}" in announced
    left = {path.relative_to(results).parts[0] for path in results.rglob("*") if "sft2" in path.name}
    assert left == {"unused"} and len(unused.find_set_aside(folder / "results")) == 2
    assert (folder / "checkpoints/mine/sft2.run.json").exists()
    assert all(path.read_bytes() == held for path, held in before.items())
    shown = [results / "report/render" / name for name in ("report.html", "counts.json")]
    assert Columns(shown[0].read_text(encoding="utf-8")).heads[:4] == [
        "Measure",
        "Base model",
        "sft from base",
        "Measured on",
    ]
    assert not any("sft2" in path.read_text(encoding="utf-8") for path in shown)
    assert not verify.find_problems(folder / "results", deep=True).faults

    # It comes back, and nothing of it is made again.
    announced, said = " ".join(page(folder, config).split()), run(folder, config=config)
    back = re.search(r"brought back \d+ files \([\d.]+ [kM]B\) of the model sft2 from results/\*/unused/", said)
    assert back and f"the run first {back[0].replace('brought', 'brings')}" in announced
    assert "finetune.train" not in announced.split("the run first")[0]
    assert not (results / "unused").exists()
    assert {path: path.read_bytes() for path in trained} == trained
    assert not [path for path in (folder / "logs/main/finetune/train").glob("sft2.log") if "step 2" in path.read_text()]
    assert planned(folder, tree({"sft": SFT, "sft2": SFT2})) == set()


@pytest.mark.slow
def test_an_endpoint_judges_in_a_run(copy_of: Callable[[], Path], tmp_path: Path, served: Any) -> None:
    """Through the rule, with where it is asked as options; another prompt asks again, another endpoint does not."""
    folder, config, pairs = copy_of(), tmp_path / "made.yaml", "results/main/align/pairs/manifest.json"
    url, got = served(lambda _, body: (200, says(str(len(body["messages"][0]["content"]) % 10 + 1))))

    def asking(**judge: Any) -> dict[str, Any]:
        drawn = {"from": "sft", "answers": 2, "max_new_tokens": 4, "threads": 1, "rewards": [{"reward": "endpoint"}]}
        given = {"model": "big", "endpoint": url, "prompt": "Rate {answer}", **judge}
        return tree({"sft": SFT, "scores": SCORES}, align={"pairs": {**drawn, "judge": given}})

    config.write_text(yaml.safe_dump(asking(), sort_keys=False))
    run(folder, pairs, config=config)
    made = Manifest.read(folder / pairs)
    assert made.counts["kept"] > 0 and 0 < len(got) <= made.summary["judged"]["answers"]
    assert list((folder / ".cache/judge").rglob("*.json")) and b"127.0.0.1" not in (folder / pairs).read_bytes()
    elsewhere = asking(endpoint="http://127.0.0.1:9/v1", requests=1, key="JUDGE_KEY")
    assert planned(folder, elsewhere) == planned(folder, asking()) == {"align.reward[scores]", "report.render"}
    assert planned(folder, asking(prompt="Score {answer}")) == {"align.pairs", "align.reward[scores]", "report.render"}


@pytest.mark.slow
@pytest.mark.long
def test_a_run_with_a_reward_model_and_models_of_four_bits(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """What they rerun, that the reward model is asked nothing, and that an edit of it reaches what learns from it and nothing else."""
    folder, config, file = copy_of(), tmp_path / "made.yaml", tmp_path / "preferences.jsonl"
    answers = (("Yes, it is.", "No."), ("A list of names.", "A b c."))
    rows = [
        {"prompt": f"What is {number}?", "chosen": good, "rejected": bad}
        for number in range(60)
        for good, bad in (answers[number % 2],)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    models = {"sft": SFT, "scores": SCORES, "liked": LIKED, "int4": INT4}
    more = {"align": {"pairs": {"files": [{"path": str(file), "heldout": 0.2}]}}}
    if not quantize_tools.ENVIRONMENT.problem():
        models["gptq"] = {**INT4, "method": "gptq", "calibration_tokens": 2000}
    config.write_text(yaml.safe_dump(tree(models, **more), sort_keys=False))
    before = {path: path.read_bytes() for path in (folder / "results/main").rglob("*sft*.json")}
    run(folder, config=config)
    results = folder / "results/main"
    assert all(path.read_bytes() == held for path, held in before.items()), "what was there is as it was"
    made = {path.name.split(".")[0] for path in (results / "evaluate/model").glob("*.manifest.json")}
    assert made == {"untrained", "base", *models} - {"scores"}
    assert Manifest.read(results / "align/train/liked.manifest.json").inputs.keys() >= {"align.reward scores"}
    text = (results / "report/render/report.html").read_text(encoding="utf-8")
    assert [name for name in Columns(text).sections if name.startswith("model-")] == [
        f"model-{name}" for name in ("base", *models)
    ]
    assert "Variance that values explain" in text
    assert planned(folder, tree(models, **more)) == set()
    after = {"evaluate.model[liked]", "evaluate.compare", "report.render"}
    models["scores"] = {**SCORES, "epochs": 2}
    assert planned(folder, tree(models, **more)) == {"align.reward[scores]", "align.train[liked]", *after}
    assert not verify.find_problems(folder / "results", deep=True).faults
