"""Weights packed as four-bit integers (int4, gptq and awq of compress.quantize), read as floating-point numbers.

The format is `pack-quantized` of compressed-tensors (src/compressed_tensors/compressors/pack_quantized in
https://github.com/vllm-project/compressed-tensors). A layer of `outputs` × `inputs` weights has

weight_packed      int32 [outputs, inputs / 8]: eight numbers in a word, the first in its lowest bits, each larger by 8 than what it means
weight_scale       floating point [outputs, inputs / group]
weight_zero_point  int32 [outputs / 8, inputs / group], packed along the outputs; only where the grid is not symmetric
weight_shape       int64 [2]

and a weight is (number − zero point) × scale. Kernels that multiply with packed weights compute the same products; here they are
expanded first, so that no further library is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.quantized_weights import SECTION, config_of

if TYPE_CHECKING:
    import torch

METHOD, FORMAT = "compressed-tensors", "pack-quantized"
BITS, IN_A_WORD = 4, 8
PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape")


def is_packed(folder: Path | str) -> bool:
    """Whether config.json in a model's folder says that its weights are packed in this way; no for a folder without a readable one."""
    quantization = config_of(folder).get(SECTION)
    return isinstance(quantization, dict) and (quantization.get("quant_method"), quantization.get("format")) == (
        METHOD,
        FORMAT,
    )


def unpack_words(words: torch.Tensor, length: int) -> torch.Tensor:
    """The numbers of int32 words [rows, words] as int32 [rows, length], from -8 to 7."""
    import torch

    shifts = torch.arange(IN_A_WORD, dtype=torch.int32) * BITS
    numbers = (words.unsqueeze(-1) >> shifts) & (2**BITS - 1)
    return numbers.flatten(1)[:, :length] - 2 ** (BITS - 1)


def pack_numbers(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers from -8 to 7, [rows, length], as int32 words; the inverse of `unpack_words`."""
    import torch

    padded = torch.nn.functional.pad(numbers.long() + 2 ** (BITS - 1), (0, -numbers.shape[1] % IN_A_WORD))
    shifted = padded.unflatten(1, (-1, IN_A_WORD)) << (torch.arange(IN_A_WORD) * BITS)
    return shifted.sum(-1).to(torch.int32)


def dequantize_layer(parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """The weights of a layer, fp32 [outputs, inputs], of its PARTS. Raises ValueError if their shapes do not go together."""
    outputs, inputs = (int(size) for size in parts["weight_shape"])
    scale = parts["weight_scale"].float()
    groups = scale.shape[-1]
    if (
        scale.shape[0] != outputs
        or inputs % groups
        or parts["weight_packed"].shape != (outputs, -(-inputs // IN_A_WORD))
    ):
        raise ValueError(f"a layer of {outputs} × {inputs} has scales {list(scale.shape)}")
    numbers = unpack_words(parts["weight_packed"], inputs).unflatten(1, (groups, -1)).float()
    if (zero := parts.get("weight_zero_point")) is not None:
        numbers = numbers - unpack_words(zero.T.contiguous(), outputs).T.unsqueeze(-1)
    return (numbers * scale.unsqueeze(-1)).flatten(1)


def read(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter's name and value in a folder of packed weights; those of packed layers as fp32 [outputs, inputs].

    Raises InputError that names a layer whose parts do not go together.
    """
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            names = set(tensors.keys())
            for name in sorted(names):
                stem, _, part = name.rpartition(".")
                if part == PARTS[0]:
                    stored = [part for part in PARTS if f"{stem}.{part}" in names]
                    layer = {part: tensors.get_tensor(f"{stem}.{part}") for part in stored}
                    try:
                        yield f"{stem}.weight", dequantize_layer(layer)
                    except (KeyError, ValueError) as error:
                        raise InputError(f"{file}: {stem} is not packed as {FORMAT} says: {error}") from error
                elif part not in PARTS:
                    yield name, tensors.get_tensor(name)


def load(folder: Path | str, dtype: torch.dtype) -> Any:
    """The model of a folder of packed weights, expanded into weights of this type, on the CPU.

    Raises InputError for a folder that lacks weights, or has others than its config.json tells of.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    delattr(config, SECTION)
    model = AutoModelForCausalLM.from_config(config, trust_remote_code=False, dtype=dtype)
    weights = {name: value.to(dtype) for name, value in read(Path(folder))}
    missing, unknown = model.load_state_dict(weights, strict=False)
    tied = set(getattr(model, "all_tied_weights_keys", None) or {}) if config.tie_word_embeddings else set()
    if differing := [*(set(missing) - tied), *unknown]:
        raise InputError(
            f"{folder}: not a model that transformers reads: its weights and config.json differ in {min(differing)}"
        )
    model.tie_weights()
    return model
