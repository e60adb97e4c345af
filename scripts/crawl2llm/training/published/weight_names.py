"""Names of weights as this project's models have them: with the prefix of the language model, and without what is no weight.

Some models are published as their body alone, whose names lack `model.` or `transformer.`, and older ones hold tables of positions that
transformers makes anew (`rotary_emb.inv_freq`, GPT-2's masks).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crawl2llm.training.published.model_files import safetensors_entries

NOT_WEIGHTS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|h\.\d+\.attn\.(bias|masked_bias))$")
BODIES = {"embed_tokens.weight": "model.", "wte.weight": "transformer."}  # by a name of a body alone
HEAD = "lm_head."
PIECE = 1 << 26  # bytes that are copied at once


def own_names(names: Iterable[str]) -> dict[str, str]:
    """The name that each weight gets, of all names of a model; without those of NOT_WEIGHTS."""
    kept = [name for name in names if not NOT_WEIGHTS.search(name)]
    prefix = next((prefix for name, prefix in BODIES.items() if name in kept), "")
    return {name: name if name.startswith(HEAD) else prefix + name for name in kept}


def write_renamed(source: Path, to: Path, new_names: dict[str, str]) -> None:
    """Write a file of safetensors whose weights have their names of `new_names`, without those that have none. Memory: PIECE bytes."""
    entries, begin = safetensors_entries(source, str(source))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    spans, at = [], 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"][0]):
        if name in new_names:
            first, end = entry["data_offsets"]
            header[new_names[name]] = {**entry, "data_offsets": [at, at + end - first]}
            spans.append((first, end))
            at += end - first
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with source.open("rb") as data, to.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for first, end in spans:
            data.seek(begin + first)
            for start in range(first, end, PIECE):
                out.write(data.read(min(PIECE, end - start)))
