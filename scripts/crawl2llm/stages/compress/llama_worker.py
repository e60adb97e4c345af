"""What runs beside llama.cpp, in a process of its own: conversion, quantization, tokens and logits.

    python -m crawl2llm.stages.compress.llama_worker JOB.json      # `do`, and what each function below takes; the result goes to `to`

The path of modules holds the tools of `make gguf-tools`. llama.cpp ends a process where it does not like a file: the caller's goes on.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BATCH = 256  # tokens whose logits are in memory at a time
FILE_TYPES = {"q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0", "q4_k_m": "LLAMA_FTYPE_MOSTLY_Q4_K_M"}


def convert_model(job: dict[str, Any]) -> dict[str, Any]:
    """A folder of safetensors as a GGUF file, by llama.cpp's convert_hf_to_gguf.py, which is told how texts are cut (`pre`)."""
    sys.path.insert(0, job["converter"])
    import convert_hf_to_gguf
    from conversion.base import ModelBase, TextModel

    load_hparams = ModelBase.load_hparams
    ModelBase.load_hparams = staticmethod(lambda *given, **named: with_old_keys(load_hparams(*given, **named)))
    TextModel.get_vocab_base_pre = lambda *_: job["pre"]  # it knows published tokenizers by a hash of what they do
    sys.argv = [
        "convert",
        job["model"],
        "--outfile",
        job["file"],
        "--outtype",
        job["type"],
        "--model-name",
        job["name"],
    ]
    convert_hf_to_gguf.main()
    return {}


def with_old_keys(config: dict[str, Any]) -> dict[str, Any]:
    """A config.json with what the converter reads and transformers no longer writes."""
    rope = config.get("rope_parameters") or {}
    old_keys = {"n_ctx": config.get("n_positions"), "rotary_pct": rope.get("partial_rotary_factor")}
    return {**{key: value for key, value in old_keys.items() if value is not None}, **config}


def quantize_file(job: dict[str, Any]) -> dict[str, Any]:
    """A GGUF file of 32-bit weights as one of another type, by llama.cpp's quantizer."""
    import llama_cpp as api

    parameters = api.llama_model_quantize_default_params()
    parameters.nthread, parameters.ftype = job["threads"], getattr(api, FILE_TYPES[job["type"]])
    if api.llama_model_quantize(job["source"].encode(), job["file"].encode(), ctypes.byref(parameters)):
        raise SystemExit(f"llama.cpp cannot make {job['type']} of {job['source']}")
    return {}


def tensor_types(file: str) -> dict[str, Any]:
    """`types`: how many of a file's matrices have each type; `rows`: how long their rows are. What has one dimension is never quantized."""
    from gguf import GGUFReader

    matrices = [tensor for tensor in GGUFReader(file).tensors if len(tensor.shape) > 1]
    types = Counter(tensor.tensor_type.name for tensor in matrices)
    return {"types": dict(types), "rows": sorted({int(tensor.shape[0]) for tensor in matrices})}


