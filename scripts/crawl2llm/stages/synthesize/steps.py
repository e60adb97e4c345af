"""The steps of the stage synthesize."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain.step import Config, Step


def writes_a_source(step: str, config: Config) -> bool:
    """Whether a source is of the texts that this step writes."""
    return any(source.get("step") == step for source in config["ingest"]["extract"]["sources"])


STEPS = {name: Step(is_used=partial(writes_a_source, name)) for name in ("synthesize.rephrase", "synthesize.seed")}
