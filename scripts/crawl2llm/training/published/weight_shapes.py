"""Whether the weights of a published model are those of its config.json: names and shapes, by headers alone. Nothing here needs torch.

A Llama, what is built as one and GPT-2 are known weight by weight; of other types the table of tokens and the number of layers.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from crawl2llm.training.published.sizes import PublishedSizes
from crawl2llm.training.quantized_sizes import LLAMA_LIKE

GPT2 = "gpt2"
TEXT = "text_config"  # in config.json, of the language model of several in one
TABLE = re.compile(r"(?:^|\.)(embed_tokens|wte|embed_in|word_embeddings|embeddings)\.weight$")
TABLE_WIDTHS = (
    "word_embed_proj_dim",
    "input_embedding_size",
    "embedding_size",
    "hidden_size",
)  # keys of config.json, the first that is there
LAYER = re.compile(r"((?:.*?\.)?(?:layers|layer|h|blocks))\.(\d+)\.")
HEAD_SIZES = {"qwen3": 128}  # where config.json has no head_dim, by transformers
KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32}  # the same of num_key_value_heads
Shapes = dict[str, list[int]]


def weight_problem(sizes: PublishedSizes) -> tuple[str, str]:
    """(the first weight that config.json does not have so, what is wrong with it in words); ("", "") if there is none.

    Of a quantized model nothing is said: its files have other names.
    """
    if sizes.is_quantized:
        return "", ""
    kind = "" if TEXT in sizes.config else sizes.config.get("model_type")  # of several models in one names differ
    needed = gpt2_shapes(sizes) if kind == GPT2 else {}
    if kind in LLAMA_LIKE:
        needed = llama_shapes(sizes)
    if not needed:
        return other_problem(sizes)
    for name, shape in needed.items():
        if name not in sizes.shapes:
            return name, "is in none of its files"
        if sizes.shapes[name] != shape:
            return name, f"is {sizes.shapes[name]}, not {shape}"
    more = next((name for name in sizes.shapes if LAYER.match(name) and name not in needed), "")
    return more, "is one more" if more else ""


def llama_shapes(sizes: PublishedSizes) -> Shapes:
    """The weights of a model of LLAMA_LIKE by its config.json; none where that lacks a key. A head that is tied is in no file."""
    config, kind = sizes.config, str(sizes.config["model_type"])
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if not all(isinstance(config.get(key), int) for key in keys):
        return {}
    hidden, feed, layers, heads, rows = (config[key] for key in keys)
    size = config.get("head_dim") or HEAD_SIZES.get(kind) or hidden // heads
    wide, kv = heads * size, (config.get("num_key_value_heads") or KV_HEADS.get(kind, heads)) * size
    matrices = {
        "self_attn.q_proj": [wide, hidden], "self_attn.k_proj": [kv, hidden], "self_attn.v_proj": [kv, hidden],
        "self_attn.o_proj": [hidden, wide], "mlp.gate_proj": [feed, hidden], "mlp.up_proj": [feed, hidden],
        "mlp.down_proj": [hidden, feed],
    }  # fmt: skip
    attention_bias = bool(config.get("attention_bias")) and kind in ("llama", "qwen3")
    biased = [name for name in matrices if attention_bias and name.startswith("self_attn")]
    biased += [name for name in matrices if kind == "llama" and config.get("mlp_bias") and name.startswith("mlp")]
    biased += list(matrices)[:3] if kind == "qwen2" else []
    layer = {f"{name}.weight": shape for name, shape in matrices.items()}
    layer |= {f"{name}.bias": matrices[name][:1] for name in biased}
    layer |= {f"{name}.weight": [hidden] for name in ("input_layernorm", "post_attention_layernorm")}
    layer |= {f"self_attn.{name}.weight": [size] for name in ("q_norm", "k_norm") if kind == "qwen3"}
    shapes = {"model.embed_tokens.weight": [rows, hidden], "model.norm.weight": [hidden]}
    shapes |= {f"model.layers.{number}.{name}": shape for number in range(layers) for name, shape in layer.items()}
    return shapes | ({} if config.get("tie_word_embeddings") else {"lm_head.weight": [rows, hidden]})


def gpt2_shapes(sizes: PublishedSizes) -> Shapes:
    """The same of a GPT-2, whose matrices are transposed."""
    keys = ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings")
    hidden, layers, rows, context = (sizes.value(key) for key in keys)
    if not all(isinstance(value, int) for value in (hidden, layers, rows, context)):
        return {}
    feed = sizes.config.get("n_inner") or 4 * hidden
    matrices = {"attn.c_attn": [hidden, 3 * hidden], "attn.c_proj": [hidden, hidden], "mlp.c_fc": [hidden, feed],
                "mlp.c_proj": [feed, hidden]}  # fmt: skip
    layer = {f"{name}.weight": shape for name, shape in matrices.items()}
    layer |= {f"{name}.bias": shape[1:] for name, shape in matrices.items()}
    layer |= {f"{name}.{part}": [hidden] for name in ("ln_1", "ln_2") for part in ("weight", "bias")}
    shapes = {"wte.weight": [rows, hidden], "wpe.weight": [context, hidden]}
    shapes |= {f"ln_f.{part}": [hidden] for part in ("weight", "bias")}
    shapes |= {f"h.{number}.{name}": shape for number in range(layers) for name, shape in layer.items()}
    return {f"transformer.{name}": shape for name, shape in shapes.items()}


def other_problem(sizes: PublishedSizes) -> tuple[str, str]:
    """As `weight_problem`, of any type: the table of tokens has the name and the shape, and there are as many layers."""
    kind, layers = str(sizes.config.get("model_type")), sizes.value("num_hidden_layers")
    tables = {name: match[1] for name in sizes.shapes if (match := TABLE.search(name))}
    source = "" if TEXT in sizes.config else modeling_source(kind)
    for name, attribute in tables.items() if source else ():
        if f"self.{attribute}" not in source:
            return name, f"is no weight of a {kind}"
    wanted = [sizes.value("vocab_size"), *(sizes.config[key] for key in TABLE_WIDTHS if sizes.config.get(key))][:2]
    if len(tables) == 1 and len(wanted) == 2 and all(wanted):
        ((name, shape),) = ((name, sizes.shapes[name]) for name in tables)
        if shape[0] < wanted[0] or shape[1:] != wanted[1:]:  # some types have rows more
            return name, f"is {shape}, not {wanted}"
    counts = Counter(place for place, _ in {match.groups() for match in map(LAYER.match, sizes.shapes) if match})
    if len(counts) == 1 and isinstance(layers, int):
        ((place, number),) = counts.items()
        if number < layers:
            return f"{place}.{number}", "is in none of its files"
    return "", ""


@cache
def modeling_source(kind: str) -> str:
    """The source of a type of model in transformers, whose import would bring torch into a dry run.

    "" where it is not known, and for types whose files have other names than their models (conversion_mapping.py).
    """
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return ""
    name, root = kind.replace("-", "_"), Path(spec.origin).parent
    file, renamings = root / "models" / name / f"modeling_{name}.py", root / "conversion_mapping.py"
    is_renamed = renamings.is_file() and f'"{kind}"' in renamings.read_text(encoding="utf-8")
    return file.read_text(encoding="utf-8") if file.is_file() and not is_renamed else ""