class LoadedModel:
    """A GGUF file in memory. context: tokens; 0: those that it was trained with. exact: keys and values have 32 bits, not 16.

    Ends the process (SystemExit) where llama.cpp does not take the file.
    """

    def __init__(self, file: str, context: int, threads: int, exact: bool = False) -> None:
        import llama_cpp as api

        self.api = api
        self.model = api.llama_model_load_from_file(file.encode(), api.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {file}")
        parameters = api.llama_context_default_params()
        parameters.n_ctx = context
        parameters.n_batch = BATCH
        parameters.n_ubatch = BATCH
        parameters.n_threads = threads
        parameters.n_threads_batch = threads
        if exact:
            parameters.type_k = parameters.type_v = api.GGML_TYPE_F32
        self.context = api.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot run {file}")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.size = int(api.llama_vocab_n_tokens(self.vocab))

    def token_ids(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text, in which special tokens are text, or with `special` themselves."""
        raw = text.encode()
        room = (ctypes.c_int32 * (len(raw) + 8))()
        number = self.api.llama_tokenize(self.vocab, raw, len(raw), room, len(room), False, special)
        return list(room[: max(number, 0)])

    def clear_memory(self) -> None:
        """Forget all that was read."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def close(self) -> None:
        """Give the memory back."""
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)

    def logits(self, ids: list[int]) -> Iterator[npt.NDArray[np.float32]]:
        """The logits after each of the ids of a window, shape [up to BATCH, vocabulary] at a time; valid until the next."""
        self.clear_memory()
        batch = self.api.llama_batch_init(BATCH, 0, 1)
        try:
            for start in range(0, len(ids), BATCH):
                part = ids[start : start + BATCH]
                batch.n_tokens = len(part)
                for at, token in enumerate(part):
                    batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, start + at, 1
                    batch.seq_id[at][0], batch.logits[at] = 0, 1
                if self.api.llama_decode(self.context, batch):
                    raise SystemExit(f"llama.cpp cannot read {len(ids)} tokens")
                values = self.api.llama_get_logits(self.context)
                yield np.ctypeslib.as_array(values, shape=(len(part), self.size))
        finally:
            self.api.llama_batch_free(batch)


@contextmanager
def open_model(job: dict[str, Any]) -> Iterator[LoadedModel]:
    """The file of a job."""
    model = LoadedModel(job["file"], job["context"], job["threads"])
    try:
        yield model
    finally:
        model.close()


def measure_file(job: dict[str, Any]) -> dict[str, Any]:
    """A GGUF file run by llama.cpp: `tokens` of the job's texts; `nats` of the scored tokens of each window; and how its logits differ from
    those in the file `logits` (shape [positions, vocabulary]), which are of the first scored positions.

    Differences are of logits less their mean, since a constant changes no probability: `mean`, `max` and `root` (mean square).
    """
    difference = LogitDifference(np.load(job["logits"], mmap_mode="r"))
    nats = []
    with open_model(job) as model:
        token_lists = [model.token_ids(text) for text in job["texts"]]
        for ids, scored in job["windows"]:
            inputs, targets = ids[:-1], np.array(ids[1:])
            start, lost = 0, 0.0
            for part in model.logits(inputs):
                first = max(len(inputs) - scored - start, 0)
                values = part[first:].astype(np.float64)
                if len(values):
                    top = values.max(1)
                    likely = values[np.arange(len(values)), targets[start + first : start + len(part)]]
                    lost += float((top + np.log(np.exp(values - top[:, None]).sum(1)) - likely).sum())
                    difference.add(values)
                start += len(part)
            nats.append(lost)
    return {"tokens": token_lists, "nats": nats, **tensor_types(job["file"]), **difference.summary()}


class LogitDifference:
    """How logits differ from those that are wanted, shape [positions, vocabulary], of the same positions in the same order."""

    def __init__(self, reference: npt.NDArray[np.float32]) -> None:
        self.wanted, self.done, self.same = reference, 0, 0
        self.total = self.square = self.largest = 0.0

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """More positions; those that nothing is wanted of are passed over."""
        reference = self.wanted[self.done : self.done + len(values)].astype(np.float64)
        values = values[: len(reference)]
        if not len(values):
            return
        differences = np.abs((values - values.mean(1, keepdims=True)) - (reference - reference.mean(1, keepdims=True)))
        self.total += float(differences.mean(1).sum())
        self.square += float((differences**2).mean(1).sum())
        self.largest = max(self.largest, float(differences.max()))
        self.same += int((values.argmax(1) == reference.argmax(1)).sum())
        self.done += len(values)

    def summary(self) -> dict[str, float]:
        """What was found, over all positions."""
        number = self.done
        return {
            "compared": number, "mean": self.total / number, "max": self.largest, "root": (self.square / number) ** 0.5,
            "same": self.same / number,
        }  # fmt: skip


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "convert": convert_model,
    "quantize": quantize_file,
    "measure": measure_file,
}


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result = JOBS[job["do"]](job)
    Path(job["to"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
