"""What a plan can say of `auto`: its values where the tokens are there; before that, which keys, and a bound by the input's bytes."""

from __future__ import annotations

import os
from typing import Any

from crawl2llm.chain.config_schema import auto_keys
from crawl2llm.chain.model_registry import trains_base
from crawl2llm.chain.steps import SYNTHESIZE, is_used
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.pretrain.steps import STREAM
from crawl2llm.training import auto
from crawl2llm.training.pretraining_settings import ResolvedSettings, TrainSettings
from crawl2llm.training.schedule import make_plan
from crawl2llm.training.vocabulary_size import vocabulary_entries

MARK = "auto: "
STEPS = ("tokenize.train", "pretrain.train")
COMPRESSED = (".gz", ".zst", ".zstd", ".lz4", ".tgz")
# Most tokens of text a byte of a file. 2.7 bytes are a token under the smallest vocabulary, and text is compressed 4
# times at most; web pages, three quarters markup and more, stay far below.
TOKENS_A_BYTE = 1 / 2.7
RATIO = 4


def keys_on_auto(config: dict[str, Any]) -> list[str]:
    """The keys that are `auto` in a config, by their last words; none of a run that trains no `base`."""
    if not trains_base(config):
        return []
    names = [key.rsplit(".", 1)[1] for step in STEPS for key in auto_keys(config, step)]
    train = config["pretrain"]["train"]
    budget = train["steps"] is not None or train["tokens"] is not None
    return [key for key in names if key != "epochs" or not budget]


def preview_line(
    config: dict[str, Any],
    auto_keys: list[str],
    names: list[str],
    manifests: list[Manifest],
    packs: Manifest | None = None,
) -> str:
    """One line for people on what is `auto` in a config that reads the files `names`.

    manifests, packs: the manifests of tokenize.train and tokenize.encode, and that of pretrain.pack or pretrain.mix, if they are there
    and up to date. Raises InputError for settings that no value goes with.
    """
    few = len(auto_keys) < 6
    keys_text = ", ".join(auto_keys) if few else f"{len(auto_keys)} keys of {' and '.join(STEPS)}"
    train = config["pretrain"]["train"]
    if counts := _count_tokens(manifests):
        tokens, vocabulary = counts
        settings = auto.resolve(TrainSettings.model_validate(train), tokens, vocabulary)
        if few:
            values = {"vocabulary": vocabulary, **dict(settings.model), **dict(settings)}
            keys_text = ", ".join(f"{key} {values[key]:,}" for key in auto_keys if values[key] is not None)
        try:
            planned = make_plan(settings, tokens, _count_windows(packs, settings))
        except InputError as error:  # too few tokens: the data half and its report can be worked with all the same
            return f"{MARK}{keys_text}: {error}"
        return (
            f"{MARK}{keys_text}, by {tokens:,} training tokens: {auto.parameter_totals(settings.model, vocabulary)[0]:,} "
            f"parameters, {planned.steps:,} steps of {planned.tokens_per_step:,} tokens"
        )
    pending_text = f"{MARK}{keys_text}: known after tokenize, by the corpus"
    sizes = [os.stat(name).st_size for name in names]  # noqa: PTH116 - a dump has 90,000 files
    size = sum(size * (RATIO if name.endswith(COMPRESSED) else 1) for name, size in zip(names, sizes, strict=True))
    elsewhere = ("crawl.render", "ingest.list", *SYNTHESIZE)
    if not size or any(is_used(step, config) for step in elsewhere):
        return pending_text
    tokens = max(300, round(size * TOKENS_A_BYTE))
    vocabulary = vocabulary_entries(config["tokenize"]["train"]["vocabulary"], size)
    settings = auto.resolve(TrainSettings.model_validate(train), tokens, vocabulary)
    parameters = auto.parameter_totals(settings.model, vocabulary)[0]
    return (
        f"{pending_text}; at most {tokens / 1e6:,.1f} M training tokens and {parameters / 1e6:,.1f} M parameters for input of "
        f"{sum(sizes) / 1e6:,.1f} MB"
    )


def _count_tokens(manifests: list[Manifest]) -> tuple[int, int] | None:
    """(training tokens, entries of the tokenizer) in the manifests of the tokenizer and of the encoded shards; None without."""
    try:
        return sum(shard.summary["train"]["tokens"] for shard in manifests[1:]), manifests[0].summary["vocabulary"]
    except (IndexError, KeyError, TypeError):
        return None


def _count_windows(packs: Manifest | None, settings: ResolvedSettings) -> int | None:
    """The windows of an epoch of a training that packs documents; None of another, and without its windows."""
    if packs is None or settings.packing == STREAM:  # pretrain.pack has windows of other trainings of a sweep too
        return None
    totals = packs.summary.get("packing", {}).get(str(settings.model.context))
    return totals["windows"] if totals else None
