"""The tokenizer in a GGUF file as tokenizer.json, with its special tokens and chat template.

The file has the vocabulary and the merges of a byte-level BPE, and how a text is cut before it only as a name (`tokenizer.ggml.pre`), which
llama.cpp knows (src/llama-vocab.cpp). A name that is not known here is refused: the ids would be others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.gguf_file import Header

MODELS = ("gpt2",)  # of tokenizer.ggml.model: byte-level BPE
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5  # of tokenizer.ggml.token_type
SPECIAL = {  # in tokenizer_config.json, and in the file behind tokenizer.ggml
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "pad_token": "padding_token_id",
    "unk_token": "unknown_token_id",
}
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # of an answer
LLAMA3_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = {**GPT2_BYTES, "use_regex": False}


def _words(expression: str) -> dict[str, Any]:
    """What cuts a text into the matches of an expression."""
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


# How a text is cut before BPE, by tokenizer.ggml.pre.
PRE: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [GPT2_BYTES],
    "smollm": [{"type": "Digits", "individual_digits": True}, GPT2_BYTES],
    "llama-bpe": [_words(LLAMA3_WORDS), BYTES],
    "qwen2": [_words(QWEN2_WORDS), BYTES],
}
NORMALIZER = {"qwen2": {"type": "NFC"}}
# A word that is a token is that token, whatever the merges say, and a text begins with the bos token unless the file says otherwise.
WHOLE_WORDS = ("llama-bpe",)


def check_tokenizer(header: Header, label: str) -> None:
    """Raise InputError that begins with `label` for a file without a tokenizer that is read here."""
    where, keys = f"{label}: {header.path}", header.keys
    if "tokenizer.ggml.tokens" not in keys:
        raise InputError(f"{where} has no tokenizer (tokenizer.ggml.tokens)")
    _check_choice(keys, "tokenizer.ggml.model", MODELS, where)
    _check_choice(keys, "tokenizer.ggml.pre", PRE, where)
    if keys.get("tokenizer.ggml.add_eos_token"):
        raise InputError(f"{where}: tokenizer.ggml.add_eos_token is True; allowed: False")
    tokens = _tokens(header)
    if len(set(tokens.values())) != len(tokens):
        raise InputError(f"{where}: two entries of its vocabulary are the same")
    entries = [header.keys.get(f"tokenizer.ggml.{key}") for key in (*SPECIAL.values(), *ENDS)]
    if wrong := [entry for entry in entries if entry is not None and entry not in tokens]:
        raise InputError(f"{where} has the special token {wrong[0]!r}, which is not in its vocabulary")
    if "tokenizer.ggml.eos_token_id" not in keys:
        raise InputError(f"{where} has no end token (tokenizer.ggml.eos_token_id)")


def _check_choice(keys: dict[str, Any], key: str, allowed: Collection[str], where: str) -> None:
    if keys.get(key) not in allowed:
        raise InputError(
            f"{where}: {key} is {keys.get(key)!r}; allowed: {', '.join(allowed)} (of others name the folder of safetensors)"
        )


def _tokens(header: Header) -> dict[int, str]:
    """The vocabulary by id, without the rows that only fill up the matrix of embeddings."""
    tokens: list[str] = header.keys["tokenizer.ggml.tokens"]
    types = _types(header)
    return {
        number: token
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if not (kind == UNUSED and token.startswith("[PAD"))
    }


def _types(header: Header) -> list[int]:
    """The type of each entry."""
    tokens = header.keys["tokenizer.ggml.tokens"]
    types: list[int] = header.keys.get("tokenizer.ggml.token_type", [])
    return types if len(types) == len(tokens) else [NORMAL] * len(tokens)


def tokenizer_json(header: Header) -> dict[str, Any]:
    """tokenizer.json. The header is one that `check_tokenizer` takes."""
    pre, tokens, types = header.keys["tokenizer.ggml.pre"], _tokens(header), _types(header)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": number, "content": token, **flags, "special": types[number] != USER_DEFINED}
        for number, token in tokens.items()
        if types[number] in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    cut = PRE[pre]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": NORMALIZER.get(pre),
        "pre_tokenizer": cut[0] if len(cut) == 1 else {"type": "Sequence", "pretokenizers": cut},
        "post_processor": _post_processor(header, tokens),
        "decoder": GPT2_BYTES,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in WHOLE_WORDS,
            "vocab": {token: number for number, token in tokens.items()},
            "merges": [merge.split(" ") for merge in header.keys.get("tokenizer.ggml.merges", [])],
        },
    }


def _post_processor(header: Header, tokens: dict[int, str]) -> dict[str, Any]:
    """What is done with the ids of a text: the bos token comes first where the file says so."""
    default = header.keys["tokenizer.ggml.pre"] in WHOLE_WORDS
    bos = header.keys.get("tokenizer.ggml.bos_token_id")
    if bos is None or not header.keys.get("tokenizer.ggml.add_bos_token", default):
        return {**GPT2_BYTES, "trim_offsets": False}
    first, second = (
        [{"SpecialToken": {"id": tokens[bos], "type_id": kind}}, {"Sequence": {"id": name, "type_id": kind}}]
        for kind, name in enumerate("AB")
    )
    special = {tokens[bos]: {"id": tokens[bos], "ids": [bos], "tokens": [tokens[bos]]}}
    return {"type": "TemplateProcessing", "single": first, "pair": [*first, *second], "special_tokens": special}


def tokenizer_config(header: Header, context: int) -> dict[str, Any]:
    """tokenizer_config.json. context: tokens."""
    tokens = _tokens(header)
    named = {name: header.keys.get(f"tokenizer.ggml.{key}") for name, key in SPECIAL.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        **{name: tokens[number] for name, number in named.items() if number is not None},
    }


def special_ids(header: Header) -> dict[str, Any]:
    """`bos_token_id`, `eos_token_id` (a list where an answer has several ends) and `pad_token_id`, as far as the file has them."""
    named = (header.keys.get(f"tokenizer.ggml.{key}") for key in ENDS)
    ends = list(dict.fromkeys(end for end in named if end is not None))
    ids = {
        "bos_token_id": header.keys.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": header.keys.get("tokenizer.ggml.padding_token_id"),
    }
    return {key: value for key, value in ids.items() if value is not None}


def chat_template(header: Header) -> str | None:
    """The chat template, a Jinja text; None if the file has none."""
    return header.keys.get("tokenizer.chat_template")
