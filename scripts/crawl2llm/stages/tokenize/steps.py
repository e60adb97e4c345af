"""The steps of the stage tokenize."""

from __future__ import annotations

from crawl2llm.chain.step import Step

STEPS = {
    "tokenize.train": Step(inputs={"corpus": "corpus.write"}),
    "tokenize.encode": Step(inputs={"tokenizer": "tokenize.train", "corpus": "corpus.write"}, per="shard"),
}
