"""What a published model has to be, seen in the headers of its files: refused before a run starts. Nothing here needs torch."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.gguf_architectures import check_architecture
from crawl2llm.training.published.gguf_file import read_header
from crawl2llm.training.published.gguf_tokenizer import check_tokenizer
from crawl2llm.training.published.model_files import (
    CONFIG,
    INCOMPLETE,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    is_gguf,
    read_json,
    safetensors_entries,
    template_in_config,
    weight_files,
)
from crawl2llm.training.published.sizes import read_sizes
from crawl2llm.training.published.weight_shapes import weight_problem

TOKEN_FILES = (TOKENIZER_CONFIG, "special_tokens_map.json")  # that name special tokens


def check_published(path: Path, label: str) -> None:
    """Raise InputError, one line that begins with `label`, for what is no complete published model: a folder as transformers has it, with
    safetensors and tokenizer.json, or a GGUF file of an architecture that is read."""
    if not path.exists():
        raise InputError(f"{label} is {str(path)!r}: there is no such folder or file")
    if path.is_dir():
        _check_folder(path, f"{label} is {str(path)!r}")
    elif is_gguf(path):
        header = read_header(path, label)
        check_architecture(header, label)
        check_tokenizer(header, label)
        name, wrong = weight_problem(read_sizes(path, label))
        if name:
            raise InputError(f"{label}: {path}: by its keys a {header.architecture}, and {name} {wrong}")
    else:
        raise InputError(f"{label} is {str(path)!r}; allowed: a folder with {CONFIG} and safetensors, or a .gguf file")


def _check_folder(path: Path, where: str) -> None:
    if partial := sorted(path.rglob(f"*{INCOMPLETE}")):
        raise InputError(f"{where}: half a download ({partial[0].name}); fetch it again")
    if not (path / CONFIG).is_file():
        ggufs = sorted(path.glob("*.gguf"))
        hint = f"; did you mean {ggufs[0]}?" if ggufs else ""
        raise InputError(f"{where}: a folder without {CONFIG}{hint}")
    config = read_json(path / CONFIG, where)
    for name in (CONFIG, *TOKEN_FILES):
        if read_json(path / name, where).get("auto_map"):
            raise InputError(f"{where}: its {name} has auto_map, code of its own, which is never run")
    kind = config.get("model_type")
    if kind not in causal_types():
        raise InputError(
            f"{where}: model_type is {kind!r} in its {CONFIG}, which is no language model that this version of transformers knows"
        )
    if not (path / TOKENIZER).is_file():
        alone = (
            "; tokenizer.model alone is not read: its ids would not surely be the same"
            if (path / "tokenizer.model").is_file()
            else ""
        )
        raise InputError(f"{where}: a folder without tokenizer ({TOKENIZER}){alone}")
    tokenizer = read_json(path / TOKENIZER, where)
    if not any(read_json(path / name, where).get("eos_token") for name in TOKEN_FILES):
        raise InputError(f"{where}: its tokenizer has no end token (eos_token in {' or '.join(TOKEN_FILES)})")
    check_template(path, where)
    files = weight_files(path, where)
    for file in files:
        check_safetensors(file, where)
    sizes = read_sizes(path, where)
    tokens, rows = len(tokenizer.get("model", {}).get("vocab", ())), sizes.value("vocab_size")
    if isinstance(rows, int) and tokens > rows:  # added tokens may be more, such as one for padding
        raise InputError(
            f"{where}: its {TOKENIZER} has {tokens:,} tokens, and its {CONFIG} {rows:,} (vocab_size): another model's tokenizer"
        )
    name, wrong = weight_problem(sizes)
    if name:
        holders = [file for file in files if any(map(name.endswith, safetensors_entries(file, where)[0]))]
        place = f"in {holders[0].name} " if holders else ""
        raise InputError(
            f"{where}: by its {CONFIG} a {kind}, and {place}{name} {wrong}: another model's {CONFIG} or weights"
        )


def check_template(path: Path, where: str) -> None:
    """Raise InputError for a chat template that does not parse, which would end the first task that asks the model."""
    file = path / TEMPLATE
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else template_in_config(path, where)
    if not text:
        return
    from jinja2 import Environment, TemplateSyntaxError

    try:
        Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False).parse(text)  # noqa: S701 - runs nothing
    except TemplateSyntaxError as error:
        if "generation" not in str(error.message):  # a tag that transformers adds
            raise InputError(f"{where}: its chat template is none (line {error.lineno}: {error.message})") from error


def check_safetensors(file: Path, where: str) -> None:
    """Raise InputError for a file of safetensors that is shorter, or longer, than its header says."""
    entries, begin = safetensors_entries(file, where)
    end = begin + max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    if end != (size := file.stat().st_size):
        raise InputError(f"{where}: {file.name} has {size:,} bytes, and its header says {end:,}; fetch it again")


@cache
def causal_types() -> frozenset[str]:
    """The types of language models that transformers knows, read in its source: an import would bring torch into a dry run.

    Of no installed transformers none.
    """
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return frozenset()
    source = (Path(spec.origin).parent / "models/auto/modeling_auto.py").read_text(encoding="utf-8")
    begin = source.index("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = ")
    table = ast.parse(source[begin : source.index("\n)\n", begin) + 2])
    pairs = [node for node in ast.walk(table) if isinstance(node, ast.Tuple) and len(node.elts) == 2]
    return frozenset(str(pair.elts[0].value) for pair in pairs if isinstance(pair.elts[0], ast.Constant))
