"""The size of a published model by its config.json and the headers of its weights, for plans and checks. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crawl2llm.training.published import gguf_architectures, gguf_tokenizer, weight_names
from crawl2llm.training.published.gguf_file import read_header
from crawl2llm.training.published.model_files import CONFIG, is_gguf, read_json, safetensors_entries, weight_files

HEADS = ("lm_head.weight", "embed_out.weight")  # the second of a GPT-NeoX
OTHER_NAMES = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
               "max_position_embeddings": "n_positions", "intermediate_size": "n_inner"}  # fmt: skip


@dataclass(frozen=True)
class PublishedSizes:
    """config: config.json, or what a GGUF file gives; of several models in one, the language model's part. shapes: of weights by name."""

    config: dict[str, Any]
    shapes: dict[str, list[int]]

    def value(self, key: str) -> Any:
        """A key of config.json, by the name that a Llama has for it; None without."""
        return self.config.get(key) or self.config.get(OTHER_NAMES.get(key, key))

    @property
    def ties_embeddings(self) -> bool:
        """Whether the head is the table of the embeddings."""
        return bool(self.config.get("tie_word_embeddings")) or self.shapes.keys().isdisjoint(HEADS)

    @property
    def parameters(self) -> int:
        """All; tied embeddings once. Of a quantized model what its files hold."""
        return sum(prod(shape) for name, shape in self.shapes.items() if not (self.ties_embeddings and name in HEADS))

    @property
    def is_quantized(self) -> bool:
        """Whether its weights are rounded, so that it cannot be trained."""
        return bool(self.config.get("quantization_config"))

    def as_config(self) -> Any:
        """What `memory.shape_of_config` reads."""
        keys = {key: self.value(key) for key in (*OTHER_NAMES, "vocab_size")}
        return SimpleNamespace(**{**self.config, **keys, "tie_word_embeddings": self.ties_embeddings})


def read_sizes(source: Path, where: str) -> PublishedSizes:
    """The sizes of a folder or GGUF file that `check_published` takes. Raises InputError that begins with `where`."""
    if is_gguf(source):
        header = read_header(source, where)
        config = gguf_architectures.model_config(header, gguf_tokenizer.special_ids(header))
        weights = gguf_architectures.weights_of(header)
        return PublishedSizes(config, {name: list(weight.stored.shape) for name, weight in weights.items()})
    config = read_json(source / CONFIG, where)
    shapes: dict[str, list[int]] = {}
    for file in weight_files(source, where):
        shapes |= {name: entry["shape"] for name, entry in safetensors_entries(file, where)[0].items()}
    names = weight_names.own_names(shapes)
    return PublishedSizes(
        {**config, **config.get("text_config", {})}, {new: shapes[name] for name, new in names.items()}
    )
