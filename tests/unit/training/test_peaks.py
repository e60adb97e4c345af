"""The estimate of memory against what trainings really take: peak resident memory of whole runs of pretrain.train on a CPU.

The growth over a run of a model of next to nothing is compared, so that what the libraries take is left out of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.pretrain import placed
from scripts.pretrain.plan import facts
from scripts.training import memory
from scripts.training.processes import TUNABLES
from scripts.workflow import config
from scripts.workflow.config import ROOT
from scripts.workflow.fingerprint import fingerprint
from scripts.workflow.manifest import Manifest
from tests.unit.pretrain.conftest import write_indexed

pytestmark = pytest.mark.slow  # trains
WITHIN = 0.15
VOCABULARY = 4096
NOTHING = {"hidden_size": 8, "intermediate_size": 8, "layers": 1, "heads": 1, "kv_heads": 1, "context": 8}
DEEP = {"hidden_size": 128, "intermediate_size": 384, "layers": 10, "heads": 4, "kv_heads": 2, "context": 256}
WIDE = {"hidden_size": 512, "intermediate_size": 1408, "layers": 5, "heads": 8, "kv_heads": 4, "context": 128}
BROAD = {"hidden_size": 256, "intermediate_size": 704, "layers": 4, "heads": 4, "kv_heads": 4, "context": 256}
# (shape, micro-batch)
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "deep, mostly activations": (DEEP, 12),
    "wide, mostly weights": (WIDE, 4),
}
# Writes its own peak as the kernel counted it (proc(5), VmHWM) where pretrain.train notes its machine, which is after the last weights.
PROGRAM = """
import re, sys
from pathlib import Path
from scripts.pretrain import run, train
machine = run.Run.machine
def noted(self):
    # Not ru_maxrss, in which the memory of the process that started this one counts.
    held = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    Path("peak").write_text(str(int(held.group(1)) * 1024))
    return machine(self)
run.Run.machine = noted
sys.exit(train.main())
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(manifest of a shard of random tokens, manifest of a tokenizer with VOCABULARY entries)."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("peaks")
    words = {"<|endoftext|>": 0, **{f"w{number}": number for number in range(1, VOCABULARY)}}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words)), eos_token="<|endoftext|>")  # noqa: S106
    made.save_pretrained(folder / "tokenizer")
    tokenizer = folder / "tokenizer/manifest.json"
    Manifest("tokenize.train", "test").write(tokenizer, list(tokenizer.parent.glob("*.json")))
    pick, files = np.random.default_rng(0), []
    for split, count in (("train", 300), ("validation", 2)):
        documents = [[*map(int, pick.integers(1, VOCABULARY, 100)), 0] for _ in range(count)]
        stem = folder / split / "00000"
        write_indexed(stem, documents)
        rows = {
            "id": [f"{split}-{number}" for number in range(count)], "offset": [101 * number for number in range(count)],
            "tokens": [101] * count, "bytes": [400] * count,
        }  # fmt: skip
        pq.write_table(pa.table(rows), stem.with_suffix(".docs.parquet"))
        files += [stem.with_suffix(suffix) for suffix in (".bin", ".idx", ".docs.parquet")]
    Manifest("tokenize.encode", "test").write(folder / "00000.manifest.json", files)
    return folder / "00000.manifest.json", tokenizer


def settings(shape: dict[str, Any], micro: int) -> dict[str, Any]:
    """A config whose training takes three steps of two micro-batches each."""
    batch = 2 * micro * shape["context"]
    train = {
        "model": shape,
        "steps": 3,
        "global_batch_tokens": batch,
        "precision": "fp32",
        "threads": 1,
        "zero_stage": 1,
    }
    return config.validate({"pretrain": {"train": {**train, "micro_batch": micro, "validation_tokens": 100}}})


def peak(folder: Path, given: tuple[Path, Path], tree: dict[str, Any], tunables: str) -> int:
    """Peak resident bytes of a training, as the launcher starts it: under these glibc tunables."""
    folder.mkdir()
    micro = tree["pretrain"]["train"]["micro_batch"]
    command = [
        sys.executable, "-c", PROGRAM, "--config", fingerprint("pretrain.train", tree), "--tokens", str(given[0]),
        "--tokenizer", str(given[1]), "--manifest", str(folder / "out/manifest.json"), f"--micro-batch={micro}",
        "--device=cpu", "--tensorboard=false", "--wandb=disabled",
    ]  # fmt: skip
    own = {"PYTHONPATH": str(ROOT), "GLIBC_TUNABLES": tunables, "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return int((folder / "peak").read_text())


def estimated(tree: dict[str, Any]) -> dict[str, int]:
    """The estimate of pretrain.plan for the same, by parts."""
    train = {**tree["pretrain"]["train"], "device": "cpu"}
    found = placed.place(facts(train, None, VOCABULARY), train, tree["pretrain"]["plan"])
    return {name: size for name, size in found["memory"].items() if name != "total"}


@pytest.fixture(scope="module")
def nothing(given: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> int:
    """The peak of a run of next to nothing."""
    return peak(tmp_path_factory.mktemp("nothing") / "run", given, settings(NOTHING, 1), TUNABLES)


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_near_the_measured_peak(
    name: str, given: tuple[Path, Path], nothing: int, tmp_path: Path
) -> None:
    tree = settings(*CASES[name])
    grown = peak(tmp_path / "run", given, tree, TUNABLES) - nothing
    parts = estimated(tree)
    expected = sum(parts.values()) - sum(estimated(settings(NOTHING, 1)).values())
    assert grown > 200_000_000  # else the libraries' own noise decides
    assert expected == pytest.approx(grown, rel=WITHIN), json.dumps(parts)


def test_without_the_heaps_holes_the_parts_alone_are_near(
    given: tuple[Path, Path], nothing: int, tmp_path: Path
) -> None:
    """Every large block mapped and given back: what is left is what was counted, part by part."""
    tree = settings(BROAD, 8)
    mapped = "glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=65536"
    grown = peak(tmp_path / "run", given, tree, mapped) - nothing
    parts = estimated(tree)
    assert grown > 200_000_000
    assert sum(parts.values()) - parts["heap"] - memory.PROGRAM == pytest.approx(grown, rel=WITHIN), json.dumps(parts)
