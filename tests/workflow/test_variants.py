"""Variants that read other files than the main run, though their settings are the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core.nested_dicts import merge_dicts
from tests.workflow.conftest import TINY, command, environment, run, snapshot

VARIANTS = ("main", "same", "seed-1", "words_min-31", "words_min-31-seed-1")


def source(*paths: str) -> dict[str, Any]:
    return {"ingest": {"extract": {"shards": 1, "sources": [{"name": "books", "kind": "text", "paths": list(paths)}]}}}


@pytest.mark.parametrize(("other", "own"), [("b/*.txt", True), ("c/*.txt", False)])
def test_a_variant_with_other_files_has_results_of_its_own(tmp_path: Path, other: str, own: bool) -> None:
    """Which files `paths` finds is in no fingerprint. c/ holds what a/ holds: those results are shared."""
    for name, text in (("a", "one"), ("b", "two"), ("c", "one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text(text)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({**source("a/*.txt"), "variants": {"other": source(other)}}))
    done = subprocess.run(
        command(tmp_path, "-n", config=config),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for made in ("ingest/extract/00000.manifest.json", "pretrain/train/manifest.json", "report/render/manifest.json"):
        assert f"results/main/{made}" in done.stdout
        assert (f"results/other/{made}" in done.stdout) is own


def planned_for(folder: Path, config: Path) -> set[str]:
    """The manifests that a dry run would make."""
    done = subprocess.run(
        command(folder, "-n", config=config),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return set(re.findall(r"results/\S+manifest\.json", "\n".join(re.findall(r"output: .*", done.stdout))))


def test_variants_of_a_sweep_share_what_is_the_same_in_them(complete: Path, tmp_path: Path) -> None:
    """Two seeds of a setting that changes a filter make the data half once; a variant that changes nothing makes nothing."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    words = "heuristics.select.gopher_quality.words_min"
    tree |= {
        "sweep": {"grid": {words: [31]}, "seeds": 2},
        "variants": {"same": {"tokenize": {"train": {"vocabulary": 600}}}},
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tree))
    made = planned_for(complete, config)
    of = {name: {path.split("/", 2)[2] for path in made if path.startswith(f"results/{name}/")} for name in VARIANTS}
    assert not of["same"] and {path.split("/")[1] for path in of["main"]} == {"common", "compare"}
    assert (
        "heuristics/select/00000.manifest.json" in of["words_min-31"]
        and "pretrain/train/manifest.json" in of["words_min-31"]
    )
    assert "heuristics/score/00000.manifest.json" not in of["words_min-31"], "main has its scores"
    first = {path.split("/")[0] for path in of["words_min-31-seed-1"]}
    assert first == {path.split("/")[0] for path in of["seed-1"]} and "pretrain" in first
    assert first.isdisjoint({"heuristics", "dedup", "quality", "corpus", "tokenize"})


def test_a_variant_s_own_steps_run_with_its_placement(complete: Path, tmp_path: Path) -> None:
    """Threads, options of program and launcher, and what a profile asks SLURM for; what only placement changes makes nothing."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    wide = {"seed": 7, "processes": 1, "threads": 1, "micro_batch": 2, "checkpoint_every": 5}
    tree["variants"] = {
        "wide": {"pretrain": {"train": wide}, "evaluate": {"model": {"threads": 2}}},
        "same": {"pretrain": {"train": {"micro_batch": 1, "log_every": 3}}},
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tree))
    gpus = """pretrain_train:gres='gpu:%d' % (2 if wildcards.variant == "main" else 1)"""
    done = subprocess.run(
        command(complete, "-n", "-p", "--set-resources", gpus, config=config),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    made = set(re.findall(r"results/\S+manifest\.json", "\n".join(re.findall(r"output: .*", done.stdout))))
    assert not any(path.startswith("results/same/") for path in made)
    # What compares variants is main's, and new where there are any.
    assert {path.split("/")[3] for path in made if path.startswith("results/main/")} == {"common", "compare"}
    jobs = {block.split(":", 1)[0]: block for block in done.stdout.split("\nrule ")[1:]}
    training, evaluation = jobs["pretrain_train"], jobs["evaluate_model"]
    for word in ("--processes=1", "--micro-batch=2", "--checkpoint-every=5"):
        assert word in training, training
    assert "gres=gpu:1" in training and "threads: 2" in evaluation


@pytest.mark.long
def test_the_same_bytes_alone_with_others_and_after_main(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """A variant's files are main's wherever they agree: nothing is copied, and nothing of main's runs again."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    overlay = {"heuristics": {"select": {"gopher_quality": {"words_min": 31}}}}
    swept, own = tmp_path / "swept.yaml", tmp_path / "own.yaml"
    swept.write_text(yaml.safe_dump({**tree, "variants": {"few": overlay, "same": {}}}))
    own.write_text(yaml.safe_dump(merge_dicts(tree, overlay)))
    after, together, alone = copy_of(), tmp_path / "together", tmp_path / "alone"
    before = {path: path.stat().st_mtime_ns for path in (after / "results/main").rglob("*") if path.is_file()}
    until = ("--until", "tokenize_encode", "finetune_pairs")
    for folder, config in ((after, swept), (together, swept), (alone, own)):
        folder.mkdir(exist_ok=True)
        run(folder, *until, config=config)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "main's files are as they were"
    assert not (after / "results/same").exists() and not (together / "results/same").exists()

    # Alone it is a main run, which holds its own documents out: from corpus.write on it has not taken out those that main does.
    apart = ("corpus/write", "tokenize/", "finetune/")
    made = {name: body for name, body in snapshot(alone).items() if not any(stage in name for stage in apart)}
    assert {name.split("/")[2] for name in made} >= {"ingest", "heuristics", "dedup", "quality", "corpus"}
    found = {folder: snapshot(folder) for folder in (after, together)}
    few = {name: body for name, body in found[together].items() if name.startswith("results/few/")}
    assert few == {name: body for name, body in found[after].items() if name.startswith("results/few/")}
    assert {name.split("/")[2] for name in few} >= {"heuristics", "corpus", "tokenize", "finetune"}
    for name, body in made.items():
        mine = name.replace("results/main/", "results/few/", 1)
        assert few.get(mine, found[together].get(name)) == body, name
    shared = {name for name in made if name.replace("results/main/", "results/few/", 1) not in few}
    assert any("ingest/extract" in name for name in shared) and any("heuristics/score" in name for name in shared)
