"""Peak memory of whole trainings on a CPU, several in one start: each is a fork of a process that has imported all of it.

    GLIBC_TUNABLES=… python -m tests.unit.training.peaks < CASES

CASES: a JSON list of (folder, options of pretrain.train, processes). Each training runs in its folder, where process 0 leaves its own
peak as the kernel counted it (proc(5), VmHWM) when pretrain.train notes its machine: after the last checkpoint and the last weights.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.pretrain.plan import training_facts
from crawl2llm.training import resource_plan
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings
from crawl2llm.training.processes import environments, free_port
from tests.unit.stages.pretrain.conftest import write_indexed

VOCABULARY = 4096
NOTHING = {"hidden_size": 8, "intermediate_size": 8, "layers": 1, "heads": 1, "kv_heads": 1, "context": 8}
LLAMA = "transformers.models.llama.modeling_llama"
LIMIT = 240  # seconds for all trainings of a start
AT_ONCE = 6  # trainings of a start


def prepared(folder: Path, vocabulary: int = VOCABULARY) -> tuple[Path, Path]:
    """(manifest of a shard of random tokens, manifest of a tokenizer with so many entries)."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<|endoftext|>": 0, **{f"w{number}": number for number in range(1, vocabulary)}}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words)), eos_token="<|endoftext|>")  # noqa: S106
    made.save_pretrained(folder / "tokenizer")
    tokenizer = folder / "tokenizer/manifest.json"
    Manifest("tokenize.train", "test").write(tokenizer, list(tokenizer.parent.glob("*.json")))
    pick, files = np.random.default_rng(0), []
    for split, count in (("train", 300), ("validation", 2)):
        documents = [[*map(int, pick.integers(1, vocabulary, 100)), 0] for _ in range(count)]
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


def settings(shape: dict[str, Any], micro: int, processes: int = 1, **more: Any) -> dict[str, Any]:
    """A config whose training takes three steps of two micro-batches each."""
    train = {"model": shape, "steps": 3, "precision": "fp32", "threads": 1, "zero_stage": 1, "validation_tokens": 100}
    train |= {
        "micro_batch": micro,
        "processes": processes,
        "global_batch_tokens": 2 * micro * processes * shape["context"],
    }
    return config.validate({"pretrain": {"train": train | more}})


def estimated(tree: dict[str, Any], vocabulary: int = VOCABULARY) -> dict[str, int]:
    """The estimate of pretrain.plan for the same, by parts."""
    train = TrainSettings.model_validate({**tree["pretrain"]["train"], "device": "cpu"})
    plan = PlanSettings.model_validate(tree["pretrain"]["plan"])
    found = resource_plan.plan_resources(training_facts(train, None, vocabulary), train, plan, has=1e15)
    return {name: size for name, size in found["memory"].items() if name != "total"}


def options(tree: dict[str, Any], given: tuple[Path, Path], folder: Path) -> list[str]:
    """Those of pretrain.train for a config."""
    train = tree["pretrain"]["train"]
    own = ["--config", fingerprint("pretrain.train", tree), "--tokens", str(given[0]), "--tokenizer", str(given[1])]
    own += ["--manifest", str(folder / "out/manifest.json"), f"--micro-batch={train['micro_batch']}", "--device=cpu"]
    for key in ("activation_checkpointing", "selective_checkpointing", "async_checkpoints", "checkpoint_every"):
        own.append(f"--{key.replace('_', '-')}={str(train[key]).lower()}")
    return [*own, "--tensorboard=false", "--wandb=disabled"]


def peaks(
    folder: Path, given: tuple[Path, Path], trees: dict[str, dict[str, Any]], tunables: str
) -> dict[str, tuple[int, int]]:
    """(peak resident bytes of process 0, what the trainer estimated) of each training, by its name; `folder` is not there yet."""
    cases = []
    for number, tree in enumerate(trees.values()):
        place = folder / str(number)
        place.mkdir(parents=True)
        cases.append((str(place), options(tree, given, place), tree["pretrain"]["train"]["processes"]))
    own = {"PYTHONPATH": str(ROOT), "GLIBC_TUNABLES": tunables, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.training.peaks"],
        input=json.dumps(cases), cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = {}
    for number, name in enumerate(trees):
        place = folder / str(number)
        record = json.loads((place / "out/run.json").read_text())
        found[name] = (int((place / "peak").read_text()), record["estimated_memory_bytes"])
    return found


def grown(folder: Path, given: tuple[Path, Path], trees: dict[str, dict[str, Any]], tunables: str) -> dict[str, int]:
    """By how many bytes each training takes more than one of next to nothing with the same engine; a few in each start.

    What the trainer estimates before it begins has to be what the plan says.
    """
    found, names = {}, list(trees)
    for first in range(0, len(names), AT_ONCE):
        some = {name: trees[name] for name in names[first : first + AT_ONCE]}
        of = {name: tree["pretrain"]["train"]["engine"] for name, tree in some.items()}
        nothing = {engine: settings(NOTHING, 1, engine=engine) for engine in of.values()}
        one = peaks(folder / f"from-{first}", given, nothing | some, tunables)
        for name, tree in some.items():
            assert one[name][1] == sum(estimated(tree).values())
            found[name] = one[name][0] - one[of[name]][0]
    return found


def start(folder: str, arguments: list[str], place: dict[str, str]) -> int:
    """Fork a process of a training; returns its id."""
    if child := os.fork():
        return child
    os.chdir(folder)
    os.environ |= place | {"OMP_NUM_THREADS": "1"}
    from crawl2llm.stages.pretrain import train
    from crawl2llm.training import run

    machine = run.Run.machine_record

    def noted(self: run.Run) -> dict[str, Any]:
        if self.rank == 0:  # not ru_maxrss, in which the memory of the process that started this one counts
            held = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            assert held
            Path("peak").write_text(str(int(held.group(1)) * 1024))
        return machine(self)

    run.Run.machine_record = noted  # type: ignore[method-assign]
    os._exit(train.main(arguments))


def main() -> int:
    """Train all cases, one after another; the first exit status that is not 0."""
    engines = ("crawl2llm.training.engines.torch", "crawl2llm.training.engines.deepspeed", "deepspeed")
    for module in ("crawl2llm.stages.pretrain.train", *engines, LLAMA):
        importlib.import_module(module)
    for folder, arguments, processes in json.load(sys.stdin):
        places = environments(0, 1, processes, "127.0.0.1", free_port())
        started = [start(folder, arguments, place) for place in places]
        while started:
            child, status = os.wait()
            started.remove(child)
            if status:
                for other in started:
                    os.kill(other, 9)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
