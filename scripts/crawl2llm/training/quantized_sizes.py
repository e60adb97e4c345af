"""The sizes of layers that methods of compress.quantize take: asked by the plan too, so nothing heavy is imported."""

from __future__ import annotations

# bitsandbytes (functional.py, _convert_weight_packed_for_cpu): on a processor with AVX512-BF16 a row of a matrix has to be whole blocks of
# 64 weights, and the rows have to be a multiple of 32. Elsewhere any shape goes; the model has to run on all of them.
BLOCK, ROWS = 64, 32
GROUPS = (128, 64, 32)  # weights with a common scale, of int4, gptq and awq
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3")  # types whose decoder layers are built as a Llama's
