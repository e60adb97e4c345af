"""The steps of the stage tokenize."""

from __future__ import annotations

from crawl2llm.chain.step import Step

STEPS = {
    "tokenize.train": Step(("corpus.write",)),
    "tokenize.encode": Step(("tokenize.train", "corpus.write"), per="shard"),
}
