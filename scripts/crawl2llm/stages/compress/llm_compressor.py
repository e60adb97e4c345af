"""What runs in the quantizers' environment, in a process of its own: GPTQ and AWQ by llm-compressor.

    .quantize/bin/python -I scripts/crawl2llm/stages/compress/llm_compressor.py JOB.json

The job has `model` (folder of safetensors), `ids` (.npy, int64 [windows, context]), `method`, `group_size`, `keep` (names of the linear
layers that stay as they are), `threads`, `to` (folder for the result) and `told` (a file for what it says of itself). Nothing of the
project is imported here: the environment has other packages.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

BITS = 4
BATCH = 8  # windows that are read at once


def recipe(job: dict[str, Any]) -> list[Any]:
    """llm-compressor's modifiers of a method.

    gptq: arXiv:2210.17323; a symmetric grid, columns in the order of their activations (`static`, which changes no group).
    awq: arXiv:2306.00978; scales of channels by a grid search of 20 points, then round-to-nearest on a grid with zero points.
    nearest: that alone, on the grid of gptq, with which tests compare.
    """
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier

    grid = QuantizationArgs(
        num_bits=BITS, type="int", strategy="group", group_size=job["group_size"], symmetric=job["method"] != "awq"
    )
    groups = {"group_0": QuantizationScheme(targets=["Linear"], weights=grid)}
    options = {"config_groups": groups, "ignore": job["keep"]}
    if job["method"] == "gptq":
        return [GPTQModifier(**options)]
    plain = QuantizationModifier(**options)
    return [AWQModifier(), plain] if job["method"] == "awq" else [plain]


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.environ.update({"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""})
    import numpy as np
    import torch
    from llmcompressor import oneshot
    from llmcompressor.pipelines.cache import IntermediatesCache
    from torch.utils.data import DataLoader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # It pins memory for copies to a GPU, also where there is none (0.14, pipelines/cache.py), which torch refuses.
    IntermediatesCache.pin_memory = lambda *_, **__: None
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    # fp32, and on the CPU also where a GPU is: the same bytes everywhere.
    model = AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    ids = torch.from_numpy(np.load(job["ids"], allow_pickle=False))
    rows: Any = [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids.split(BATCH)]
    oneshot(
        model=model,
        tokenizer=AutoTokenizer.from_pretrained(job["model"], local_files_only=True, trust_remote_code=False),
        dataset=DataLoader(rows, batch_size=None, shuffle=False),
        num_calibration_samples=len(rows),
        max_seq_length=ids.shape[1],
        recipe=recipe(job),
    )
    model.save_pretrained(job["to"], save_compressed=True)
    from importlib.metadata import version

    versions = {name: version(name) for name in ("llmcompressor", "compressed-tensors", "transformers", "torch")}
    Path(job["told"]).write_text(json.dumps(versions), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
