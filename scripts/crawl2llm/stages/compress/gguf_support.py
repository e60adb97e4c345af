"""What llama.cpp takes: architectures and tokenizers, and where its tools are. Asked by the plan, before anything is trained.

`TYPES` are the types of transformers whose tiny models were converted, run by llama.cpp, and gave the logits of transformers
(tests/unit/stages/compress/test_gguf.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.training.published import gguf_tokenizer
from crawl2llm.training.published.sizes import PublishedSizes

SAFETENSORS = "safetensors"
TYPES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "olmoe", "gpt2", "gpt_neox")
UNTIED_TYPES = ("olmoe", "gpt_neox")  # llama.cpp asks for a matrix of the output
EQUAL_HEADS_TYPES = ("olmoe",)  # its norms of keys have the width of queries
# llama.cpp's name for the way that a text is cut before BPE (src/llama-vocab.cpp), by tokenize.train.digits: GPT-2's expression
# alone, and after every digit was cut off by itself. Groups of up to three digits are there only before other expressions: minicpm5,
# deepseek-v3, hunyuan-dense, llama-bpe (read in the source of llama_cpp_python 0.3.36).
PRE = {0: "gpt-2", 1: "smollm"}
# How this project's own tokenizers cut off every digit, which llama.cpp does as smollm.
ONE_DIGIT = {"pattern": {"Regex": r"\p{N}{1,1}"}, "behavior": "Isolated", "invert": False}
VERSION = "0.3.36"  # of llama_cpp_python, which carries llama.cpp; in envs/lock-gguf.txt
BINDINGS = "site/llama_cpp"  # below the folder of the tools


def has_version(folder: Path) -> bool:
    """Whether a folder holds bindings of VERSION."""
    module = folder / BINDINGS / "__init__.py"
    return module.is_file() and f'"{VERSION}"' in module.read_text(encoding="utf-8")


TOOLS = ExternalTool(
    key="gguf",
    name="llama.cpp's tools",
    plural=True,
    cost="minutes",
    files=(f"{BINDINGS}/__init__.py", "llama.cpp/convert_hf_to_gguf.py"),
    version=VERSION,
    has_version=has_version,
)


def gguf_exports(config: dict[str, Any]) -> dict[str, list[str]]:
    """The GGUF types of each export of a config; none of one that has safetensors alone."""
    step = model_registry.EXPORT_STEP
    types_by_export = {
        name: model_registry.section(config, step, name)["types"]
        for name in model_registry.models_made_by(config, step)
    }
    gguf_types = {name: [kind for kind in types if kind != SAFETENSORS] for name, types in types_by_export.items()}
    return {name: types for name, types in gguf_types.items() if types}


def gguf_problems(config: dict[str, Any]) -> Iterator[str]:
    """Why llama.cpp would not take the models of a config, in words: key, value and what is allowed. Nothing if it takes them."""
    model, tokenizer = config["pretrain"]["train"]["model"], config["tokenize"]["train"]
    if model["type"] not in TYPES:
        yield f"of pretrain.train.model.type llama.cpp takes {', '.join(TYPES)}, and it is {model['type']!r}"
    if model["type"] in UNTIED_TYPES and model["tie_embeddings"]:
        yield (
            f"of type {model['type']} llama.cpp takes pretrain.train.model.tie_embeddings false, and it is {model['tie_embeddings']!r}"
        )
    if model["type"] in EQUAL_HEADS_TYPES and model["kv_heads"] not in (None, model["heads"]):
        yield (
            f"of type {model['type']} llama.cpp takes as many pretrain.train.model.kv_heads as heads, {model['heads']}, and they are "
            f"{model['kv_heads']!r}"
        )
    if any(tokenizer["from"].values()):  # a ready tokenizer: see `pre_tokenizer_name`
        return
    if tokenizer["model"] != "bpe":
        yield f"of tokenize.train.model llama.cpp takes bpe, and it is {tokenizer['model']!r}"
    if tokenizer["marks"] != "separate":
        yield f"llama.cpp has no way to cut texts as tokenize.train.marks {tokenizer['marks']!r} does; allowed: 'separate'"
    if tokenizer["digits"] not in PRE:
        yield (
            f"llama.cpp has no way to cut texts as tokenize.train.digits {tokenizer['digits']} does; allowed: {', '.join(map(str, PRE))}"
        )


def pre_tokenizer_name(tokenizer: dict[str, Any]) -> str | None:
    """llama.cpp's name for the way that tokenizer.json cuts texts; None for one that llama.cpp does not have, as far as it is known here.

    Beside those of this project's own tokenizers the ways of published models that GGUF files are read in, too.
    """
    model, step = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    steps = step.get("pretokenizers", [step])
    if model["type"] != "BPE" or not steps or not step:
        return None
    first = {key: value for key, value in steps[0].items() if key in ONE_DIGIT}
    if steps[0]["type"] == "Split" and first == ONE_DIGIT:
        steps = [gguf_tokenizer.PRE[PRE[1]][0], *steps[1:]]
    cut = [{key: value for key, value in each.items() if key != "trim_offsets"} for each in steps]
    for name, known in gguf_tokenizer.PRE.items():
        same = cut == [{key: value for key, value in each.items() if key != "trim_offsets"} for each in known]
        whole_words = bool(model.get("ignore_merges")) == (name in gguf_tokenizer.WHOLE_WORDS)
        if same and whole_words and tokenizer.get("normalizer") == gguf_tokenizer.NORMALIZER.get(name):
            return name
    return None


def published_problems(sizes: PublishedSizes, tokenizer: dict[str, Any]) -> Iterator[str]:
    """As `gguf_problems`, of a published model with this tokenizer.json."""
    kind = sizes.config.get("model_type")
    if kind not in TYPES:
        yield f"of models of transformers llama.cpp takes here {', '.join(TYPES)}, and it is {kind!r}"
    if kind in UNTIED_TYPES and sizes.ties_embeddings:
        yield f"of type {kind} llama.cpp takes models whose head is not the table of the embeddings"
    if pre_tokenizer_name(tokenizer) is None:
        yield "llama.cpp has no way to cut texts as its tokenizer.json does"


def check_exports(config: dict[str, Any]) -> None:
    """Raise InputError, naming key, value and what is allowed, for an export as GGUF that llama.cpp would not take."""
    for name, types in gguf_exports(config).items():
        why = f"models.{name}.types asks for {types[0]}"
        source = config["models"][name]["from"]
        if model_registry.making_task(config, source)[0] in model_registry.CHILDLESS_STEPS:
            raise InputError(
                f"{why}, and models.{name}.from is {source!r}, whose weights are rounded for other programs: export "
                f"{model_registry.parent(config, source)!r}, which it is made from, with q8_0 or q4_k_m, or {source!r} as {SAFETENSORS}"
            )
        obstacle = None if model_registry.is_from_published(config, source) else next(gguf_problems(config), None)
        if obstacle:
            raise InputError(f"{why}; {obstacle}")


def check_tools(config: dict[str, Any], present: Container[str] = ()) -> None:
    """Raise InputError if an export needs tools that are not there. present: exports that are made already."""
    for name in gguf_exports(config):
        if name not in present and (why := TOOLS.problem()):
            raise InputError(f"models.{name} is exported as GGUF, and {why}")
