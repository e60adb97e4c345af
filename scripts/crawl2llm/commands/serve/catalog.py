"""What can be talked to: the models of a run by transformers, and its exports as GGUF by llama.cpp, `gguf:q8_0`."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import EXPORT_STEP
from crawl2llm.chain.steps import folder_of
from crawl2llm.commands.serve import generate, gguf, speculative
from crawl2llm.commands.serve.gguf import Export
from crawl2llm.commands.serve.speculative import Speculation
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import read_json_lines
from crawl2llm.stages.compress import gguf_support
from crawl2llm.training import model_loading
from crawl2llm.workflow import unused

Offer = Path | Export  # a model's manifest, or a GGUF file
EXAMPLES, LONGEST_EXAMPLE = 4, 120  # texts, characters
QUESTIONS = ("What is the capital of France?", "Why is the sky blue?", "Write two sentences about a cat.")
BEGINNINGS = ("The capital of France is", "Once upon a time", "The function returns")


def gguf_exports(results: Path) -> dict[str, list[Export]]:
    """The GGUF files of each export in the results of a variant, in the order of its types. Raises ManifestError."""
    exports_by_name = {}
    for path in sorted(results.glob(f"{folder_of(EXPORT_STEP)}/*.manifest.json")):
        files = Manifest.read_unchecked(path).summary["gguf"]
        exports_by_name[model_loading.model_name(path)] = [
            Export(path, file_entry["type"], file_entry["file"]) for file_entry in files
        ]
    return exports_by_name


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --type, --draft and --lookup."""
    parser.add_argument(
        "--type", help="of a model that is exported as GGUF, the file of this type (default: the last in its `types`)"
    )
    speculative.add_options(parser)


def choose_offers(args: argparse.Namespace) -> tuple[dict[str, Offer], str, Speculation]:
    """(what is offered, the name of what is shown first, how tokens are said ahead), by the options `results`, `model`, `type`, `draft`
    and `lookup`.

    Raises InputError that names what is not there and what is. Where tokens are said ahead, GGUF files are left out.
    """
    models, exports_by_name = generate.model_manifests(args.results), gguf_exports(args.results)
    speculation = speculative.parse_speculation(args, models)
    files = {f"{name}:{export.type}": export for name, exports in exports_by_name.items() for export in exports}
    obstacle = (
        "--draft and --lookup are of models that transformers runs"
        if speculation != Speculation()
        else gguf_support.TOOLS.problem()
    )
    first = choose_first(models, exports_by_name, args.model, args.type)
    if first in files and obstacle:
        raise InputError(f"{first} is run by llama.cpp; {obstacle}")
    if files and obstacle:
        log.info("left out: %s, which llama.cpp runs; %s", ", ".join(files), obstacle)
    return {**models, **({} if obstacle else files)}, first, speculation


def choose_first(
    models: dict[str, Path], exports_by_name: dict[str, list[Export]], name: str | None, kind: str | None
) -> str:
    """The name of what is shown first: that which is named, by its type where it is exported, or the last model that was made.

    Raises InputError for one that is not there.
    """
    if name is None:
        name = max(models, key=lambda other: models[other].stat().st_mtime)
    name, _, type_in_name = name.partition(":")
    kind = kind or type_in_name or None
    names = ", ".join([*models, *exports_by_name])
    if name not in models and name not in exports_by_name:
        raise InputError(
            f"there is no model {name!r}; there are {names}{set_aside_hint(name, next(iter(models.values())))}"
        )
    if name in models:
        if kind:
            raise InputError(f"{name} has no types: it is not a GGUF export")
        return name
    types = [export.type for export in exports_by_name[name]]
    if not types:
        raise InputError(
            f"{name} is exported as safetensors alone, the weights of the model that it is made from; talk to that: {', '.join(models)}"
        )
    if kind and kind.lower() not in types:
        raise InputError(f"{name} has no file of type {kind!r}; it has {', '.join(types)}")
    return f"{name}:{kind.lower() if kind else types[-1]}"


def set_aside_hint(name: str, manifest: Path) -> str:
    """Where a model is that the config no longer has, for an error; "" of one that is not set aside. manifest: of a model of the run."""
    results = next((path for path in manifest.absolute().parents if path.name == unused.RESULTS.name), None)
    aside_results = [folder for folder in (unused.find_set_aside(results) if results else []) if folder.model == name]
    return (
        f". The config no longer has {name}: its results are in {aside_results[0].folder}, and come back with it"
        if aside_results
        else ""
    )


def open_offer(offer: Offer, speculation: Speculation | None = None) -> generate.Model | gguf.Model:
    """What is offered, in memory. Raises as generate.Model and gguf.Model."""
    return gguf.Model(offer) if isinstance(offer, Export) else generate.Model(offer, speculation)


def describe_offer(offer: Offer) -> dict[str, Any]:
    """What it is without loading it: `context` in tokens, whether it `chats`, and `examples` of what to ask it."""
    if isinstance(offer, Export):
        facts = {"context": model_loading.CONTEXT, "chats": False} | gguf.describe_file(offer)
    else:
        facts = generate.describe_model(offer)
    manifest = offer.manifest if isinstance(offer, Export) else offer
    return {**facts, "examples": example_texts(manifest.parents[2], facts["chats"])}


def example_texts(results: Path, chats: bool) -> list[str]:
    """What the run's evaluation asked its models, held-out questions or texts to continue, as far as it is short; else texts of ours."""
    key, texts = "question" if chats else "prompt", dict[str, None]()
    for path in sorted(results.glob(f"{folder_of('evaluate.model')}/*.samples.jsonl")):
        with contextlib.suppress(OSError):  # it is made again just now
            texts |= {str(row[key]): None for row in read_json_lines(path) if row.get("kind") == key and row.get(key)}
    short = [text for text in texts if len(text) <= LONGEST_EXAMPLE and "\n" not in text]
    return short[:EXAMPLES] or list(QUESTIONS if chats else BEGINNINGS)
