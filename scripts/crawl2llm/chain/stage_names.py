"""The names of the stages and filters, in the order of the schema, the rules and the pages; each is a folder, or a file of a plug-in."""

from __future__ import annotations

# The filters stand between the two; the order of those that a run uses is the config's. Those of plug-ins are added when a config is read.
BEFORE_FILTERS = ("crawl", "synthesize", "ingest")
FILTER_NAMES = (
    "url",
    "language",
    "multilingual",
    "heuristics",
    "lines",
    "boilerplate",
    "licence",
    "sourcecode",
    "toxicity",
    "pii",
    "dedup",
    "paragraphs",
    "substrings",
    "quality",
    "decontaminate",
)
AFTER_FILTERS = (
    "topics",
    "corpus",
    "tokenize",
    "pretrain",
    "finetune",
    "align",
    "compress",
    "evaluate",
    "report",
)
ALL_NAMES = (*BEFORE_FILTERS, *FILTER_NAMES, *AFTER_FILTERS)
PLUGIN_FILTERS: list[str] = []  # the loaded filters of plug-ins
KNOWN_FILTERS = [*FILTER_NAMES]  # what `filters` may name: ours, and all that the plug-ins of the config have


def all_names() -> tuple[str, ...]:
    """The stages and filters, those of plug-ins too, in order."""
    return (*BEFORE_FILTERS, *FILTER_NAMES, *PLUGIN_FILTERS, *AFTER_FILTERS)


def package_of(name: str) -> str:
    """The package that a stage, or a filter, is a folder of: `stages` or `filters`."""
    return "filters" if name in FILTER_NAMES else "stages"
