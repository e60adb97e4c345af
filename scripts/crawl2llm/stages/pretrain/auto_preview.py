"""What a plan can say of `auto`: its values where the tokens are there; before that, which keys, and a bound by the input's bytes."""

from __future__ import annotations

import os
from typing import Any

from crawl2llm.chain.config_schema import is_auto
from crawl2llm.chain.steps import SYNTHESIZE, is_used
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import auto
from crawl2llm.training.schedule import plan
from crawl2llm.training.vocabulary_size import entries

MARK = "auto: "
STEPS = ("tokenize.train", "pretrain.train")
COMPRESSED = (".gz", ".zst", ".zstd", ".lz4", ".tgz")
# Most tokens of text a byte of a file. 2.7 bytes are a token under the smallest vocabulary, and text is compressed 4
# times at most; web pages, three quarters markup and more, stay far below.
TOKENS_A_BYTE = 1 / 2.7
RATIO = 4


def keys(config: dict[str, Any]) -> list[str]:
    """The keys that are `auto` in a config, by their last words."""
    found = [key.rsplit(".", 1)[1] for step in STEPS for key in is_auto(config, step)]
    train = config["pretrain"]["train"]
    budget = train["steps"] is not None or train["tokens"] is not None
    return [key for key in found if key != "epochs" or not budget]


def line(config: dict[str, Any], auto_keys: list[str], names: list[str], made: list[Manifest]) -> str:
    """One line for people on what is `auto` in a config that reads the files `names`.

    made: the manifests of tokenize.train and tokenize.encode, where they are there and up to date. Raises InputError for
    settings that no value goes with.
    """
    few = len(auto_keys) < 6
    shown = ", ".join(auto_keys) if few else f"{len(auto_keys)} keys of {' and '.join(STEPS)}"
    train = config["pretrain"]["train"]
    if counted := _counted(made):
        tokens, vocabulary = counted
        settings = auto.resolve(train, tokens, vocabulary)
        if few:
            values = {"vocabulary": vocabulary, **settings["model"], **settings}
            shown = ", ".join(f"{key} {values[key]:,}" for key in auto_keys if values[key] is not None)
        try:
            planned = plan(settings, tokens)
        except InputError as error:  # too few tokens: the data half and its report can be worked with all the same
            return f"{MARK}{shown}: {error}"
        return (
            f"{MARK}{shown}, by {tokens:,} training tokens: {auto.parameters(settings['model'], vocabulary)[0]:,} "
            f"parameters, {planned.steps:,} steps of {planned.tokens_per_step:,} tokens"
        )
    known = f"{MARK}{shown}: known after tokenize, by the corpus"
    sizes = [os.stat(name).st_size for name in names]  # noqa: PTH116 - a dump has 90,000 files
    size = sum(size * (RATIO if name.endswith(COMPRESSED) else 1) for name, size in zip(names, sizes, strict=True))
    elsewhere = ("crawl.render", "ingest.list", *SYNTHESIZE)
    if not size or any(is_used(step, config) for step in elsewhere):
        return known
    tokens = max(300, round(size * TOKENS_A_BYTE))
    vocabulary = entries(config["tokenize"]["train"]["vocabulary"], size)
    settings = auto.resolve(train, tokens, vocabulary)
    parameters = auto.parameters(settings["model"], vocabulary)[0]
    return (
        f"{known}; at most {tokens / 1e6:,.1f} M training tokens and {parameters / 1e6:,.1f} M parameters for input of "
        f"{sum(sizes) / 1e6:,.1f} MB"
    )


def _counted(made: list[Manifest]) -> tuple[int, int] | None:
    """(training tokens, entries of the tokenizer) in the manifests of the tokenizer and of the encoded shards; None without."""
    try:
        return sum(shard.summary["train"]["tokens"] for shard in made[1:]), made[0].summary["vocabulary"]
    except (IndexError, KeyError, TypeError):
        return None
