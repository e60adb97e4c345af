"""The steps of the filter language."""

from __future__ import annotations

from crawl2llm.chain.step import SCORE, TEXT, Config, Filter, Step


def compares(config: Config) -> bool:
    """Whether the config names other models, or asks for scripts."""
    return any(config["language"]["compare"].values())


FILTER = Filter(
    {
        "score": SCORE,
        "compare": Step(inputs={**TEXT, "languages": ".score"}, per="shard", is_used=compares),
        "select": Step(
            inputs={"signals": ".score", "compared": ".compare"}, optional=("compared",), per="shard", exempts=True
        ),
    },
    judges_curated=True,
)
