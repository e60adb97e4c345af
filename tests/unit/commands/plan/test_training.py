"""What `crawl2llm plan` says of a training: by counted tokens, by an estimate of them, or that it is not known yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.commands.plan import training
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.core.manifest import Manifest

SHAPE = {"hidden_size": 64, "intermediate_size": 64, "layers": 2, "heads": 2, "kv_heads": 2, "context": 128}
KEYS = {"model": SHAPE, "epochs": 1, "global_batch_tokens": 1024}
RESOURCES = "tmpdir=/tmp, gres=gpu:h100:4, card=8, nodes=2"


def task(step: str, variant: str = "main", **facts: str) -> Task:
    folder = f"results/{variant}/{step.replace('.', '/')}"
    name = "00000.manifest.json" if step == "tokenize.encode" else "manifest.json"
    return Task(step.replace(".", "_"), {"output": f"{folder}/{name}", **facts})


def said(folder: Path, tasks: list[Task], vocabulary: Any = "auto", **train: Any) -> list[str]:
    tree = {"tokenize": {"train": {"vocabulary": vocabulary}}, "pretrain": {"train": {**KEYS, **train}}}
    tree["variants"] = {"long": {"pretrain": {"train": {"epochs": 4}}}}  # type: ignore[assignment]
    main = config.validate(tree)
    variants = {name: config_of_variant(main, name) for name in ("main", "long")}
    return list(training.training_lines(tasks, Work(LastRun(folder), tasks, variants, {})))


def encoded(folder: Path) -> Path:
    for number, tokens in enumerate((60_000, 40_000)):
        made = Manifest("tokenize.encode", "test", summary={"train": {"tokens": tokens}})
        made.write(folder / f"results/main/tokenize/encode/0000{number}.manifest.json", [])
    made = Manifest("tokenize.train", "test", summary={"vocabulary": 1000})
    made.write(folder / "results/main/tokenize/train/manifest.json", [])
    return folder


def test_by_the_tokens_that_were_counted(tmp_path: Path) -> None:
    found = said(encoded(tmp_path), [task("pretrain.plan"), task("pretrain.train")])
    assert found[0].startswith(
        "pretrain.train: 122 k parameters (64 k embeddings), 100 k tokens = 0.8 a parameter (Chinchilla: 20), 98 steps"
    )
    assert found[1].startswith("  memory of a process: ") and len(found) == 4


def test_on_the_gpus_of_the_profile(tmp_path: Path) -> None:
    found = said(
        encoded(tmp_path),
        [task("pretrain.train", resources=RESOURCES)],
        processes=4,
        nodes=2,
        micro_batch=1,
        precision="bf16",
    )
    assert "8 × on an h100 of 80 GB: fits" in found[1] and "on 8 GPUs = " in found[2]
    unnamed = RESOURCES.replace(":h100", "") + ", slurm_partition=gpu"
    (found_none,) = said(tmp_path, [task("pretrain.train", resources=unnamed)])
    assert "the profile asks for a GPU without a name" in found_none
    found = said(tmp_path, [task("pretrain.train", resources="slurm_partition=gpu")])
    assert "free here" in found[1]


def test_before_they_are_counted_it_is_an_estimate_and_says_so(tmp_path: Path) -> None:
    again = [task("tokenize.encode"), task("pretrain.train")]
    found = said(encoded(tmp_path), again)
    assert found[0].startswith(
        "pretrain.train (an estimate: tokenize.encode has not counted the tokens yet): 122 k parameters"
    )
    found = said(tmp_path / "new", again, vocabulary=1000, epochs=None, tokens=50_000)
    assert found[0].startswith("pretrain.train (an estimate: ") and "50.2 k tokens = " in found[0]


def test_what_the_corpus_decides_is_not_known_in_a_new_folder(tmp_path: Path) -> None:
    (found,) = said(tmp_path, [task("tokenize.encode"), task("pretrain.train")])
    assert (
        found
        == "pretrain.train: what it takes is not known yet: tokenize.train.vocabulary is auto: known after tokenize"
    )
    (found,) = said(tmp_path, [task("pretrain.train")], vocabulary=1000, epochs="auto")
    assert "epochs are auto: known once tokenize.encode has counted the tokens" in found


def test_nothing_where_no_training_is_planned_and_each_variant_by_its_name(tmp_path: Path) -> None:
    assert said(encoded(tmp_path), [task("report.render")]) == []
    found = said(encoded(tmp_path), [task("pretrain.train"), task("pretrain.train", "long")])
    assert found[4].startswith("pretrain.train of long: ") and "391 steps" in found[4]
