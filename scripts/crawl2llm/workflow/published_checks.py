"""What a config asks of a published model that its own files say it cannot do: refused before anything runs, by headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import gguf_rope, gguf_support
from crawl2llm.stages.compress.checks import CHANGED_LOGITS, PRUNE_STEP
from crawl2llm.stages.pretrain.steps import source_of_model
from crawl2llm.training.model_loading import context_by
from crawl2llm.training.published import gguf_tokenizer
from crawl2llm.training.published.gguf_file import read_header
from crawl2llm.training.published.model_files import TOKENIZER, is_gguf, read_json
from crawl2llm.training.published.sizes import PublishedSizes, read_sizes
from crawl2llm.training.quantized_sizes import LLAMA_LIKE

TRAINING_STEPS = (*model_registry.TUNING_STEPS, PRUNE_STEP, model_registry.DISTIL_STEP, model_registry.CONTINUE_STEP)
EVALUATIONS = ("evaluate.model", "evaluate.common")  # steps with a key `context`


def check_published_uses(config: dict[str, Any]) -> None:
    """Raise InputError for the first thing that a published model, or one that is made from it, is to do and cannot."""
    for root in model_registry.published_models(config):
        source = source_of_model(config, root)
        sizes = read_sizes(source, f"models.{root}")
        line = [name for name in config["models"] if model_registry.root(config, name) == root]
        tokenizer = tokenizer_of(source) if any(gguf_support.gguf_exports(config).get(name) for name in line) else {}
        for problem in (
            *evaluation_problems(config, root, sizes),
            *model_problems(config, root, line, sizes, tokenizer),
        ):
            raise InputError(problem)


def tokenizer_of(source: Path) -> dict[str, Any]:
    """tokenizer.json of a folder, or what is made of a GGUF file's."""
    if is_gguf(source):
        return gguf_tokenizer.tokenizer_json(read_header(source, str(source)))
    return read_json(source / TOKENIZER, str(source))


def evaluation_problems(config: dict[str, Any], root: str, sizes: PublishedSizes) -> Iterator[str]:
    """Windows that are longer than the context of a root."""
    limit = context_by(sizes.value)
    for step in EVALUATIONS:
        stage, _, name = step.partition(".")
        context = config[stage][name]["context"]
        if context and context > limit:
            yield f"{step}.context is {context:,}; the context of models.{root} is {limit:,} tokens, by its config.json"


def context_before(config: dict[str, Any], model: str, root: str, tokens: int) -> tuple[int, str]:
    """(tokens, model) of the context that a step begins with which makes `model`: its root's, of so many tokens, or a longer one that
    pretrain.continue made of it.
    """
    step = model_registry.CONTINUE_STEP
    above = [name for name in model_registry.own_line(config, model)[1:] if config["models"][name]["step"] == step]
    contexts = [(int(model_registry.section(config, step, name)["context"] or 0), name) for name in above]
    return max([(tokens, root), *contexts], key=itemgetter(0))


def model_problems(
    config: dict[str, Any], root: str, models: list[str], sizes: PublishedSizes, tokenizer: dict[str, Any]
) -> Iterator[str]:
    """What steps do not take of a root, one of whose `models` each makes. tokenizer: tokenizer.json."""
    kind = str(sizes.config.get("model_type"))
    for model in models:
        limit, holder = context_before(config, model, root, context_by(sizes.value))
        words = f"models.{holder} is {limit:,} tokens{', by its config.json' if holder == root else ''}"
        step = config["models"][model]["step"]
        settings = model_registry.section(config, step, model)
        key = partial(model_registry.key_path, config, step, model)
        if step in TRAINING_STEPS and sizes.is_quantized:
            method = sizes.config["quantization_config"].get("quant_method")
            yield (
                f"models.{model}.step is {step!r}, and models.{root}, which it comes from, is quantized ({method}) and cannot be trained: "
                "name the model that it was made from"
            )
        if step in model_registry.TUNING_STEPS and (length := settings["max_length"]) > limit:
            yield f"{key('max_length')} is {length:,}; the context of {words}"
        if step == PRUNE_STEP and settings["method"] == "structured" and kind not in LLAMA_LIKE:
            yield (
                f"{key('method')} is 'structured', which takes models of type {', '.join(LLAMA_LIKE)}, and models.{root} is {kind!r}"
            )
        if step == model_registry.DISTIL_STEP and kind in CHANGED_LOGITS:
            yield f"models.{model}.step is {step!r}, which does not take models of type {kind!r}: they change their logits after the head"
        trains_on_text = step == model_registry.DISTIL_STEP or (step == PRUNE_STEP and settings["retrain_tokens"])
        if trains_on_text and settings["batch_tokens"] % limit:
            yield (
                f"{key('batch_tokens')} is {settings['batch_tokens']:,}; allowed: multiples of {limit:,} tokens, the context of "
                f"models.{holder}"
            )
        if step == model_registry.EXPORT_STEP and (types := gguf_support.gguf_exports(config).get(model)):
            for obstacle in gguf_support.published_problems(sizes, tokenizer):
                yield f"models.{model}.types asks for {types[0]}; {obstacle} (models.{root})"
            rope_holder, rope = gguf_rope.rope_of_model(config, model, gguf_rope.rope_of_root(sizes.config))
            if obstacle := gguf_rope.rope_problem(kind, rope):
                yield f"models.{model}.types asks for {types[0]}; of llama.cpp and the rope_parameters of models.{rope_holder}: {obstacle}"
