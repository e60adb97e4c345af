"""Variants' trainings and evaluations on a machine with two GPUs, which an nvidia-smi of the test's own pretends."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from tests.unit.core.test_devices import FIRST, SECOND, TWO, pretend
from tests.workflow.conftest import ROOT, TINY, command, environment

TARGETS = [f"results/{name}/pretrain/train/manifest.json" for name in ("one", "two", "three")]
MARK = f"gpus {os.getpid()}"  # in the environment of this test's processes


def config_in(folder: Path) -> Path:
    """A config without filters: a corpus of this project's pages, and variants that differ in the seed of their training."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    pages = [
        str(ROOT / f"docs/{name}.md")
        for name in ("architecture", "stages/pretrain", "engines", "stages/finetune", "stages/evaluate")
    ]
    tree["ingest"]["extract"] = {"shards": 1, "sources": [{"name": "pages", "kind": "text", "paths": pages}]}
    tree["filters"] = []
    tree["pretrain"]["train"] |= {"checkpoint_every": 1000}
    tree["finetune"]["train"]["device"] = "cpu"
    seeds = {"one": 11, "two": 12, "three": 13}
    tree["variants"] = {name: {"pretrain": {"train": {"processes": 1, "seed": seed}}} for name, seed in seeds.items()}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def snakemake(folder: Path, *options: str, **own: str) -> str:
    """What a run, or a dry run, of this folder says on a machine with two GPUs; it must succeed."""
    folder.mkdir(exist_ok=True)
    smi = pretend(folder / "bin", TWO)
    line = command(folder, *options, cores=4, config=config_in(folder))
    env = environment()
    env = {**env, "PATH": f"{smi}{os.pathsep}{env['PATH']}", **own}
    done = subprocess.run(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def cards(said: str) -> dict[str, set[int]]:
    """The resource `card` of each rule's jobs in the output of a dry run."""
    found: dict[str, set[int]] = defaultdict(set)
    for rule, number in re.findall(r"^(?:local)?rule (\w+):$(?:\n .*)*?\n    resources: .*\bcard=(\d+)", said, re.M):
        found[rule].add(int(number))
    return found


def test_a_plan_counts_gpus(tmp_path: Path) -> None:
    planned = cards(snakemake(tmp_path, "-n"))
    assert planned["pretrain_train"] == {2, 1}  # main's two processes, and the variants' one each
    assert planned["evaluate_model"] == planned["evaluate_common"] == {1}
    assert not planned["finetune_train"] - {0}, "its device is cpu"
    assert cards(snakemake(tmp_path, "-n", CUDA_VISIBLE_DEVICES="1"))["pretrain_train"] == {1}
    assert cards(snakemake(tmp_path, "-n", "--resources", "card=1"))["pretrain_train"] == {1}
    for nothing in ("", "-1"):
        assert not any(any(of) for of in cards(snakemake(tmp_path, "-n", CUDA_VISIBLE_DEVICES=nothing)).values())


def trainings() -> dict[str, set[str]]:
    """The trainings whose processes live now, by the CUDA_VISIBLE_DEVICES that these were started with."""
    found: dict[str, set[str]] = defaultdict(set)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            if (
                "crawl2llm.stages.pretrain.train" in words
                and "crawl2llm.training.launch" not in words
                and "--manifest" in words
            ):
                own = dict(
                    part.partition("=")[::2]
                    for part in (process / "environ").read_text(encoding="utf-8", errors="replace").split("\0")
                )
                if own.get("CRAWL2LLM_TEST") == MARK:
                    found[own.get("CUDA_VISIBLE_DEVICES", "")].add(words[words.index("--manifest") + 1])
    return found


@pytest.mark.long
def test_trainings_of_variants_have_gpus_of_their_own(tmp_path: Path) -> None:
    """Three trainings on two GPUs: each sees one, two run at the same time, and never two on one GPU."""
    seen: list[dict[str, set[str]]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            seen.append(trainings())

    looks = threading.Thread(target=look)
    looks.start()
    try:
        snakemake(tmp_path, *TARGETS, CRAWL2LLM_TEST=MARK)
    finally:
        over.set()
        looks.join()
    assert {name for at in seen for name in at} == {FIRST, SECOND}
    assert all(len(of) == 1 for at in seen for of in at.values())
    assert any(len(at) == 2 for at in seen), "two at the same time"
    assert {path for at in seen for of in at.values() for path in of} == set(TARGETS)
    for target in TARGETS:
        log = tmp_path / target.replace("results/", "logs/").replace("/manifest.json", ".log")
        (name,) = re.findall(r"CUDA_VISIBLE_DEVICES=(\S+)", log.read_text(encoding="utf-8"))
        assert name in (FIRST, SECOND)


def test_a_plan_with_compiled_layers_wants_a_compiler(tmp_path: Path) -> None:
    """Before the first task, and not hours later where the training starts."""
    path = config_in(tmp_path)
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    tree["pretrain"]["train"]["compile_layers"] = True
    path.write_text(yaml.safe_dump(tree))
    line, env = command(tmp_path, "-n", config=path), environment() | {"CC": "no-cc", "CXX": "no-cxx"}
    done = subprocess.run(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode and "compile_layers is true" in done.stdout and "CXX is 'no-cxx'" in done.stdout
