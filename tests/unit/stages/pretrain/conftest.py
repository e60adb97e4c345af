"""Real shards in tokenize.encode's format, a real tokenizer, and the training program as a subprocess."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import canonical_json, code_hashes, fingerprint
from crawl2llm.core.manifest import Manifest
from tests.unit.stages.pretrain import copies

ROOT = Path(__file__).resolve().parents[4]
SENTENCES = (
    "The river bends twice before it meets the sea. ",
    "A list keeps the order in which its items were added. ",
    "Nobody in the village remembered when the mill had stopped. ",
    "Reading a file line by line needs little memory. ",
)


def texts(count: int, seed: int) -> list[str]:
    """English-like documents of two to ten sentences."""
    pick = random.Random(seed)  # noqa: S311
    return ["".join(pick.choices(SENTENCES, k=pick.randint(2, 10))) for _ in range(count)]


def write_indexed(stem: Path, documents: list[list[int]], dtype: type = np.uint16) -> None:
    """Megatron's indexed dataset, version 1, one sequence a document."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    np.array([token for document in documents for token in document], dtype).tofile(stem.with_suffix(".bin"))
    sizes = np.array([len(document) for document in documents], np.int32)
    ends = np.cumsum(sizes, dtype=np.int64) * np.dtype(dtype).itemsize
    with stem.with_suffix(".idx").open("wb") as handle:
        head = (1, {np.uint16: 8, np.int32: 4}[dtype], len(documents), len(documents) + 1)
        handle.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", *head))
        handle.write(sizes.tobytes() + np.concatenate([[0], ends])[: len(documents)].astype(np.int64).tobytes())
        handle.write(np.arange(len(documents) + 1, dtype=np.int64).tobytes())


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a byte-level BPE tokenizer with 300 entries; token 0 is `<|endoftext|>`."""
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def write_tokenizer(folder: Path) -> Path:
    """As `tokenizer`, into a folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    made.train_from_iterator(texts(200, 0), trainer)
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>").save_pretrained(folder)  # noqa: S106
    manifest = Manifest("tokenize.train", "test")
    return manifest.write(folder / "manifest.json", list(folder.glob("*.json"))).folder / "manifest.json"


@pytest.fixture(scope="session")
def shards(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Manifests of two tokenize.encode shards: 240 training documents and 24 for validation each."""
    return write_shards(tokenizer, tmp_path_factory.mktemp("encode"))


def write_shards(tokenizer: Path, folder: Path) -> list[Path]:
    """As `shards`, into a folder."""
    from transformers import AutoTokenizer

    encode, out = AutoTokenizer.from_pretrained(tokenizer.parent), []
    for shard in ("00000", "00001"):
        files = []
        for split, count in (("train", 240), ("validation", 24)):
            documents = texts(count, int(shard) * 2 + count)
            tokens = [[*encode(text)["input_ids"], 0] for text in documents]
            stem = folder / split / shard
            write_indexed(stem, tokens)
            sizes = [len(row) for row in tokens]
            table = {
                "id": [f"{split}-{shard}-{n}" for n in range(count)],
                "offset": [sum(sizes[:n]) for n in range(count)],
                "tokens": sizes,
                "bytes": [len(text.encode()) for text in documents],
            }
            pq.write_table(pa.table(table), stem.with_suffix(".docs.parquet"))
            files += [stem.with_suffix(suffix) for suffix in (".bin", ".idx", ".docs.parquet")]
        path = folder / f"{shard}.manifest.json"
        Manifest("tokenize.encode", "test").write(path, files)
        out.append(path)
    return out


@pytest.fixture(scope="session")
def sourced(shards: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Manifests of the same two shards, the first from the source `books` and the second from `web`."""
    folder, out = tmp_path_factory.mktemp("sourced"), []
    for path, source in zip(shards, ("books", "web"), strict=True):
        found, files = Manifest.read(path), []
        for name in found.files:
            split, _, file = name.partition("/")
            target = folder / split / source / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(found.file(name).read_bytes())
            files.append(target)
        Manifest("tokenize.encode", "test").write(folder / path.name, files)
        out.append(folder / path.name)
    return out


def build(config: Any, seed: int) -> Any:
    """A model of a configuration of transformers with the weights that a run begins with: fp32, on the CPU."""
    import torch

    from crawl2llm.training import initial

    return initial.fill_model(initial.empty_model(config), torch.device("cpu"), initial.random_weights(config, seed))


TINY: dict[str, Any] = {
    "model": {"hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "context": 32},
    "steps": 24,
    "global_batch_tokens": 256,
    "learning_rate": 0.005,
    "warmup": 0.1,
    "precision": "fp32",
    "save_dtype": "fp32",
    "zero_stage": 1,
    "validate_every": 8,
    "validation_tokens": 1500,
    "threads": 1,
}
Start = Callable[..., "subprocess.Popen[str]"]


def launching(
    folder: Path,
    tokenizer: Path,
    tokens: list[Path],
    processes: int,
    changes: dict[str, Any],
    options: tuple[str, ...] = (),
    program: str = "crawl2llm.stages.pretrain.train",
    root: Path = ROOT,
    launcher: tuple[str, ...] = (),
) -> list[str]:
    """The command that trains into `folder`; see `start`."""
    complete = config.validate({"pretrain": {"train": TINY | changes}})
    body = json.loads(fingerprint("pretrain.train", complete))  # as the workflow passes it
    mark = canonical_json(body | {"code": code_hashes("crawl2llm.stages.pretrain.train", root)})
    launch = [sys.executable, "-m", "crawl2llm.training.launch", "--processes", str(processes), *launcher, program]
    own = ["--config", mark, "--tokenizer", str(tokenizer), "--manifest", str(folder / "out/manifest.json")]
    usual = ["--device", "cpu", "--micro-batch", "2", "--checkpoint-every", "5", "--log-every", "1"]
    quiet = ["--wandb", "disabled", "--tensorboard", "false"]
    return [*launch, *own, *usual, *quiet, *options, "--tokens", *map(str, tokens)]


@pytest.fixture
def start(tokenizer: Path, shards: list[Path]) -> Iterator[Start]:
    """start(folder, processes, changes of TINY, options): the launcher, running in `folder`, in a process group.

    program: another module than crawl2llm.stages.pretrain.train. root: another copy of the code. launcher: its further options. tokens:
    other shards. copied: as a copy of a process that has imported all (copies.py). Further keywords are environment variables.
    """

    def of(
        folder: Path,
        processes: int = 2,
        changes: dict[str, Any] | None = None,
        *options: str,
        program: str = "crawl2llm.stages.pretrain.train",
        root: Path = ROOT,
        launcher: tuple[str, ...] = (),
        tokens: list[Path] = shards,
        copied: bool = True,
        **variables: str,
    ) -> Any:
        folder.mkdir(exist_ok=True)
        command = launching(folder, tokenizer, tokens, processes, changes or {}, options, program, root, launcher)
        environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'scripts'}", "OMP_NUM_THREADS": "1", **variables}
        process: Any
        if copied and root == ROOT:
            process = copies.Launched(command[3:], folder, environment)
        else:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
        begun.append(process)
        return process

    begun: list[Any] = []
    yield of
    for process in begun:  # a test that failed half-way leaves nothing running
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
