"""What of pretrain.continue is refused before anything runs. What the corpus decides is refused when the step starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.chain.model_registry import CONTINUE_STEP
from crawl2llm.core.errors import InputError
from crawl2llm.stages.pretrain.settings import ContinueSettings
from crawl2llm.stages.pretrain.steps import source_of_model
from crawl2llm.training.mix_shares import SHARE_TOLERANCE
from crawl2llm.training.model_loading import context_by
from crawl2llm.training.published.model_files import TOKENIZER
from crawl2llm.training.published.sizes import read_sizes

# Of transformers, which stretches by "dynamic" what is longer than the context alone: in a training nothing.
ROPE_TYPES = ("default", "linear", "yarn", "longrope", "llama3")


def check_continued(config: dict[str, Any]) -> None:
    """InputError for a model of pretrain.continue whose shares, RoPE or batches no training could have."""
    sources = sorted(source["name"] for source in config["ingest"]["extract"]["sources"])
    for name in model_registry.models_made_by(config, CONTINUE_STEP):
        settings = ContinueSettings.model_validate(model_registry.section(config, CONTINUE_STEP, name))
        key = partial(model_registry.key_path, config, CONTINUE_STEP, name)
        check_shares(settings.shares, sources, key)
        kind = (settings.rope_parameters or {"rope_type": "default"}).get("rope_type")
        if kind not in ROPE_TYPES:
            raise InputError(f"{key('rope_parameters')}.rope_type is {kind!r}; allowed: {', '.join(ROPE_TYPES)}")
        if old := sorted(known_tokens(config, name) & {*settings.new_tokens}):
            raise InputError(f"{key('new_tokens')} has {old[0]!r}, which the tokenizer has already: leave it out")
        context = settings.context or known_context(config, str(model_registry.parent(config, name)))
        if context and settings.batch_tokens % context:
            raise InputError(
                f"{key('batch_tokens')} is {settings.batch_tokens}, not a multiple of the context, {context} tokens; the nearest is "
                f"{max(1, round(settings.batch_tokens / context)) * context}"
            )


def check_shares(shares: dict[str, float], sources: list[str], key: Callable[[str], str]) -> None:
    """InputError for a share of a source that is not among the config's, and for shares that do not make a whole. key: paths of keys."""
    if unknown := sorted(shares.keys() - set(sources)):
        raise InputError(f"{key('shares')} names {unknown[0]!r}, and ingest.extract.sources has {', '.join(sources)}")
    total = sum(shares.values())
    if shares and (total > 1 + SHARE_TOLERANCE or (total < 1 - SHARE_TOLERANCE and shares.keys() == {*sources})):
        raise InputError(
            f"{key('shares')} add up to {total:g}; allowed: 1, or less where a source is left that is not named"
        )


def known_context(config: dict[str, Any], name: str) -> int | None:
    """The context of a model in tokens, as far as the config or the files of a published model say it."""
    above = model_registry.parent(config, name)
    if name == model_registry.BASE:
        context = config["pretrain"]["train"]["model"]["context"]
        return context if isinstance(context, int) else None
    if above is None:
        return context_by(read_sizes(source_of_model(config, name), f"models.{name}").value)
    context = known_context(config, above)
    if config["models"][name]["step"] == CONTINUE_STEP and context:
        return max(context, model_registry.section(config, CONTINUE_STEP, name)["context"] or 0)
    return context


def known_tokens(config: dict[str, Any], name: str) -> set[str]:
    """The entries of the tokenizer of a published folder that a model comes from; nothing of a GGUF file's, or of `base`'s."""
    root = model_registry.root(config, name)
    if root == model_registry.BASE or not model_registry.section(config, CONTINUE_STEP, name)["new_tokens"]:
        return set()
    try:
        tokenizer = json.loads((source_of_model(config, root) / TOKENIZER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return {*tokenizer["model"]["vocab"], *(token["content"] for token in tokenizer["added_tokens"])}
