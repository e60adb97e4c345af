"""Which of llama.cpp's pre-tokenizers cut texts as a tokenizer does: python -m tests.unit.stages.compress.pre_tokenizers FILE.gguf IDS.json

IDS.json is [[text, ids], …]. Every name that llama.cpp's converter knows takes the place of the file's own; those that give all ids are
printed, one a line.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import llama_cpp as api

KEY = b"tokenizer.ggml.pre"


def cuts(file: str, name: str, wanted: list[tuple[str, list[int]]]) -> bool:
    """Whether a file's vocabulary with the pre-tokenizer `name` gives the ids of all texts; False for a name that llama.cpp refuses."""
    override = (api.llama_model_kv_override * 2)()  # the second, whose key is empty, ends them
    override[0].tag, override[0].key = api.LLAMA_KV_OVERRIDE_TYPE_STR, KEY
    override[0].value.val_str = name.encode()
    told = api.llama_model_default_params()
    told.vocab_only, told.kv_overrides = True, override
    model = api.llama_model_load_from_file(file.encode(), told)
    if not model:
        return False
    vocabulary = api.llama_model_get_vocab(model)
    same = True
    for text, ids in wanted:
        raw = text.encode()
        room = (api.llama_token * (len(raw) + 8))()
        number = api.llama_tokenize(vocabulary, raw, len(raw), room, len(room), False, False)
        same = same and list(room[: max(number, 0)]) == ids
    api.llama_model_free(model)
    return same


if __name__ == "__main__":
    file, given, converter = sys.argv[1:]
    names = sorted(
        set(re.findall(r'res = "([^"]+)"', (Path(converter) / "conversion/base.py").read_text(encoding="utf-8")))
    )
    wanted = json.loads(Path(given).read_text(encoding="utf-8"))
    print(f"{len(names)} names")
    print("\n".join(name for name in names if cuts(file, name, wanted)))
