"""The steps of the stage topics."""

from __future__ import annotations

from crawl2llm.chain.step import ALL_VERDICTS, DOCUMENTS, Config, Step


def finds_topics(config: Config) -> bool:
    """Whether the config asks for clusters."""
    return bool(config["topics"]["train"]["clusters"])


def reads_languages_by_language(need: str, config: Config, task: str) -> bool:
    """Languages are read if each has topics of its own."""
    return need != "language.score" or config["topics"]["train"]["by"] == "language"


STEPS = {
    "topics.train": Step(
        inputs={"documents": DOCUMENTS, "languages": "language.score"},
        optional=("languages",),
        is_used=finds_topics,
        reads=reads_languages_by_language,
    ),
    "topics.score": Step(
        inputs={"documents": DOCUMENTS, "model": "topics.train", "languages": "language.score"},
        optional=("languages",),
        per="shard",
        is_used=finds_topics,
        reads=reads_languages_by_language,
    ),
    "topics.count": Step(
        inputs={"topics": "topics.score", "verdicts": ALL_VERDICTS}, per="shard", is_used=finds_topics
    ),
}
