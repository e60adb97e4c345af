"""What is refused of the settings of synthesize.* before anything runs, and again by the steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.nested_dicts import lookup
from crawl2llm.stages.synthesize.settings import RephraseSettings, SeedSettings

RESERVED_KEYS = ("model", "messages", "stream", "n")  # keys of a request that the step decides


def check_named_steps(config: dict[str, Any], results: Path) -> None:
    """Raise ConfigError or InputError for a step that a source names and that cannot work. results: the folder of the run's results."""
    key_of_step: dict[str, str] = {}
    for number, source in enumerate(config["ingest"]["extract"]["sources"]):
        if step := source.get("step"):
            key = f"ingest.extract.sources[{number}]"
            if step in key_of_step:
                raise ConfigError(
                    f"{key}.step is {step}, which {key_of_step[step]} already uses: its texts would be repeated"
                )
            key_of_step[step] = key
    for step in key_of_step:
        settings = cast(RephraseSettings | SeedSettings, settings_class(step).model_validate(lookup(config, step)))
        check_step(step, settings)
        for folder in settings.seeds.corpus:
            if Path(folder).resolve().is_relative_to(results.resolve()):
                raise ConfigError(
                    f"{step}.seeds.corpus has {folder!r}, a result of this run, whose corpus would be made from "
                    f"itself: name an earlier run's, or set the source and the seeds in a variant, which reads the "
                    f"corpus of main"
                )


def check_step(step: str, settings: RephraseSettings | SeedSettings) -> None:
    """Raise InputError for settings of a step that cannot work."""
    if settings.model is None:
        raise InputError(f"{step}.model is null: name the model that writes, as its endpoint calls it")
    if not settings.seeds.corpus and not settings.seeds.files:
        raise InputError(
            f"{step}.seeds names nothing: set {step}.seeds.corpus, folders of corpus.write, or {step}.seeds.files"
        )
    for prompt, where in prompts_with_keys(step, settings):
        if "{text}" not in prompt:
            raise InputError(f"{where} is {prompt!r}; it must contain {{text}}, the place of the source text")
    for number, pattern in enumerate(settings.refusals):
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(f"{step}.refusals[{number}] is {pattern!r}, no regular expression: {error}") from None
    if reserved := next((key for key in RESERVED_KEYS if key in settings.request), ""):
        raise InputError(
            f"{step}.request has {reserved!r}, which the step sets; allowed are other keys of a chat completion"
        )
    if settings.budget.money is not None and not (settings.prices.prompt or settings.prices.completion):
        raise InputError(
            f"{step}.budget.money is {settings.budget.money}, and {step}.prices are 0: set the price of a million "
            f"tokens"
        )


def prompts_with_keys(step: str, settings: RephraseSettings | SeedSettings) -> list[tuple[str, str]]:
    """(prompt, its key) of a step's prompts. Raises InputError if there are none."""
    for key in ("styles", "formats", "audiences"):
        if getattr(settings, key, None) == {}:
            raise InputError(f"{step}.{key} is empty: name one or more")
    if isinstance(settings, RephraseSettings):
        return [(prompt, f"{step}.styles.{name}") for name, prompt in settings.styles.items()]
    return [(settings.prompt, f"{step}.prompt")]
